"""A table read from a log, damage and all."""

import logging
from dataclasses import replace

import pytest
from crc32c import crc32c

from cordwood.format.batch_header import (
    HEADER_SIZE,
    decode_batch_header,
    pack_batch_header_into,
)
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.file_range import read_range
from cordwood.log.reading.latest_by_key import newest_values
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.quantities import Offset, ProducerId, TimestampMs
from fakes.client_batches import NOW, client_batch, marker_batch
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import new_log


def make(**config: object) -> tuple[SimulatedFileSystem, PartitionLog]:
    clock = ManualClock(NOW)
    fs = SimulatedFileSystem(clock=clock)
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return fs, new_log(fs, settings, clock=clock)[1]


def table(log: PartitionLog, start: int = 0) -> dict[bytes, bytes | None]:
    return newest_values(log.source, Offset(start), log.high_watermark)


def test_the_newest_value_of_each_key_counts() -> None:
    _, log = make()
    log.append_many([(b"a", b"1"), (b"b", b"2"), (None, b"no key"), (b"a", b"3")])
    log.append_many([(b"b", None)])

    assert table(log) == {b"a": b"3", b"b": None}
    assert table(log, 4) == {b"b": None}
    assert newest_values(log.source, Offset(0), Offset(2)) == {b"a": b"1", b"b": b"2"}


def test_damage_costs_what_it_hit_and_is_named(caplog: pytest.LogCaptureFixture) -> None:
    fs, log = make(segment_records=3)
    for number in range(9):
        log.append(b"%d" % number, key=b"k%d" % number)
    segment = log.segments()[1]
    file = fs.open_write(f"{log.directory}/{segment.base_offset:020}.log")
    file.write_at(75, b"\xff\xff")

    with caplog.at_level(logging.WARNING):
        found = table(log)

    assert found.keys() == {b"k%d" % number for number in range(9) if number != 4}
    assert f"{segment.base_offset:020}.log" in caplog.text


def test_a_batch_that_checks_out_and_makes_no_sense_is_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fs, log = make()
    for number in range(3):
        log.append(b"%d" % number, key=b"k%d" % number)
    found = read_range(log.source, 1, max_bytes=1)
    assert found is not None
    batch = bytearray(found.file.read_at(found.position, found.length))
    batch[HEADER_SIZE] = 0x7F  # the length of its one record
    header = decode_batch_header(batch)
    pack_batch_header_into(batch, 0, replace(header, crc=crc32c(bytes(batch[21:]))))
    fs.open_write(f"{log.directory}/{0:020}.log").write_at(found.position, bytes(batch))

    with caplog.at_level(logging.WARNING):
        values = table(log)

    assert values == {b"k0": b"0", b"k2": b"2"}
    assert "offsets 1 to 2" in caplog.text


def test_what_was_dropped_meanwhile_is_not_waited_for() -> None:
    _, log = make(segment_records=2)
    for number in range(6):
        log.append(b"%d" % number, key=b"k%d" % number)
    log.delete_before(4)

    assert table(log) == {b"k4": b"4", b"k5": b"5"}
    assert newest_values(log.source, Offset(3), Offset(100)) == {b"k4": b"4", b"k5": b"5"}
    assert newest_values(log.source, Offset(50), Offset(100)) == {}


def append_transaction(
    log: PartitionLog, producer_id: int, *pairs: tuple[bytes, bytes], sequence: int, is_abort: bool
) -> None:
    batch = client_batch(
        *(value for _, value in pairs),
        keys=[key for key, _ in pairs],
        producer_id=producer_id,
        producer_epoch=0,
        sequence=sequence,
        transactional=True,
    )
    log.batches.append_batch(batch)
    marker = MarkerFacts(
        producer_id=ProducerId(producer_id),
        producer_epoch=0,
        coordinator_epoch=0,
        offset=Offset(0),
        timestamp=TimestampMs(NOW),
        is_abort=is_abort,
    )
    log.batches.append_marker(marker_batch(producer_id, is_abort=is_abort), marker)


def test_what_an_aborted_transaction_wrote_does_not_count() -> None:
    _, log = make()
    log.append(b"1", key=b"a")
    append_transaction(log, 7, (b"a", b"2"), sequence=0, is_abort=False)
    append_transaction(log, 7, (b"a", b"3"), (b"b", b"3"), sequence=1, is_abort=True)
    append_transaction(log, 7, (b"c", b"4"), sequence=3, is_abort=False)
    append_transaction(log, 8, (b"c", b"5"), sequence=0, is_abort=True)
    log.append(b"6", key=b"d")

    assert table(log) == {b"a": b"2", b"c": b"4", b"d": b"6"}
    for start in range(1, log.high_watermark):
        assert b"3" not in table(log, start).values()
        assert b"5" not in table(log, start).values()
