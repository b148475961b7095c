"""Small produces that come in the same turn: one append for all, each with its own answer."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.broker.net.connections.client_connection import ClientConnection
from cordwood.broker.net.requests.answer import Answer
from cordwood.broker.net.rows.answer_row import AnswerRow
from cordwood.format.compression import Codec
from cordwood.log.partition.appends.client_batches import ClientBatches
from cordwood.log.partition.writing.log_sync import SyncUnderWay
from cordwood.log.rules.batch_group import BatchGroup
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from fakes.client_batches import client_batch
from fakes.record_bench import RecordBench
from wire.raw_client import framed, request_header
from wire.record_requests import produce_body

CLIENTS = 20
VERSION = 9
# In an answer of version 9 for a topic of one letter: size, correlation id, tags, topics, name,
# partitions, index; then the error and the base offset.
ERROR_AT = 4 + 4 + 1 + 1 + 2 + 1 + 4


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[RecordBench]:
    made = RecordBench(tmp_path, {"t": {}, "u": {}}, clients=CLIENTS)
    yield made
    made.close()


@pytest.fixture
def durable_bench(tmp_path: Path) -> Iterator[RecordBench]:
    """Where produces wait for the disk."""
    made = RecordBench(tmp_path, {"t": {}, "u": {}}, clients=CLIENTS, durability="disk")
    yield made
    made.close()


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of batches in each group that was appended."""
    found: list[int] = []
    append_group = ClientBatches.append_group

    def note(self: ClientBatches, group: BatchGroup, **named: object) -> object:
        found.append(len(group))
        return append_group(self, group, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(ClientBatches, "append_group", note)
    return found


def produce(value: bytes, topic: str = "t", *, acks: int = -1, **batch: object) -> bytes:
    records = bytes(client_batch(value, **batch))  # type: ignore[arg-type]
    body = produce_body(VERSION, [(topic, 0, records)], acks=acks)
    return framed(request_header(ApiKey.PRODUCE, VERSION, 1) + body)


def placed(answer: bytes) -> int:
    """The base offset in an answer without an error."""
    code, base_offset = struct.unpack_from(">hq", answer, ERROR_AT)
    assert code == 0
    return int(base_offset)


def values(bench: RecordBench, topic: str = "t") -> list[bytes | None]:
    return [record.value for record in bench.store.topic(topic).partition(0).read(0)]


def test_produces_of_one_turn_are_appended_together(bench: RecordBench, groups: list[int]) -> None:
    answers = bench.exchange(*((client, produce(b"%d" % client)) for client in range(CLIENTS)))

    assert groups == [CLIENTS]
    order = [placed(answer) for answer in answers]
    assert sorted(order) == list(range(CLIENTS))
    assert [values(bench)[base] for base in order] == [b"%d" % each for each in range(CLIENTS)]


def test_each_log_gets_its_own(bench: RecordBench, groups: list[int]) -> None:
    bench.exchange(*((client, produce(b"v", "tu"[client % 2])) for client in range(CLIENTS)))

    assert sorted(groups) == [CLIENTS // 2, CLIENTS // 2]
    assert len(values(bench, "t")) == len(values(bench, "u")) == CLIENTS // 2


def test_numbered_batches_of_several_producers_are_appended_together(
    bench: RecordBench, groups: list[int]
) -> None:
    bench.exchange(
        *(
            (client, produce(b"v", producer_id=client, producer_epoch=0, sequence=0))
            for client in range(CLIENTS)
        )
    )

    assert groups == [CLIENTS]
    assert len(values(bench)) == CLIENTS


def test_one_that_must_be_written_again_does_not_stop_the_others(bench: RecordBench) -> None:
    answers = bench.exchange(
        (0, produce(b"first")), (1, produce(b"second", codec=Codec.GZIP)), (2, produce(b"third"))
    )

    assert sorted(placed(answer) for answer in answers[:3]) == [0, 1, 2]
    assert sorted(value or b"" for value in values(bench)) == [b"first", b"second", b"third"]


def test_one_whose_bytes_changed_is_refused_alone(bench: RecordBench) -> None:
    wrong = bytearray(produce(b"wrong"))
    wrong[-5] ^= 1

    answers = bench.exchange((0, produce(b"a")), (1, bytes(wrong)), (2, produce(b"b")))

    assert {placed(answers[0]), placed(answers[2])} == {0, 1}
    assert struct.unpack_from(">h", answers[1], ERROR_AT)[0] != 0


@pytest.mark.parametrize("missing", [-10, 10])
def test_a_request_is_as_long_as_its_size_says(bench: RecordBench, missing: int) -> None:
    frame = produce(b"lie")[4:]
    lying = struct.pack(">i", len(frame) + missing) + frame

    bench.exchange((0, produce(b"a")), (1, lying), (2, produce(b"b")))

    assert sorted(value or b"" for value in values(bench)) == [b"a", b"b"]


def test_a_client_that_leaves_at_once_has_its_record_appended(bench: RecordBench) -> None:
    bench.clients[0].sendall(produce(b"last words"))
    bench.clients[0].close()

    bench.turn()

    assert values(bench) == [b"last words"]
    assert bench.connections[0].is_closed


def test_more_than_the_buffer_holds_is_appended_in_parts(
    bench: RecordBench, groups: list[int]
) -> None:
    value = bytes(12_000)

    answers = bench.exchange(*((client, produce(value)) for client in range(CLIENTS)))

    assert sorted(placed(answer) for answer in answers) == list(range(CLIENTS))
    assert sum(groups) == CLIENTS
    assert len(groups) > 1


def test_an_answer_is_sent_only_after_the_sync_that_covers_its_record(
    durable_bench: RecordBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = durable_bench.store.topic("t").partition(0)
    sent: list[tuple[int, int]] = []  # the base offset, and the end of what was durable then
    send_alone, send_row = ClientConnection.send_alone, AnswerRow.send

    def note(self: ClientConnection, answer: Answer, frame: bytes) -> int:
        sent.append((placed(frame), log.state.durable))
        return send_alone(self, answer, frame)

    def note_all(self: AnswerRow, frames: bytearray, size: int, stop: int) -> list[tuple[int, int]]:
        for at in range(0, len(frames), size):
            sent.append((placed(bytes(frames[at : at + size])), log.state.durable))
        return send_row(self, frames, size, stop)

    monkeypatch.setattr(ClientConnection, "send_alone", note)
    monkeypatch.setattr(AnswerRow, "send", note_all)
    for number in range(10):
        requests = ((client, produce(b"%d" % number)) for client in range(CLIENTS))
        durable_bench.exchange(*requests)
        while len(sent) < CLIENTS * (number + 1):
            durable_bench.turn()

    assert sorted(base for base, _ in sent) == list(range(10 * CLIENTS))
    assert all(base < durable for base, durable in sent)


def test_a_sync_that_fails_fails_every_produce_that_waits_for_it(
    durable_bench: RecordBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = durable_bench.store.topic("t").partition(0)
    log.append(b"before")  # the first sync also creates directory entries
    finish = SyncUnderWay.finish
    broken = OSError(5, "broken disk")
    monkeypatch.setattr(SyncUnderWay, "finish", lambda self, error: finish(self, broken))

    answers = durable_bench.exchange(*((client, produce(b"lost")) for client in range(CLIENTS)))
    while not all(answers):
        answers = [a + b for a, b in zip(answers, durable_bench.exchange(), strict=True)]

    codes = [struct.unpack_from(">h", answer, ERROR_AT)[0] for answer in answers]
    assert codes == [ErrorCode.kafka_storage_error] * CLIENTS


@pytest.mark.parametrize("turns", [1, 2])
def test_each_request_is_counted_once_also_if_its_client_left_the_row(
    durable_bench: RecordBench, turns: int
) -> None:
    bench, first = durable_bench, CLIENTS // turns
    for topic in "tu":
        bench.store.topic(topic).partition(0).append(b"before")
    for part in range(turns):
        for client in range(part * first, (part + 1) * first):
            bench.clients[client].sendall(produce(b"v", "tu"[client % 2]))
        bench.loop.call_soon(lambda: None)
        bench.loop._turn()

    for client in range(0, CLIENTS, 4):
        bench.connections[client].leave_row()
    answers = [b""] * CLIENTS
    while not all(answers):
        answers = [a + b for a, b in zip(answers, bench.exchange(), strict=True)]

    counted = bench.metrics.view()
    latencies = counted.latencies[ApiKey.PRODUCE]
    assert latencies.count == CLIENTS
    assert min(latencies.counts) >= 0
    assert latencies.sum_s > 0
    assert counted.bytes_sent == sum(map(len, answers))


# --- answers before the next group is appended -------------------------------------------------


def end_sync_early(bench: RecordBench) -> None:
    """All clients have sent a record; the loop waits for its sync, as it does under load."""
    bench.store.topic("t").partition(0).append(b"before")  # its sync creates directory entries
    for client in bench.clients:
        client.sendall(produce(b"x"))
    bench.loop.call_soon(lambda: None)
    bench.loop._turn()
    log = bench.store.topic("t").partition(0)
    assert log.end_offset == 1 + CLIENTS
    bench.loop.ready_count = bench.loop.together_count = CLIENTS
    bench.syncs._usual_s = 0.0
    while bench.syncs.is_under_way(log):
        if bench.loop.before_waiting is None:
            pytest.skip("the kernel offers no such syncs")
        bench.loop.before_waiting()


def received(bench: RecordBench) -> list[bytes]:
    return [bench._received(client) for client in bench.clients]


def test_two_thirds_of_the_answers_leave_before_the_next_group_is_appended(
    durable_bench: RecordBench,
) -> None:
    end_sync_early(durable_bench)

    early = received(durable_bench)
    durable_bench.turn()
    late = received(durable_bench)

    assert sum(map(bool, early)) == CLIENTS * 2 // 3
    assert not any(a and b for a, b in zip(early, late, strict=True))
    bases = [placed(a + b) for a, b in zip(early, late, strict=True)]
    assert sorted(bases) == list(range(1, 1 + CLIENTS))


def test_records_of_clients_that_were_answered_early_join_the_next_group(
    durable_bench: RecordBench, groups: list[int]
) -> None:
    end_sync_early(durable_bench)
    early = [client for client, answer in enumerate(received(durable_bench)) if answer]

    answers = durable_bench.exchange(*((client, produce(b"y")) for client in early))
    while not all(answers):
        answers = [a + b for a, b in zip(answers, durable_bench.exchange(), strict=True)]

    assert groups == [CLIENTS, len(early)]
    assert len(values(durable_bench)) == 1 + CLIENTS + len(early)


def test_a_log_that_fails_after_the_early_answers_refuses_the_others(
    durable_bench: RecordBench,
) -> None:
    end_sync_early(durable_bench)
    early = received(durable_bench)

    durable_bench.store.topic("t").partition(0)._holder.fail("a disk broke")
    durable_bench.turn()
    late = received(durable_bench)

    codes = [struct.unpack_from(">h", answer, ERROR_AT)[0] for answer in late if answer]
    assert codes == [ErrorCode.kafka_storage_error] * (CLIENTS - sum(map(bool, early)))


def test_a_client_that_leaves_before_its_early_answer_harms_nobody(
    durable_bench: RecordBench,
) -> None:
    leave = durable_bench.syncs._tell_early

    def leave_first() -> None:
        durable_bench.connections[3].close("the client left")
        leave()

    durable_bench.syncs._tell_early = leave_first
    end_sync_early(durable_bench)
    early = received(durable_bench)
    durable_bench.turn()
    late = received(durable_bench)

    answered = [bool(a or b) for a, b in zip(early, late, strict=True)]
    assert answered == [client != 3 for client in range(CLIENTS)]
    assert len(values(durable_bench)) == 1 + CLIENTS
