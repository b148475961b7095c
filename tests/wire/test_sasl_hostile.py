"""Clients that do not finish, do not stop, or leave in the middle."""

import contextlib
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.broker.security.authentication_events import AttemptResult
from cordwood.broker.security.credential_checks import CredentialChecks
from cordwood.errors import ConfigError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import encode_request
from fakes.sasl_clients import plain
from wire.raw_client import RawClient, framed, request_header
from wire.sasl_brokers import (
    ALICE,
    AUTHENTICATE,
    FAILED,
    HANDSHAKE,
    NONE,
    PASSWORD,
    add_users,
    handshake,
    log_in,
    log_in_by_scram,
    sasl_broker,
)
from wire.waiting import await_true

UNFINISHED = 1000


@contextlib.contextmanager
def running(directory: Path, **config: object) -> Iterator[cordwood.Broker]:
    dotted = {key.replace("_", "."): value for key, value in config.items()}
    with sasl_broker(directory, dotted, topics=["t"]) as broker:
        add_users(broker, (ALICE, PASSWORD))
        yield broker


def test_a_thousand_unfinished_logins_hold_up_nobody_and_are_closed(tmp_path: Path) -> None:
    shaking = request_header(HANDSHAKE, 1, 1) + encode_request(HANDSHAKE, 1, {"mechanism": "PLAIN"})
    with (
        running(tmp_path, sasl_server_authn_timeout_ms=10_000) as broker,
        contextlib.ExitStack() as stack,
    ):
        address = broker.bootstrap_servers
        member = stack.enter_context(RawClient(address))
        log_in_by_scram(member, "SCRAM-SHA-256")
        idle = [stack.enter_context(RawClient(address)) for _ in range(UNFINISHED)]
        for number, client in enumerate(idle):
            client.send_bytes(framed(shaking)[: number % (len(shaking) + 5)])
        server = broker._running()
        await_true(lambda: server.connection_count == UNFINISHED + 1)

        began_s = time.monotonic()
        with RawClient(address) as late:
            assert log_in(late).error_code == NONE
        assert member.is_answered()
        assert time.monotonic() - began_s < 5.0
        await_true(lambda: server.connection_count == 1)
        assert member.is_answered()
        counts = server.authentications.counts.view()

    failed = sum(n for (_, _, result), n in counts.items() if result is AttemptResult.FAILED)
    assert failed == UNFINISHED


def test_a_flood_of_wrong_passwords_does_not_delay_the_control_loop(tmp_path: Path) -> None:
    with running(tmp_path) as broker, contextlib.ExitStack() as stack:
        address = broker.bootstrap_servers
        member = stack.enter_context(RawClient(address))
        log_in_by_scram(member, "SCRAM-SHA-256")
        is_over = threading.Event()
        tried: list[int] = []

        def guess() -> None:
            while not is_over.is_set():
                with contextlib.suppress(OSError), RawClient(address) as client:
                    tried.append(log_in(client, password="wrong").error_code)

        threads = [threading.Thread(target=guess) for _ in range(16)]
        for thread in threads:
            thread.start()
        latencies_s = []
        await_true(lambda: len(tried) > 32)
        for _ in range(200):
            began_s = time.monotonic()
            assert member.is_answered()
            latencies_s.append(time.monotonic() - began_s)
        is_over.set()
        for thread in threads:
            thread.join()

    assert set(tried) == {FAILED}
    assert statistics.median(latencies_s) < 0.05  # the guesses take 100 times as long together


def test_a_client_that_leaves_during_the_check_costs_no_check(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        server = broker._running()
        [authentication] = server.authentications.by_listener.values()
        checks = authentication.checks
        gate, started = threading.Event(), threading.Event()

        def hold() -> None:
            started.set()
            gate.wait(60)

        for _ in range(checks._count):
            checks.submit("elsewhere", hold)
        started.wait(60)
        with RawClient(broker.bootstrap_servers) as client:
            handshake(client, "PLAIN")
            body = encode_request(AUTHENTICATE, 2, {"auth_bytes": plain(ALICE, PASSWORD)})
            client.send(AUTHENTICATE, 2, body)
            await_true(lambda: checks.waiting_count == 1)
        await_true(lambda: server.connection_count == 0)
        gate.set()
        await_true(lambda: checks.waiting_count == 0)

        assert server.authentications.counts.view() == {}


def test_a_broker_stops_while_logins_are_checked(tmp_path: Path) -> None:
    with running(tmp_path) as broker, contextlib.ExitStack() as stack:
        for _ in range(50):
            client = stack.enter_context(RawClient(broker.bootstrap_servers))
            handshake(client, "PLAIN")
            body = encode_request(AUTHENTICATE, 2, {"auth_bytes": plain(ALICE, "wrong")})
            client.send(AUTHENTICATE, 2, body)

        began_s = time.monotonic()
        broker.stop()

    assert time.monotonic() - began_s < 10


def test_failures_are_answered_after_the_delay(tmp_path: Path) -> None:
    with (
        running(tmp_path, connection_failed_authentication_delay_ms=300) as broker,
        RawClient(broker.bootstrap_servers) as client,
        RawClient(broker.bootstrap_servers) as good,
    ):
        began_s = time.monotonic()
        assert log_in_by_scram(client, "SCRAM-SHA-256", password="wrong").error_code == FAILED

        assert time.monotonic() - began_s >= 0.3
        assert client.is_closed_by_broker()
        assert log_in(good).error_code == NONE


def test_pipelined_requests_behind_a_failed_login_are_not_carried_out(tmp_path: Path) -> None:
    with running(tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        handshake(client, "PLAIN")
        body = encode_request(AUTHENTICATE, 2, {"auth_bytes": plain(ALICE, "wrong")})
        client.send(AUTHENTICATE, 2, body)
        new = {"topics": [{"name": "hostile", "num_partitions": 1, "replication_factor": 1}]}
        client.send(ApiKey.CREATE_TOPICS, 5, encode_request(ApiKey.CREATE_TOPICS, 5, new))
        server = broker._running()
        await_true(lambda: server.connection_count == 0)

        assert "hostile" not in broker.store.topics()


def test_a_login_that_fails_in_the_broker_is_closed_instead_of_left_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        running(tmp_path, sasl_server_authn_timeout_ms=600_000) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        server = broker._running()

        def fail(*_: object) -> None:
            raise RuntimeError("a bug")

        with monkeypatch.context() as patch:
            patch.setattr(server.authentications.events, "succeeded", fail)
            handshake(client, "PLAIN")
            body = encode_request(AUTHENTICATE, 2, {"auth_bytes": plain(ALICE, PASSWORD)})
            client.send(AUTHENTICATE, 2, body)
            assert client.is_closed_by_broker()
        with RawClient(broker.bootstrap_servers) as next_one:
            assert log_in(next_one).error_code == NONE


def test_hosts_take_turns_in_the_checks() -> None:
    checks = CredentialChecks(threads=1)
    gate, done = threading.Event(), threading.Event()
    order: list[str] = []

    def hold() -> None:
        gate.wait(60)

    checks.submit("first", hold)
    for _ in range(100):
        checks.submit("flood", lambda: order.append("flood"))
    checks.submit("honest", lambda: order.append("honest"))
    checks.submit("last", done.set)
    gate.set()

    done.wait(60)
    await_true(lambda: checks.waiting_count == 0)
    checks.stop()

    assert order.index("honest") <= 2
    assert order.count("flood") == 100


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"sasl.jaas.config": "nonsense"}, "listener.name.sasl_plaintext.sasl.jaas.config"),
        (
            {"sasl.oauthbearer.jwks.endpoint.url": "http://issuer.example/jwks"},
            "sasl.oauthbearer.jwks.endpoint.url",
        ),
        (
            {"sasl.oauthbearer.jwks.endpoint.url": "file:///nowhere/jwks"},
            "sasl.oauthbearer.jwks.endpoint.url",
        ),
    ],
)
def test_a_broker_with_a_wrong_setting_does_not_start(
    tmp_path: Path, config: dict[str, str], key: str
) -> None:
    with pytest.raises(ConfigError) as refused, sasl_broker(tmp_path, config):
        pass

    assert refused.value.key == key
