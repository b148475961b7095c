"""Fetches that wait at the end of a log: who is answered from memory, and who goes the long way."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.broker.net.requests.answer import Answer
from cordwood.broker.net.requests.session import Access
from cordwood.log.reading.file_range import FileRange
from cordwood.protocol.acl_codes import AclOperation, AclResource
from cordwood.protocol.api_catalog import ApiKey
from cordwood.security.access.access_event import AccessRequest
from fakes.client_batches import client_batch
from fakes.record_bench import RecordBench
from wire.raw_client import framed, request_header
from wire.record_requests import Wanted, fetch_body, produce_body

CONSUMER, PRODUCER = 0, 1
VERSION = 11
ERROR_AT = 37  # of the partition, in an answer of version 11 for a topic of one letter
LONG_MS = 3_600_000


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[RecordBench]:
    made = RecordBench(tmp_path, {"t": {}}, clients=2)
    yield made
    made.close()


def fetch(
    offset: int = 0,
    *,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    max_wait_ms: int = LONG_MS,
    leader_epoch: int = -1,
) -> bytes:
    wanted = Wanted(topic="t", offset=offset, leader_epoch=leader_epoch)
    body = fetch_body(
        VERSION, [wanted], max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes
    )
    return framed(request_header(ApiKey.FETCH, VERSION, 5) + body)


def produce(*values: bytes) -> bytes:
    body = produce_body(9, [("t", 0, bytes(client_batch(*values)))])
    return framed(request_header(ApiKey.PRODUCE, 9, 1) + body)


def produce_numbered(sequence: int, value: bytes) -> bytes:
    batch = client_batch(value, producer_id=7, producer_epoch=0, sequence=sequence)
    body = produce_body(9, [("t", 0, bytes(batch))])
    return framed(request_header(ApiKey.PRODUCE, 9, 1) + body)


def error_of(answer: bytes) -> int:
    (code,) = struct.unpack_from(">h", answer, ERROR_AT)
    return int(code)


@pytest.fixture
def read_ranges(monkeypatch: pytest.MonkeyPatch) -> list[FileRange]:
    """The ranges of files that were planned: none on the short way."""
    found: list[FileRange] = []
    made = FileRange.__init__

    def note(self: FileRange, *args: object, **named: object) -> None:
        made(self, *args, **named)  # type: ignore[arg-type]
        found.append(self)

    monkeypatch.setattr(FileRange, "__init__", note)
    return found


def test_a_record_is_sent_to_who_waits_for_it_without_reading_a_file(
    bench: RecordBench, read_ranges: list[FileRange]
) -> None:
    before = bench.exchange((CONSUMER, fetch()))

    answer, _ = bench.exchange((PRODUCER, produce(b"paid")))

    assert before == [b"", b""]
    assert answer.endswith(bench.log_bytes()["t-0/00000000000000000000.log"])
    assert read_ranges == []
    assert bench.fetches.waiting_count == 0


def test_everyone_who_waits_at_the_end_gets_the_record(bench: RecordBench) -> None:
    bench.connect(3)
    bench.exchange(*((client, fetch()) for client in (0, 2, 3, 4)))

    first, _, *others = bench.exchange((PRODUCER, produce(b"paid")))

    assert b"paid" in first
    assert others == [first] * 3


def test_the_consumer_and_the_producer_are_answered_in_the_turn_of_the_record(
    bench: RecordBench,
) -> None:
    bench.exchange((CONSUMER, fetch()))

    bench.clients[PRODUCER].sendall(produce(b"paid"))
    bench.loop._turn()

    assert b"paid" in bench.clients[CONSUMER].recv(1000)
    assert bench.clients[PRODUCER].recv(1000)


def test_with_quotas_a_fetch_goes_the_long_way_where_it_is_counted(
    bench: RecordBench, read_ranges: list[FileRange]
) -> None:
    bench.exchange((CONSUMER, fetch()))
    bench.quotas.is_set = True

    answer, _ = bench.exchange((PRODUCER, produce(b"paid")))

    assert b"paid" in answer
    assert len(read_ranges) == 1


def test_a_record_that_must_be_synced_is_sent_after_the_sync_without_reading_a_file(
    tmp_path: Path, read_ranges: list[FileRange]
) -> None:
    bench = RecordBench(tmp_path, {"t": {}}, clients=2, durability="disk")
    bench.exchange((CONSUMER, fetch()))

    bench.clients[PRODUCER].sendall(produce(b"paid"))
    answer = acknowledged = b""
    while not (answer and acknowledged):
        got = bench.exchange()
        assert not got[CONSUMER] or bench.store.topic("t").partition(0).state.durable == 1
        answer, acknowledged = answer + got[CONSUMER], acknowledged + got[PRODUCER]
    bench.close()

    assert b"paid" in answer
    assert read_ranges == []


def test_a_batch_that_was_stored_before_is_not_shown_twice(bench: RecordBench) -> None:
    """A retry of an idempotent producer is in the group, and not where the others are."""
    bench.exchange((PRODUCER, produce_numbered(0, b"one")))
    bench.exchange((CONSUMER, fetch(1)))

    retry, new = produce_numbered(0, b"one"), produce_numbered(1, b"two")
    answer, _ = bench.exchange((PRODUCER, retry + new))

    assert b"one" not in answer
    assert b"two" in answer


def test_records_that_come_another_way_are_read_from_the_file(
    bench: RecordBench, read_ranges: list[FileRange]
) -> None:
    bench.exchange((CONSUMER, fetch()))

    bench.store.topic("t").append(b"paid")
    answer, _ = bench.exchange()

    assert b"paid" in answer
    assert len(read_ranges) == 1


def test_a_fetch_goes_on_waiting_until_there_are_enough_bytes(bench: RecordBench) -> None:
    bench.exchange((CONSUMER, fetch(min_bytes=150)))

    too_few, _ = bench.exchange((PRODUCER, produce(b"one")))
    enough, _ = bench.exchange((PRODUCER, produce(b"two" * 20)))

    assert too_few == b""
    assert b"one" in enough
    assert b"two" in enough


def test_more_than_the_client_takes_goes_the_long_way(
    bench: RecordBench, read_ranges: list[FileRange]
) -> None:
    bench.exchange((CONSUMER, fetch(max_bytes=10)))

    answer, _ = bench.exchange((PRODUCER, produce(b"paid")))

    assert b"paid" in answer  # the first batch is sent whole, however large
    assert len(read_ranges) == 1


def test_when_its_time_is_over_the_answer_is_empty(bench: RecordBench) -> None:
    bench.exchange((CONSUMER, fetch(max_wait_ms=1)))

    while not (answer := bench.exchange()[CONSUMER]):
        pass

    assert error_of(answer) == 0
    assert answer.endswith(bytes(4))
    assert bench.fetches.waiting_count == 0


def test_a_fetch_of_a_client_that_left_waits_no_longer(bench: RecordBench) -> None:
    bench.exchange((CONSUMER, fetch()))
    waiting = bench.fetches.waiting_count

    bench.clients[CONSUMER].shutdown(1)
    bench.turn()

    assert waiting == 1
    assert bench.fetches.waiting_count == 0
    assert bench.connections[CONSUMER].is_closed


def test_when_the_broker_stops_every_fetch_is_answered(bench: RecordBench) -> None:
    bench.exchange((CONSUMER, fetch()))

    bench.fetches.finish_all()
    answer, _ = bench.exchange()

    assert error_of(answer) == 0


def test_a_fetch_of_a_deleted_topic_is_told(bench: RecordBench) -> None:
    bench.exchange((CONSUMER, fetch()))

    bench.store.delete_topic("t")
    answer, _ = bench.exchange()

    assert error_of(answer) != 0
    assert not bench.fetches.soles._logs.by_name


def test_a_fetch_knows_the_topic_that_has_its_name_now(bench: RecordBench) -> None:
    bench.exchange((PRODUCER, produce(b"old")))
    bench.exchange((CONSUMER, fetch(1)))
    bench.store.delete_topic("t")
    bench.exchange()
    bench.store.create_topic("t")

    bench.exchange((CONSUMER, fetch()))
    answer, _ = bench.exchange((PRODUCER, produce(b"new")))

    assert b"new" in answer


def test_a_leader_epoch_that_is_not_the_logs_is_refused(bench: RecordBench) -> None:
    answer, _ = bench.exchange((CONSUMER, fetch(leader_epoch=9)))

    assert error_of(answer) != 0


class NoAccess:
    """A client that may do nothing."""

    is_unlimited = False

    def allows(self, operation: AclOperation, resource: AclResource, name: str) -> bool:
        return False

    def allows_anywhere(self, operation: AclOperation, resource: AclResource) -> bool:
        return False

    def operations(self, resource: AclResource, name: str) -> int:
        return 0

    def report(self, request: AccessRequest, *, is_allowed: bool) -> None: ...


def test_who_may_not_read_any_more_gets_no_record(bench: RecordBench) -> None:
    access: Access = NoAccess()
    bench.exchange((CONSUMER, fetch()))
    bench.restrict(CONSUMER, access)

    answer, _ = bench.exchange((PRODUCER, produce(b"paid")))

    assert b"paid" not in answer
    assert error_of(answer) != 0


def test_who_may_not_read_does_not_wait(bench: RecordBench) -> None:
    bench.restrict(CONSUMER, NoAccess())

    answer, _ = bench.exchange((CONSUMER, fetch()))

    assert error_of(answer) != 0


@pytest.mark.parametrize("client_id", [b"\xff", b"caf\xe9", b"\xed\xa0\x80"])
def test_a_client_id_that_is_not_text_is_refused_before_it_waits(
    bench: RecordBench, client_id: bytes
) -> None:
    header = struct.pack(">hhih", ApiKey.FETCH, VERSION, 5, len(client_id)) + client_id
    body = fetch_body(VERSION, [Wanted(topic="t")], max_wait_ms=LONG_MS)

    bench.exchange((CONSUMER, framed(header + body)))

    assert bench.closed == [True, False]
    assert not bench.fetches.soles.waiting_count


def test_a_fetch_that_fails_on_the_long_way_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = RecordBench(tmp_path, {"t": {}}, clients=3)
    handle = bench.fetches.continue_fetch

    def fail_once(answer: Answer, frame: bytes, *, left_ms: int, is_late: bool = False) -> None:
        if answer.connection is bench.connections[CONSUMER]:
            raise RuntimeError("a bug")
        handle(answer, frame, left_ms=left_ms, is_late=is_late)

    monkeypatch.setattr(bench.fetches, "continue_fetch", fail_once)
    bench.exchange((CONSUMER, fetch()), (2, fetch()))

    _, produced, fetched = bench.exchange((PRODUCER, produce(bytes(20_000))))

    assert bench.closed == [True, False, False]
    assert produced
    assert error_of(fetched) == 0
    bench.close()
