"""Clients that leave: what has arrived whole is carried out, and their places become free."""

import contextlib
import fcntl
import socket
import struct
import termios

import pytest

import cordwood
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import encode_request
from fakes.client_batches import client_batch
from wire.raw_client import RawClient, framed, request_header
from wire.record_requests import Wanted, fetch_body, produce_body
from wire.waiting import await_true

ONE = bytes(client_batch(b"one"))
KIB = 1024
PARTING = ["closed", "half-closed", "reset"]


def part(client: RawClient, how: str) -> None:
    if how == "half-closed":
        client.socket.shutdown(socket.SHUT_WR)
        while client.socket.recv(65536):
            pass
        client.socket.close()
    elif how == "closed":
        client.socket.close()
    else:
        await_true(lambda: unsent_bytes(client.socket) == 0)  # a reset discards what is not sent
        client.reset()


def unsent_bytes(connected: socket.socket) -> int:
    """Bytes that the other side has not acknowledged yet."""
    (count,) = struct.unpack("i", fcntl.ioctl(connected, termios.TIOCOUTQ, bytes(4)))
    return int(count)


def stored(broker: cordwood.Broker, topic: str) -> int:
    return int(broker.store.topic(topic).partition(0).end_offset)


@pytest.mark.parametrize("how", PARTING)
@pytest.mark.parametrize("acks", [0, -1])
def test_every_produce_sent_before_leaving_is_stored(
    broker: cordwood.Broker, topic: str, acks: int, how: str
) -> None:
    count = 3000
    client = RawClient(broker.bootstrap_servers)
    request = framed(
        request_header(ApiKey.PRODUCE, 9, 1) + produce_body(9, [(topic, 0, ONE)], acks=acks)
    )
    if acks:
        # Its answers are not read, so the broker stops taking requests once the socket is full.
        count = 500
    client.send_bytes(request * count)

    part(client, how)

    await_true(lambda: stored(broker, topic) == count)


@pytest.mark.parametrize("how", PARTING)
def test_produces_behind_a_fetch_that_waits_are_stored_and_the_fetch_waits_no_longer(
    broker: cordwood.Broker, topic: str, how: str
) -> None:
    server = broker._running()
    before = server.connection_count
    client = RawClient(broker.bootstrap_servers)
    client.send(ApiKey.FETCH, 12, fetch_body(12, [Wanted(topic=topic)], max_wait_ms=600_000))
    await_true(lambda: server.fetches.waiting_count == 1)
    client.send(ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, ONE)]))
    client.send(ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, ONE)]))

    part(client, how)

    await_true(lambda: stored(broker, topic) == 2)
    await_true(lambda: server.connection_count <= before)


@pytest.mark.parametrize("how", PARTING)
def test_a_large_produce_behind_a_fetch_is_stored(
    broker: cordwood.Broker, topic: str, how: str
) -> None:
    """More than the broker reads while the fetch waits: it finds out later that the client left."""
    client = RawClient(broker.bootstrap_servers)
    client.send(ApiKey.FETCH, 12, fetch_body(12, [Wanted(topic=topic)], max_wait_ms=300))
    large = bytes(client_batch(b"x" * 200 * KIB))
    client.send(ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, large)]))
    client.send(ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, ONE)]))

    part(client, how)

    await_true(lambda: stored(broker, topic) == 2)


@pytest.mark.parametrize("how", PARTING)
def test_a_member_that_commits_and_leaves_before_it_closes_is_gone(
    broker: cordwood.Broker, topic: str, how: str
) -> None:
    join = {
        "group_id": "g",
        "session_timeout": 600_000,
        "rebalance_timeout": 600_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    client = RawClient(broker.bootstrap_servers)
    joined = client.call(ApiKey.JOIN_GROUP, 0, join)
    member = {"group_id": "g", "member_id": joined.member_id}
    synced = {**member, "generation_id": joined.generation_id, "assignments": []}
    client.call(ApiKey.SYNC_GROUP, 0, synced)
    commit = {
        **member,
        "generation_id_or_member_epoch": joined.generation_id,
        "topics": [{"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 7}]}],
    }

    client.send(ApiKey.OFFSET_COMMIT, 5, encode_request(ApiKey.OFFSET_COMMIT, 5, commit))
    client.send(ApiKey.LEAVE_GROUP, 0, encode_request(ApiKey.LEAVE_GROUP, 0, member))
    part(client, how)

    with RawClient(broker.bootstrap_servers) as other:

        def is_empty() -> bool:
            described = other.call(ApiKey.DESCRIBE_GROUPS, 0, {"groups": ["g"]})
            return bool(described.groups[0].group_state == "Empty")

        await_true(is_empty)
    assert broker.store.committed_offsets.of_group("g")[topic, 0].offset == 7


# --- moving to the data loop ---------------------------------------------------------------------


PRODUCES = 1400  # more than 128 KiB: the broker stops listening before the topic exists


def create_and_produce(name: str) -> bytes:
    """CreateTopics, and produces behind it."""
    created = {"topics": [{"name": name, "num_partitions": 1, "replication_factor": 1}]}
    header = request_header(ApiKey.CREATE_TOPICS, 4, 1)
    produced = framed(request_header(ApiKey.PRODUCE, 7, 2) + produce_body(7, [(name, 0, ONE)]))
    assert len(produced) * PRODUCES > 128 * KIB
    return framed(header + encode_request(ApiKey.CREATE_TOPICS, 4, created)) + produced * PRODUCES


def test_produces_pipelined_behind_the_creation_of_their_topic_are_answered() -> None:
    with cordwood.Broker(config={"max.connections": 10}) as broker:
        server = broker._running()
        for number in range(20):
            with RawClient(broker.bootstrap_servers) as client:
                client.send_bytes(create_and_produce(f"t{number}"))
                client.receive(ApiKey.CREATE_TOPICS, 4)
                for _ in range(PRODUCES):
                    assert client.receive(ApiKey.PRODUCE, 7)[0] == 2
            await_true(lambda: server.connection_count == 0)


def test_connections_that_move_and_break_leave_their_places_free() -> None:
    with cordwood.Broker(config={"max.connections": 10}) as broker:
        server = broker._running()
        for number in range(40):
            client = RawClient(broker.bootstrap_servers)
            with contextlib.suppress(ConnectionError):  # refused: ten others are still served
                client.send_bytes(create_and_produce(f"t{number % 4}"))
            if number % 2:
                client.reset()
            else:
                client.socket.close()

        await_true(lambda: is_served(broker))  # some may be in the queue of the listener still
        await_true(lambda: server.connection_count == 0)


def is_served(broker: cordwood.Broker) -> bool:
    with contextlib.suppress(ConnectionError), RawClient(broker.bootstrap_servers) as client:
        return client.is_answered()
    return False
