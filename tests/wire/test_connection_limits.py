"""What a broker bounds, and how it ends: connections, idleness, memory, sizes, sockets."""

import contextlib
import gc
import os
import struct
import time
from pathlib import Path

import pytest

import cordwood
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import encode_request
from fakes.client_batches import client_batch
from wire.raw_client import RawClient, framed, request_header
from wire.record_requests import Wanted, fetch, fetch_body, produce, produce_body, receive_produced
from wire.waiting import await_true

BATCH = bytes(client_batch(b"one", b"two"))
MIB = 1024 * 1024


@pytest.mark.parametrize("key", ["max.connections", "max.connections.per.ip"])
def test_connections_beyond_the_limit_are_closed_and_the_others_stay(key: str) -> None:
    with (
        cordwood.Broker(config={key: 2}) as broker,
        RawClient(broker.bootstrap_servers) as first,
        RawClient(broker.bootstrap_servers) as second,
    ):
        assert first.is_answered()
        assert second.is_answered()
        with RawClient(broker.bootstrap_servers) as third:
            assert third.is_closed_by_broker()
        assert first.is_answered()
        second.socket.close()
        server = broker._running()
        await_true(lambda: server.connection_count < 2)

        with RawClient(broker.bootstrap_servers) as fourth:
            assert fourth.is_answered()


def test_an_idle_connection_is_closed_and_one_that_waits_for_records_is_not() -> None:
    with (
        cordwood.Broker(topics=["t"], config={"connections.max.idle.ms": 200}) as broker,
        RawClient(broker.bootstrap_servers) as idle,
        RawClient(broker.bootstrap_servers) as waiting,
    ):
        assert idle.is_answered()
        waiting.send(ApiKey.FETCH, 12, fetch_body(12, [Wanted(topic="t")], max_wait_ms=1000))

        assert idle.is_closed_by_broker()
        assert waiting.receive(ApiKey.FETCH, 12)[0] == 1


def test_half_sent_requests_that_hold_all_memory_do_not_hold_up_small_ones() -> None:
    limits = {"socket.request.max.bytes": MIB, "queued.max.request.bytes": MIB}
    with cordwood.Broker(topics=["t"], config=limits) as broker:
        hogs = [RawClient(broker.bootstrap_servers) for _ in range(3)]
        try:
            for hog in hogs:
                hog.send_bytes(struct.pack(">i", MIB) + bytes(MIB // 2))
            with RawClient(broker.bootstrap_servers) as client:
                assert client.is_answered()
                assert produce(client, "t", BATCH).error_code == 0
                assert fetch(client, [Wanted(topic="t")]).error_code == 0
        finally:
            for hog in hogs:
                hog.socket.close()


def test_a_large_request_waits_for_memory_and_is_served_when_there_is_some() -> None:
    limits = {"socket.request.max.bytes": 2 * MIB, "queued.max.request.bytes": 2 * MIB}
    large = bytes(client_batch(b"x" * 900_000))
    with cordwood.Broker(topics=["t"], config=limits) as broker:
        hog = RawClient(broker.bootstrap_servers)
        hog.send_bytes(struct.pack(">i", 2 * MIB) + bytes(2 * MIB - 1))
        memory = broker._running()._host.memory
        await_true(lambda: memory.lent == 2 * MIB)
        with RawClient(broker.bootstrap_servers) as client:
            client.send(ApiKey.PRODUCE, 9, produce_body(9, [("t", 0, large)]))

            hog.socket.close()

            (answer,) = receive_produced(client, 9).responses
            assert answer.partition_responses[0].error_code == 0
        await_true(lambda: memory.lent == 0)


def test_a_large_request_that_stops_arriving_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordwood.broker.net.connections.connection_registry._SWEEP_S_MAX", 0.05)
    with cordwood.Broker(topics=["t"]) as broker:
        server = broker._running()
        memory = server._host.memory
        with (
            RawClient(broker.bootstrap_servers) as stalled,
            RawClient(broker.bootstrap_servers) as waiting,
        ):
            stalled.send_bytes(struct.pack(">i", MIB) + bytes(MIB // 2))
            waiting.send(ApiKey.FETCH, 12, fetch_body(12, [Wanted(topic="t")], max_wait_ms=2000))
            await_true(lambda: memory.lent > 0 and server.fetches.waiting_count == 1)

            def is_given_up() -> bool:
                for loop in (server._control, server._data):
                    for connection in server._connections.in_loop(loop):
                        connection.last_active_s -= 40  # as if so many seconds had passed
                return memory.lent == 0

            await_true(is_given_up)
            assert stalled.is_closed_by_broker()
            assert waiting.receive(ApiKey.FETCH, 12)[0] == 1


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="the system does not say")
def test_memory_grows_with_what_has_arrived_and_not_with_what_is_announced() -> None:
    with cordwood.Broker(topics=["t"]) as broker:
        before = resident_bytes()
        clients = [RawClient(broker.bootstrap_servers) for _ in range(40)]
        try:
            for client in clients:
                client.send_bytes(struct.pack(">i", 100 * MIB) + bytes(1000))
            memory = broker._running()._host.memory
            await_true(lambda: memory.lent == 40 * MIB // 4)

            assert resident_bytes() - before < 40 * MIB
        finally:
            for client in clients:
                client.socket.close()


def test_slow_senders_of_giant_requests_do_not_hold_up_large_ones() -> None:
    large = bytes(client_batch(b"x" * 900_000))
    with cordwood.Broker(topics=["t"]) as broker:
        hogs = [RawClient(broker.bootstrap_servers) for _ in range(20)]
        try:
            for hog in hogs:
                hog.send_bytes(struct.pack(">i", 100 * MIB) + bytes(5))
            with RawClient(broker.bootstrap_servers) as client:
                client.socket.settimeout(10.0)
                for _ in range(20):
                    assert produce(client, "t", large).error_code == 0
        finally:
            for hog in hogs:
                hog.socket.close()


def test_a_request_that_hardly_arrives_is_given_up_when_others_wait_for_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cordwood.broker.net.connections.connection_registry._SWEEP_S_MAX", 0.05)
    monkeypatch.setattr("cordwood.broker.net.memory.large_frame._RATE_WINDOW_S", 0.2)
    limits = {"socket.request.max.bytes": 2 * MIB, "queued.max.request.bytes": 2 * MIB}
    large = bytes(client_batch(b"x" * 900_000))
    with cordwood.Broker(topics=["t"], config=limits) as broker:
        memory = broker._running()._host.memory
        with (
            RawClient(broker.bootstrap_servers) as hog,
            RawClient(broker.bootstrap_servers) as client,
        ):
            hog.send_bytes(struct.pack(">i", 2 * MIB) + bytes(2 * MIB - 100_000))
            await_true(lambda: memory.lent == 2 * MIB)

            assert produce(client, "t", large).error_code == 0
            assert hog.is_closed_by_broker()


def test_a_request_above_the_limit_closes_its_connection_and_one_at_the_limit_is_served() -> None:
    body = produce_body(9, [("t", 0, bytes(client_batch(b"x" * 500_000)))])
    frame = framed(request_header(ApiKey.PRODUCE, 9, 1) + body)
    limits = {"socket.request.max.bytes": len(frame) - 4}
    with (
        cordwood.Broker(topics=["t"], config=limits) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        client.send_bytes(frame)
        (answer,) = receive_produced(client, 9).responses
        assert answer.partition_responses[0].error_code == 0

        client.send_bytes(struct.pack(">i", len(frame) - 3))

        assert client.is_closed_by_broker()


def test_many_connections_are_served_side_by_side(broker: cordwood.Broker, topic: str) -> None:
    clients = [RawClient(broker.bootstrap_servers) for _ in range(200)]
    try:
        for client in clients:
            client.send(ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, BATCH)]))

        offsets = [
            receive_produced(client, 9).responses[0].partition_responses[0].base_offset
            for client in clients
        ]
    finally:
        for client in clients:
            client.socket.close()
    assert sorted(offsets) == list(range(0, 400, 2))


def test_a_broker_that_stops_answers_those_who_wait() -> None:
    join = {
        "group_id": "g",
        "session_timeout": 600_000,
        "rebalance_timeout": 600_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    broker = cordwood.Broker(topics=["t"]).start()
    try:
        with (
            RawClient(broker.bootstrap_servers) as fetching,
            RawClient(broker.bootstrap_servers) as first,
            RawClient(broker.bootstrap_servers) as second,
        ):
            wanted = [Wanted(topic="t")]
            fetching.send(ApiKey.FETCH, 12, fetch_body(12, wanted, max_wait_ms=600_000))
            first.call(ApiKey.JOIN_GROUP, 0, join)
            # It waits for the first to join again, which does not.
            second.send(ApiKey.JOIN_GROUP, 0, encode_request(ApiKey.JOIN_GROUP, 0, join))
            server = broker._running()
            await_true(lambda: server.fetches.waiting_count == 1)
            started_s = time.monotonic()

            broker.stop()

            assert time.monotonic() - started_s < 30
            assert fetching.receive(ApiKey.FETCH, 12)[0] == 1
            assert fetching.is_closed_by_broker()
            assert first.is_closed_by_broker()
    finally:
        broker.stop()


def open_sockets() -> int:
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            link = os.readlink(f"/proc/self/fd/{name}")
            count += link.startswith(("socket:", "anon_inode:"))
    return count


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system does not list them")
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_broker_leaves_no_sockets_behind(is_killed: bool) -> None:
    gc.collect()
    before = open_sockets()
    broker = cordwood.Broker(topics=["t"]).start()
    clients = [RawClient(broker.bootstrap_servers) for _ in range(5)]
    for client in clients:
        produce(client, "t", BATCH)
        client.send(ApiKey.FETCH, 12, fetch_body(12, [Wanted(topic="t", offset=0)]))

    if is_killed:
        broker.kill()
    broker.stop()
    for client in clients:
        client.socket.close()

    await_true(lambda: open_sockets() <= before)  # those of other threads come and go
