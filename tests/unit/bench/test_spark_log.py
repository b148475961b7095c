"""The logs of the Spark suite, and how they get into Kafka."""

from __future__ import annotations

from pathlib import Path

from bench.kafka_wire import produce_frame
from bench.spark_kafka_feed import batch_frame
from bench.spark_log import DAY_MS, PARTITIONS, LogShape, write_log
from bench.workload import TOPIC
from cordwood.format.batch_header import decode_batch_header
from cordwood.log.store.store import Store, StoreSetup

_SHAPE = LogShape(value_size=100, rows=1000, keys=10)


def test_the_chunks_of_a_log_hold_each_row_once_in_order() -> None:
    rows = [row for _, first, end in _SHAPE.chunks() for row in range(first, end)]

    assert rows == list(range(_SHAPE.rows))


def test_every_partition_reaches_from_the_first_to_the_last_hours() -> None:
    for partition in range(PARTITIONS):
        rows = [row for p, first, end in _SHAPE.chunks() if p == partition for row in (first, end)]

        assert _SHAPE.time_ms(min(rows)) < DAY_MS / 4
        assert _SHAPE.time_ms(max(rows)) > DAY_MS * 3 / 4


def test_a_window_holds_the_part_of_the_rows_it_was_asked_for() -> None:
    start, end = _SHAPE.window_ms(0.01)

    held = [row for row in range(_SHAPE.rows) if start <= _SHAPE.time_ms(row) < end]

    assert len(held) == _SHAPE.rows // 100


def test_a_written_log_has_the_rows_keys_and_times_of_its_shape(tmp_path: Path) -> None:
    log = write_log(tmp_path, _SHAPE)

    with Store([str(log.path)], StoreSetup(has_housekeeping=False)) as store:
        records = [r for p in store.topic(TOPIC).partitions for r in p.read(0)]
    times = sorted((record.timestamp_ms or 0) - log.first_ms for record in records)
    assert times == [_SHAPE.time_ms(row) for row in range(_SHAPE.rows)]
    assert {record.key for record in records} == {_SHAPE.key(n).encode() for n in range(10)}
    assert {len(record.value or b"") for record in records} == {_SHAPE.value_size}


def test_the_batches_of_a_log_are_those_a_producer_would_send(tmp_path: Path) -> None:
    log = write_log(tmp_path, _SHAPE)

    batches = [batch for partition in range(PARTITIONS) for batch in log.batches(partition)]

    headers = [decode_batch_header(bytes(batch)) for batch in batches]
    assert sum(header.record_count for header in headers) == _SHAPE.rows
    assert {header.base_offset for header in headers} == {0}


def test_a_batch_is_sent_to_the_partition_it_came_from(tmp_path: Path) -> None:
    batch = next(write_log(tmp_path, _SHAPE).batches(1))

    frame = batch_frame(batch, 1)

    assert frame.records == decode_batch_header(bytes(batch)).record_count
    assert frame.data == produce_frame(TOPIC, bytes(batch), partition=1)
    assert frame.data != produce_frame(TOPIC, bytes(batch), partition=0)


def test_keys_are_indexed_where_the_topic_wants_it(tmp_path: Path) -> None:
    shape = LogShape(value_size=100, rows=1000, keys=10, config={"key.index": "true"})

    log = write_log(tmp_path, shape)

    for partition in range(PARTITIONS):
        assert list((log.path / f"{TOPIC}-{partition}").glob("*.keyindex"))
