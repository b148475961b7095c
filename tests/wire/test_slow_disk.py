"""A disk that hangs: who waits for it waits, and nobody else does."""

import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.server import BrokerServer
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.store import Store, StoreSetup
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import decode_response, encode_request
from fakes.client_batches import client_batch
from fakes.gated_fs import GatedFileSystem
from wire.raw_client import RawClient
from wire.record_requests import (
    Wanted,
    fetch,
    fetch_body,
    produce,
    produce_body,
    receive_fetched,
    receive_produced,
)

BATCH = bytes(client_batch(b"one", b"two"))


class SlowBroker:
    """A broker whose topic "slow" lies on a disk behind gates; "quick" does not."""

    def __init__(self, directory: Path) -> None:
        self.fs = GatedFileSystem("slow-0")
        setup = StoreSetup(fs=self.fs, defaults=TopicConfig(durability="disk"), free_bytes_min=0)
        self.store = Store([str(directory / "1"), str(directory / "2")], setup)
        for name in ("slow", "quick"):  # each gets a directory of its own
            self.store.create_topic(name)
        config = BrokerConfig(port=0, group_min_session_timeout_ms=100)
        self.server = BrokerServer(self.store, config, owns_store=True)
        self.server.start()

    @property
    def address(self) -> str:
        host, port = self.server.address
        return f"{host}:{port}"


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[SlowBroker]:
    broker = SlowBroker(tmp_path / "data")
    yield broker
    broker.fs.writes.open()
    broker.fs.syncs.open()
    broker.server.stop()


@pytest.fixture
def client(slow: SlowBroker) -> Iterator[RawClient]:
    with RawClient(slow.address) as connected:
        yield connected


@pytest.fixture
def other(slow: SlowBroker) -> Iterator[RawClient]:
    with RawClient(slow.address) as connected:
        yield connected


def send_produce(client: RawClient, topic: str) -> None:
    client.send(ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, BATCH)]))


def error_of(client: RawClient) -> int:
    (answer,) = receive_produced(client, 9).responses
    code: int = answer.partition_responses[0].error_code
    return code


def join_group(client: RawClient, group: str) -> tuple[str, int]:
    """Become the one member of a group; return its id and the generation."""
    request = {
        "group_id": group,
        "session_timeout": 60_000,
        "rebalance_timeout": 60_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    first = client.call(ApiKey.JOIN_GROUP, 5, request)
    joined = client.call(ApiKey.JOIN_GROUP, 5, {**request, "member_id": first.member_id})
    assert joined.error_code == 0
    synced = client.call(
        ApiKey.SYNC_GROUP,
        3,
        {
            "group_id": group,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "assignments": [{"member_id": joined.member_id, "assignment": b""}],
        },
    )
    assert synced.error_code == 0
    return joined.member_id, joined.generation_id


def test_heartbeats_and_metadata_are_answered_while_a_write_hangs(
    slow: SlowBroker, client: RawClient, other: RawClient
) -> None:
    member_id, generation = join_group(other, "g")
    heartbeat = {"group_id": "g", "generation_id": generation, "member_id": member_id}

    with slow.fs.writes.closed() as gate:
        send_produce(client, "slow")
        gate.await_someone()
        for _ in range(3):
            assert other.call(ApiKey.HEARTBEAT, 3, heartbeat).error_code == 0
            assert len(other.call(ApiKey.METADATA, 9, {"topics": None}).topics) >= 2
            assert other.call(ApiKey.FIND_COORDINATOR, 2, {"key": "g"}).error_code == 0
        with RawClient(slow.address) as new:
            assert new.is_answered()

    assert error_of(client) == 0


def test_while_a_sync_hangs_other_topics_are_written_and_read(
    slow: SlowBroker, client: RawClient, other: RawClient
) -> None:
    with slow.fs.syncs.closed() as gate:
        send_produce(client, "slow")
        gate.await_someone()

        assert produce(other, "quick", BATCH).error_code == 0
        (answer,) = fetch(other, [Wanted(topic="quick")]).responses
        assert answer.partitions[0].high_watermark == 2

    assert error_of(client) == 0


def test_records_are_not_shown_before_they_are_on_the_disk(
    slow: SlowBroker, client: RawClient, other: RawClient
) -> None:
    with slow.fs.syncs.closed() as gate:
        send_produce(client, "slow")
        gate.await_someone()

        (before,) = fetch(other, [Wanted(topic="slow")]).responses
        assert before.partitions[0].high_watermark == 0
        assert not before.partitions[0].records

    assert error_of(client) == 0
    (after,) = fetch(other, [Wanted(topic="slow")]).responses
    assert after.partitions[0].high_watermark == 2


def test_acks_of_one_are_given_when_the_kernel_has_the_records(
    slow: SlowBroker, client: RawClient, other: RawClient
) -> None:
    with slow.fs.syncs.closed() as gate:
        assert produce(client, "slow", BATCH, acks=1).error_code == 0
        gate.await_someone()

        send_produce(other, "slow")

        assert produce(client, "slow", BATCH, acks=1).base_offset > 0

    assert error_of(other) == 0


LOOKUPS = {"latest": (-1, 2), "by time": (0, 0), "largest time": (-3, 0)}


def send_lookup(client: RawClient, time: int) -> None:
    wanted = {"partition_index": 0, "timestamp": time}
    request = {"replica_id": -1, "topics": [{"name": "slow", "partitions": [wanted]}]}
    client.send(ApiKey.LIST_OFFSETS, 7, encode_request(ApiKey.LIST_OFFSETS, 7, request))


def is_kept_waiting(client: RawClient) -> bool:
    """Whether no answer comes for some time."""
    return not select.select([client.socket], [], [], 0.1)[0]


def found_offset(client: RawClient) -> tuple[int, int]:
    _, body = client.receive(ApiKey.LIST_OFFSETS, 7)
    (topic,) = decode_response(ApiKey.LIST_OFFSETS, 7, body).topics
    return topic.partitions[0].error_code, topic.partitions[0].offset


@pytest.mark.parametrize(("time", "offset"), LOOKUPS.values(), ids=LOOKUPS)
@pytest.mark.parametrize("parts", [1, 2], ids=["alone", "with others"])
@pytest.mark.parametrize("acks", [0, 1])
def test_a_lookup_counts_records_that_were_acknowledged_before_it(
    slow: SlowBroker, client: RawClient, acks: int, parts: int, time: int, offset: int
) -> None:
    body = produce_body(9, [("slow", 0, BATCH), ("quick", 0, BATCH)][:parts], acks=acks)
    with slow.fs.syncs.closed() as gate:
        client.send(ApiKey.PRODUCE, 9, body)
        if acks:
            assert len(receive_produced(client, 9).responses) == parts
        gate.await_someone()
        send_lookup(client, time)
        assert is_kept_waiting(client)

    assert found_offset(client) == (ErrorCode.none, offset)


def test_a_lookup_does_not_wait_for_records_that_nobody_acknowledged(
    slow: SlowBroker, client: RawClient, other: RawClient
) -> None:
    with slow.fs.syncs.closed() as gate:
        send_produce(client, "slow")
        gate.await_someone()
        send_lookup(other, -1)

        assert found_offset(other) == (ErrorCode.none, 0)

    assert error_of(client) == 0


def test_a_lookup_that_waits_holds_up_no_other(
    slow: SlowBroker, client: RawClient, other: RawClient
) -> None:
    new = {"name": "new", "num_partitions": 1, "replication_factor": 1}
    waiting = [RawClient(slow.address) for _ in range(BrokerConfig(port=0).num_io_threads + 1)]
    try:
        with slow.fs.syncs.closed():
            assert produce(client, "slow", BATCH, acks=1).error_code == 0
            for each in waiting:
                send_lookup(each, -1)

            assert other.call(ApiKey.CREATE_TOPICS, 5, {"topics": [new]}).topics[0].error_code == 0

        assert [found_offset(each) for each in waiting] == [(ErrorCode.none, 2)] * len(waiting)
    finally:
        for each in waiting:
            each.socket.close()


def test_a_lookup_ends_with_an_error_if_acknowledged_records_cannot_be_synced(
    slow: SlowBroker, client: RawClient
) -> None:
    slow.fs.syncs.error = OSError(5, "Input/output error")
    with slow.fs.syncs.closed() as gate:
        assert produce(client, "slow", BATCH, acks=1).error_code == 0
        send_lookup(client, -1)
        gate.await_someone()
        assert is_kept_waiting(client)

    assert found_offset(client)[0] == ErrorCode.kafka_storage_error
    slow.fs.syncs.error = None


def test_a_fetch_that_does_not_wait_finds_records_that_were_acknowledged_before_it(
    slow: SlowBroker, client: RawClient
) -> None:
    with slow.fs.syncs.closed() as gate:
        assert produce(client, "slow", BATCH, acks=1).error_code == 0
        client.send(ApiKey.FETCH, 12, fetch_body(12, [Wanted(topic="slow")], max_wait_ms=0))
        gate.await_someone()
        assert is_kept_waiting(client)

    (answer,) = receive_fetched(client, 12).responses
    assert answer.partitions[0].high_watermark == 2
    assert answer.partitions[0].records


def test_records_that_were_acknowledged_can_be_deleted(slow: SlowBroker, client: RawClient) -> None:
    wanted = [{"name": "slow", "partitions": [{"partition_index": 0, "offset": -1}]}]
    request = {"topics": wanted, "timeout": 1000}
    with slow.fs.syncs.closed() as gate:
        assert produce(client, "slow", BATCH, acks=1).error_code == 0
        body = encode_request(ApiKey.DELETE_RECORDS, 2, request)
        client.send(ApiKey.DELETE_RECORDS, 2, body)
        gate.await_someone()
        assert is_kept_waiting(client)

    _, answer = client.receive(ApiKey.DELETE_RECORDS, 2)
    (topic,) = decode_response(ApiKey.DELETE_RECORDS, 2, answer).topics
    assert topic.partitions[0].low_watermark == 2


def test_a_large_request_that_waits_for_the_disk_holds_up_no_other_large_one(
    slow: SlowBroker, client: RawClient, other: RawClient
) -> None:
    partitions = [{"partition_index": number, "offset": -1} for number in range(1000)]
    deletion = {"topics": [{"name": "slow", "partitions": partitions}], "timeout": 1000}
    groups = [f"group-{number}" for number in range(2000)]
    with slow.fs.syncs.closed() as gate:
        assert produce(client, "slow", BATCH, acks=1).error_code == 0
        gate.await_someone()
        client.send(ApiKey.DELETE_RECORDS, 2, encode_request(ApiKey.DELETE_RECORDS, 2, deletion))
        assert is_kept_waiting(client)
        other.socket.settimeout(10)

        assert len(other.call(ApiKey.DESCRIBE_GROUPS, 5, {"groups": groups}).groups) == 2000

    _, answer = client.receive(ApiKey.DELETE_RECORDS, 2)
    (topic,) = decode_response(ApiKey.DELETE_RECORDS, 2, answer).topics
    assert topic.partitions[0].low_watermark == 2


@pytest.mark.parametrize("parts", [1, 2], ids=["alone", "with others"])
def test_a_produce_that_the_disk_keeps_waiting_is_answered_in_its_time(
    slow: SlowBroker, client: RawClient, parts: int
) -> None:
    body = produce_body(9, [("slow", 0, BATCH)] * parts, timeout_ms=200)
    with slow.fs.syncs.closed():
        client.send(ApiKey.PRODUCE, 9, body)

        codes = [
            part.error_code
            for topic in receive_produced(client, 9).responses
            for part in topic.partition_responses
        ]
        assert codes == [7] * parts  # REQUEST_TIMED_OUT

    assert produce(client, "slow", BATCH).error_code == 0


def test_one_sync_answers_all_who_wait_for_it(slow: SlowBroker) -> None:
    clients = [RawClient(slow.address) for _ in range(20)]
    try:
        with slow.fs.syncs.closed() as gate:
            for client in clients:
                send_produce(client, "slow")
            gate.await_someone()

        assert [error_of(client) for client in clients] == [0] * 20
    finally:
        for client in clients:
            client.socket.close()


def test_a_client_that_leaves_while_the_disk_works_leaves_its_records(
    slow: SlowBroker, client: RawClient, other: RawClient
) -> None:
    with slow.fs.syncs.closed() as gate:
        send_produce(client, "slow")
        gate.await_someone()
        client.socket.close()

        assert other.is_answered()

    assert produce(other, "slow", BATCH).base_offset == 2


def test_after_a_sync_that_failed_nothing_is_acknowledged_and_other_topics_go_on(
    slow: SlowBroker, client: RawClient, other: RawClient
) -> None:
    assert produce(client, "slow", BATCH).error_code == 0
    slow.fs.syncs.error = OSError(5, "Input/output error")

    with slow.fs.syncs.closed() as gate:
        send_produce(client, "slow")
        gate.await_someone()
    waiting = error_of(client)
    slow.fs.syncs.error = None
    after = produce(client, "slow", BATCH)

    assert waiting == ErrorCode.kafka_storage_error
    assert after.error_code == ErrorCode.kafka_storage_error
    assert produce(other, "quick", BATCH).error_code == 0
    (kept,) = fetch(other, [Wanted(topic="slow")]).responses
    assert (kept.partitions[0].error_code, kept.partitions[0].high_watermark) == (0, 2)
