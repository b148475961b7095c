"""Quotas of users that have authenticated, and of clients that speak TLS."""

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cordwood
from cordwood.protocol.api_catalog import ApiKey
from cordwood.security.security_state import QuotaEntity
from fakes.client_batches import client_batch
from fakes.tls_files import TlsFiles
from wire.raw_client import RawClient, framed, request_header
from wire.record_requests import produce_body
from wire.sasl_brokers import PASSWORD, add_users, log_in, sasl_broker
from wire.tls_client import TlsClient
from wire.waiting import await_true

BATCH = bytes(client_batch(b"x" * 10_000))


def limit(broker: cordwood.Broker, entity: QuotaEntity, **limits: float) -> None:
    broker._running().security_file.change(
        lambda state: replace(state, quotas={**state.quotas, entity: limits})
    )


def produced(client: RawClient, count: int = 1) -> int:
    """How long the client is throttled after so many batches, in milliseconds."""
    throttle_ms = 0
    for _ in range(count):
        client.send(ApiKey.PRODUCE, 7, produce_body(7, [("t", 0, BATCH)]))
        _, body = client.receive(ApiKey.PRODUCE, 7)
        (throttle_ms,) = struct.unpack(">i", body[-4:])
    return throttle_ms


def test_each_user_has_a_quota_of_its_own_whatever_its_client_ids(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    config = {"quota.window.num": 2, "audit.file": str(path)}
    with sasl_broker(tmp_path, config, topics=["t"]) as broker:
        add_users(broker, ("alice", PASSWORD), ("bob", PASSWORD))
        limit(broker, QuotaEntity(user=""), producer_byte_rate=25_000)
        with (
            RawClient(broker.bootstrap_servers) as alice,
            RawClient(broker.bootstrap_servers) as bob,
            RawClient(broker.bootstrap_servers) as mallory,
        ):
            log_in(alice, "alice")
            log_in(bob, "bob")
            log_in(mallory, "alice", "wrong")

            assert produced(alice, 2) == 0
            assert produced(alice) > 0
            assert produced(bob, 2) == 0
        await_true(lambda: path.exists() and len(path.read_text().splitlines()) == 3)

    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["principal"], line["decision"]) for line in lines] == [
        ("User:alice", "accepted"),
        ("User:bob", "accepted"),
        ("User:alice", "refused"),
    ]
    assert lines[0]["mechanism"] == "PLAIN"
    assert lines[0]["listener"] == "SASL_PLAINTEXT"
    assert PASSWORD not in path.read_text()


@pytest.mark.parametrize("is_pipelined", [False, True])
def test_bytes_inside_tls_wait_while_a_client_is_muted(tmp_path: Path, is_pipelined: bool) -> None:
    """Several requests in one TLS record: OpenSSL holds those that are not read yet."""
    files = TlsFiles(tmp_path)
    config = {"quota.window.num": 2, **files.listener_config()}
    with cordwood.Broker(topics=["t"], config=config) as broker:
        limit(broker, QuotaEntity(client_id="raw"), producer_byte_rate=20_000)
        with TlsClient(broker.bootstrap_servers, files.client_context()) as client:
            frame = framed(request_header(0, 7, 1) + produce_body(7, [("t", 0, BATCH)]))
            if is_pipelined:
                client.send_bytes(frame * 6)
            for _ in range(6):
                if not is_pipelined:
                    client.send_bytes(frame)
                client.receive(ApiKey.PRODUCE, 7)
        assert sum(1 for _ in broker.store.topic("t").partition(0).read()) == 6
        await_true(lambda: broker._running().connection_count == 0)
        assert broker._running().quotas.view().throttled


def test_a_muted_tls_client_that_leaves_is_forgotten(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    with cordwood.Broker(topics=["t"], config=files.listener_config()) as broker:
        limit(broker, QuotaEntity(client_id="raw"), producer_byte_rate=1)
        server = broker._running()
        with TlsClient(broker.bootstrap_servers, files.client_context()) as client:
            assert produced(client) > 60_000
            assert server._connections.muted_count == 1
            turns = server._data.turns
            assert server.is_responsive(60)
            assert server._data.turns < turns + 1000  # it does not spin
            client.reset()

        await_true(lambda: server.connection_count == 0)


def test_clients_that_have_not_authenticated_yet_do_not_use_up_the_quota_of_each_other(
    tmp_path: Path,
) -> None:
    """They are nobody yet. A flood of them would delay every login, or keep it from its time."""
    config = {"quota.window.size.seconds": 60, "sasl.server.authn.timeout.ms": 5000}
    with sasl_broker(tmp_path, config, topics=["t"]) as broker:
        add_users(broker, ("alice", PASSWORD))
        limit(broker, QuotaEntity(user=""), request_percentage=0.00001)
        address, server = broker.bootstrap_servers, broker._running()
        for _ in range(20):
            with RawClient(address) as client:
                assert client.call(ApiKey.API_VERSIONS, 2, {}).throttle_time == 0
                assert server._connections.muted_count == 0
        with RawClient(address) as client:
            client.call(ApiKey.API_VERSIONS, 2, {})
            assert log_in(client, "alice").error_code == 0
