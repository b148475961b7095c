"""Produce, field by field: what is refused and how, what comes back, and what acks mean."""

from collections.abc import Callable, Iterator
from uuid import UUID

import pytest
from kafka.protocol.producer import ProduceResponse

import cordwood
from cordwood.broker.records.produce_handler import ProduceHandler
from cordwood.format.compression import Codec
from cordwood.protocol.api_catalog import API_CATALOG, ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import encode_request
from fakes.client_batches import NOW, client_batch, raw_batch, raw_record
from wire.raw_client import RawClient, framed, request_header
from wire.record_requests import produce, produce_body, receive_produced
from wire.waiting import await_true

BATCH = bytes(client_batch(b"one", b"two", keys=[b"k", b"k"]))
VERSIONS = range(
    API_CATALOG[ApiKey.PRODUCE].min_version, API_CATALOG[ApiKey.PRODUCE].max_version + 1
)
FIRST_WITH_TOPIC_ID = 13


@pytest.fixture
def client(broker: cordwood.Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as connected:
        yield connected


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_answered_with_the_offset(
    broker: cordwood.Broker, client: RawClient, topic: str, version: int
) -> None:
    name = broker.store.topic(topic).topic_id if version >= FIRST_WITH_TOPIC_ID else topic

    first = produce(client, name, BATCH, version=version)
    second = produce(client, name, BATCH, version=version)

    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (0, 2)
    assert version < 5 or second.log_start_offset == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_with_log_append_time_the_answer_says_when(
    broker: cordwood.Broker, client: RawClient, make_topic: Callable[..., str], version: int
) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    name = broker.store.topic(topic).topic_id if version >= FIRST_WITH_TOPIC_ID else topic

    answer = produce(client, name, BATCH, version=version)

    (first, _) = broker.store.topic(topic).partition(0).read(0)
    assert answer.log_append_time_ms == first.timestamp_ms
    assert answer.log_append_time_ms > NOW


def test_topics_that_come_and_go_leave_nothing_behind_in_the_broker(
    broker: cordwood.Broker, client: RawClient
) -> None:
    handler = broker._running()._router._frame_handlers[ApiKey.PRODUCE]
    assert isinstance(handler, ProduceHandler)
    lanes = handler._lanes
    store = broker.store
    before = len(lanes._lanes)
    for _ in range(5):
        topic_id = store.create_topic("comes-and-goes").topic_id
        assert produce(client, "comes-and-goes", BATCH).base_offset == 0
        assert produce(client, topic_id, BATCH, version=13).base_offset == 2
        store.delete_topic("comes-and-goes")

    await_true(lambda: len(lanes._lanes) <= before)
    known = lanes._lanes
    remembered = {lane.log for table in (known.by_name, known.by_id) for lane in table.values()}
    assert not any(log.is_closed for log in {*remembered, *lanes._watch._watches})


def test_the_answer_says_where_the_log_starts(
    broker: cordwood.Broker, client: RawClient, topic: str
) -> None:
    produce(client, topic, BATCH)
    broker.store.topic(topic).partition(0).delete_before(2)

    assert produce(client, topic, BATCH).log_start_offset == 2


# --- what is refused ----------------------------------------------------------------------------

REFUSED = {
    "nothing": (b"", ErrorCode.invalid_record),
    "null": (None, ErrorCode.invalid_record),
    "two batches": (BATCH * 2, ErrorCode.invalid_record),
    "a wrong checksum": (bytes(client_batch(b"x")[:-1]) + b"\x7f", ErrorCode.corrupt_message),
    "noise": (bytes(range(200)), ErrorCode.invalid_record),
    "half a header": (BATCH[:40], ErrorCode.corrupt_message),
    "format 1": (
        bytes(raw_batch(raw_record(), magic=1)),
        ErrorCode.invalid_record,
    ),
    "a control batch": (
        bytes(raw_batch(raw_record(), attributes=0x20, producer_id=1, producer_epoch=0)),
        ErrorCode.invalid_record,
    ),
    "fewer records than it says": (
        bytes(raw_batch(raw_record(), count=2)),
        ErrorCode.invalid_record,
    ),
    "compressed noise": (
        bytes(raw_batch(b"this is not lz4", attributes=Codec.LZ4)),
        ErrorCode.invalid_record,
    ),
    "an unknown codec": (bytes(raw_batch(raw_record(), attributes=5)), None),
    "a record larger than the batch": (
        bytes(raw_batch(raw_record(size=1000))),
        ErrorCode.invalid_record,
    ),
    "a time in the far future": (
        bytes(client_batch(b"x", timestamps=[NOW * 10])),
        ErrorCode.invalid_timestamp,
    ),
    "too large a batch": (bytes(client_batch(bytes(20_000))), ErrorCode.message_too_large),
}


@pytest.mark.parametrize("version", [3, 7, 8, 12], ids=lambda version: f"v{version}")
@pytest.mark.parametrize(("records", "code"), REFUSED.values(), ids=REFUSED)
def test_records_that_break_a_rule_are_refused_and_the_connection_lives(
    broker: cordwood.Broker,
    client: RawClient,
    make_topic: Callable[..., str],
    records: bytes | None,
    code: ErrorCode | None,
    version: int,
) -> None:
    topic = make_topic(max_message_bytes=10_000)

    answer = produce(client, topic, records, version=version)

    assert answer.error_code != 0
    assert code is None or ErrorCode(answer.error_code) is code
    assert answer.base_offset == -1
    assert version < 8 or answer.error_message
    assert broker.store.topic(topic).partition(0).end_offset == 0
    assert produce(client, topic, BATCH, version=version).base_offset == 0


def test_records_without_a_key_are_named_where_keys_are_needed(
    client: RawClient, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(cleanup_policy="compact")
    batch = client_batch(b"a", b"b", b"c", keys=[b"k", None, None])

    answer = produce(client, topic, bytes(batch))

    assert ErrorCode(answer.error_code) is ErrorCode.invalid_record
    assert [error.batch_index for error in answer.record_errors] == [1, 2]


def test_zstd_is_refused_in_versions_that_do_not_know_it(client: RawClient, topic: str) -> None:
    batch = bytes(client_batch(b"x" * 100, codec=Codec.ZSTD))

    old, new = (produce(client, topic, batch, version=version) for version in (6, 7))

    assert ErrorCode(old.error_code) is ErrorCode.unsupported_compression_type
    assert new.error_code == 0


def test_topics_that_are_not_there_or_not_for_clients_are_refused(
    broker: cordwood.Broker, client: RawClient, topic: str, names: Iterator[str]
) -> None:
    broker.store.offsets_topic.ensure()
    unknown_id = type(broker.store.topic(topic).topic_id)(int=7)

    def code(name: object, **options: int) -> ErrorCode:
        return ErrorCode(produce(client, name, BATCH, **options).error_code)  # type: ignore[arg-type]

    assert code(next(names)) is ErrorCode.unknown_topic_or_partition
    assert code(topic, partition=1) is ErrorCode.unknown_topic_or_partition
    assert code(topic, partition=-1) is ErrorCode.unknown_topic_or_partition
    assert code(unknown_id, version=13) is ErrorCode.unknown_topic_id
    assert code("__consumer_offsets") is ErrorCode.invalid_topic_exception


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_that_mean_nothing_are_refused(client: RawClient, topic: str, acks: int) -> None:
    answer = produce(client, topic, BATCH, acks=acks)

    assert ErrorCode(answer.error_code) is ErrorCode.invalid_required_acks


def test_a_transactional_batch_without_a_transactional_id_is_refused(
    client: RawClient, topic: str
) -> None:
    batch = bytes(client_batch(b"x", producer_id=1, sequence=0, transactional=True))
    client.send(ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, batch)]))

    (answer,) = receive_produced(client, 9).responses
    code = ErrorCode(answer.partition_responses[0].error_code)
    assert code is ErrorCode.transactional_id_authorization_failed


def test_a_transactional_batch_of_a_producer_without_a_coordinator_is_refused(
    client: RawClient, topic: str
) -> None:
    batch = bytes(client_batch(b"x", producer_id=1, sequence=0, transactional=True))
    client.send(ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, batch)], transactional_id="t"))

    (answer,) = receive_produced(client, 9).responses
    code = ErrorCode(answer.partition_responses[0].error_code)
    assert code is ErrorCode.invalid_producer_id_mapping


def test_each_partition_of_a_request_is_answered_for_itself(
    client: RawClient, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=2)
    parts = [(topic, 0, BATCH), (topic, 7, BATCH), (topic, 1, b"nonsense" * 20), (topic, 1, BATCH)]
    client.send(ApiKey.PRODUCE, 9, produce_body(9, parts))

    answers = [
        (part.index, part.error_code != 0, part.base_offset)
        for topic_answer in receive_produced(client, 9).responses
        for part in topic_answer.partition_responses
    ]
    assert answers == [(0, False, 0), (7, True, -1), (1, True, -1), (1, False, 0)]


def test_a_batch_of_exactly_the_largest_size_is_taken(
    client: RawClient, make_topic: Callable[..., str]
) -> None:
    largest = bytes(client_batch(bytes(5000)))
    topic = make_topic(max_message_bytes=len(largest))

    taken = produce(client, topic, largest)
    refused = produce(client, topic, bytes(client_batch(bytes(5001))))

    assert taken.error_code == 0
    assert ErrorCode(refused.error_code) is ErrorCode.message_too_large


def test_a_disk_without_room_is_told() -> None:
    with (
        cordwood.Broker(topics=["t"], config={"log.dir.free.bytes.min": 1 << 60}) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        broker.store.maintain()

        answer = produce(client, "t", BATCH)

        assert ErrorCode(answer.error_code) is ErrorCode.kafka_storage_error
        assert client.is_answered()


# --- what changes meanwhile ---------------------------------------------------------------------


def test_a_topic_that_is_deleted_and_created_anew_starts_anew(
    broker: cordwood.Broker, client: RawClient, topic: str
) -> None:
    first = produce(client, topic, BATCH)
    broker.store.delete_topic(topic)
    gone = produce(client, topic, BATCH)
    broker.create_topic(topic)

    assert first.base_offset == 0
    assert ErrorCode(gone.error_code) is ErrorCode.unknown_topic_or_partition
    assert [produce(client, topic, BATCH).base_offset for _ in range(2)] == [0, 2]


def test_a_change_of_configuration_holds_from_the_next_batch_on(
    broker: cordwood.Broker, client: RawClient, topic: str
) -> None:
    def code() -> ErrorCode:
        return ErrorCode(produce(client, topic, bytes(client_batch(bytes(500)))).error_code)

    before = code()
    broker.store.alter_topic(topic, config={"max.message.bytes": 100})
    small = code()
    broker.store.alter_topic(topic, config={"max.message.bytes": None})

    assert (before, small, code()) == (
        ErrorCode.none,
        ErrorCode.message_too_large,
        ErrorCode.none,
    )


# --- acks 0 -------------------------------------------------------------------------------------


def test_without_acks_there_is_no_answer(
    broker: cordwood.Broker, client: RawClient, topic: str
) -> None:
    for _ in range(3):
        client.send(ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, BATCH)], acks=0))
    client.send(ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, BATCH)] * 2, acks=0))
    sent = client.send(ApiKey.METADATA, 9, encode_request(ApiKey.METADATA, 9, {"topics": []}))

    assert client.receive(ApiKey.METADATA, 9)[0] == sent
    assert broker.store.topic(topic).partition(0).end_offset == 10


@pytest.mark.parametrize("is_first", [True, False])
def test_without_acks_an_error_closes_the_connection(
    client: RawClient, topic: str, is_first: bool
) -> None:
    if not is_first:
        produce(client, topic, BATCH)

    client.send(ApiKey.PRODUCE, 9, produce_body(9, [(topic, 5, BATCH)], acks=0))

    assert client.is_closed_by_broker()


# --- idempotence --------------------------------------------------------------------------------


def numbered(sequence: int, *, producer_id: int = 77, epoch: int = 0, count: int = 2) -> bytes:
    batch = client_batch(
        *[b"%d" % number for number in range(count)],
        producer_id=producer_id,
        producer_epoch=epoch,
        sequence=sequence,
    )
    return bytes(batch)


@pytest.mark.parametrize("parts", [1, 2], ids=["alone", "with others"])
def test_a_batch_that_comes_again_is_answered_as_the_first_and_not_stored(
    broker: cordwood.Broker, client: RawClient, make_topic: Callable[..., str], parts: int
) -> None:
    topic = make_topic(partitions=2)

    def send(records: bytes) -> tuple[int, int]:
        both = [(topic, 0, records), (topic, 1, BATCH)][:parts]
        client.send(ApiKey.PRODUCE, 9, produce_body(9, both))
        first = receive_produced(client, 9).responses[0].partition_responses[0]
        return first.error_code, first.base_offset

    answers = [send(numbered(sequence)) for sequence in (0, 2, 4, 6, 8, 0, 4, 8)]

    assert answers == [(0, 0), (0, 2), (0, 4), (0, 6), (0, 8), (0, 0), (0, 4), (0, 8)]
    assert broker.store.topic(topic).partition(0).end_offset == 10


def test_a_gap_and_an_old_epoch_are_refused(client: RawClient, topic: str) -> None:
    def code(sequence: int, epoch: int) -> ErrorCode:
        return ErrorCode(produce(client, topic, numbered(sequence, epoch=epoch)).error_code)

    assert code(0, 1) is ErrorCode.none
    assert code(4, 1) is ErrorCode.out_of_order_sequence_number
    assert code(2, 0) is ErrorCode.invalid_producer_epoch
    assert code(2, 1) is ErrorCode.none
    assert code(0, 2) is ErrorCode.none


def test_pipelined_batches_of_one_producer_are_taken_in_their_order(
    broker: cordwood.Broker, client: RawClient, topic: str
) -> None:
    for sequence in range(0, 100, 2):
        client.send(ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, numbered(sequence))]))

    answers = [receive_produced(client, 9).responses[0].partition_responses[0] for _ in range(50)]
    assert [answer.error_code for answer in answers] == [0] * 50
    assert [answer.base_offset for answer in answers] == list(range(0, 100, 2))
    assert broker.store.topic(topic).partition(0).end_offset == 100


def test_requests_that_come_together_are_answered_in_their_order(
    broker: cordwood.Broker, client: RawClient, make_topic: Callable[..., str]
) -> None:
    """By name and by id, small and large, for two partitions, with one that is refused."""
    topic = make_topic(partitions=2)
    topic_id = broker.store.topic(topic).topic_id
    large = bytes(client_batch(b"x" * 150_000))
    requests: list[tuple[int, str | UUID, int, bytes]] = [
        (9, topic, 0, BATCH),
        (13, topic_id, 0, BATCH),
        (9, topic, 1, large),
        (9, topic, 0, large),
        (13, topic_id, 0, BATCH[:-1] + b"?"),
        (13, topic_id, 0, large),
        (9, topic, 1, BATCH),
        (9, topic, 0, BATCH),
    ]
    sent = b""
    for number, (version, name, partition, records) in enumerate(requests):
        body = produce_body(version, [(name, partition, records)])
        sent += framed(request_header(ApiKey.PRODUCE, version, number) + body)

    client.send_bytes(sent)
    answers = [_answer(client, number, requests[number][0]) for number in range(len(requests))]

    refused = ErrorCode.corrupt_message
    assert answers == [(0, 0), (0, 2), (0, 0), (0, 4), (refused, -1), (0, 5), (0, 1), (0, 6)]


def _answer(client: RawClient, number: int, version: int) -> tuple[int, int]:
    """The error code and the base offset in the next answer, which must be the one expected."""
    correlation_id, body = client.receive(ApiKey.PRODUCE, version)
    assert correlation_id == number
    part = ProduceResponse.decode(body, version=version).responses[0].partition_responses[0]
    return part.error_code, part.base_offset


def test_producer_ids_are_given_once(broker: cordwood.Broker, client: RawClient) -> None:
    request = {"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1,
               "producer_epoch": -1}  # fmt: skip

    answers = [client.call(ApiKey.INIT_PRODUCER_ID, 4, request) for _ in range(20)]

    assert all(answer.error_code == 0 for answer in answers)
    assert len({answer.producer_id for answer in answers}) == 20
