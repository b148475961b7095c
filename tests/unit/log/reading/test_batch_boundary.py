"""A boundary that headers lead to is the one that verified batches lead to, or none is given."""

from __future__ import annotations

from pathlib import Path
from random import Random
from unittest import mock

import pytest

import cordwood
from cordwood.format.batch_header import HEADER_SIZE
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.batch_boundary import boundary_at
from cordwood.log.reading.file_range import read_range
from cordwood.log.rules.append_checks import BatchGate
from cordwood.log.rules.batch_group import BatchGroup
from cordwood.quantities import FilePosition, Offset, TimestampMs
from cordwood.storage.segment import Segment
from fakes.client_batches import NOW, client_batch

CONFIG = {"durability": "os", "index.interval.bytes": "300", "retention.ms": "-1"}


def filled(store: cordwood.Store, random: Random) -> PartitionLog:
    """Batches of 1 to 9 records, some compressed, of very different sizes, in a few segments."""
    codec = random.choice(["uncompressed", "gzip", "producer"])
    config = {**CONFIG, "compression.type": codec, "internal.segment.bytes": "6000"}
    log = store.create_topic("t", config=config).partition(0)
    assert isinstance(log, PartitionLog)
    for _ in range(60):
        size = random.choice([1, 40, 900])
        log.append_many([(None, random.randbytes(size)) for _ in range(random.randrange(1, 10))])
    return log


def true_boundaries(segment: Segment) -> dict[int, int]:
    """Where each batch begins, and the end, by a walk over verified batches."""
    reader = segment.reader()
    found: dict[int, int] = {}
    for first, end in reader.chunks(FilePosition(0), segment.base_offset):
        for index in range(first, end):
            batch = reader.decoder.batch(index)
            found[batch.base_offset] = reader.chunk_position + batch.position
    found[reader.next_offset] = segment.size
    return found


@pytest.mark.parametrize("seed", range(5))
def test_a_boundary_is_that_of_the_batch_that_begins_there(tmp_path: Path, seed: int) -> None:
    with cordwood.open(tmp_path / "data") as store:
        log = filled(store, Random(seed))
        told = 0
        for segment in log.state.segments:
            truth = true_boundaries(segment)

            for offset in range(segment.base_offset, segment.next_offset + 1):
                found = boundary_at(segment, Offset(offset), segment.size)

                assert found in (None, truth.get(offset))
                told += found is not None

    assert told > 60  # it is good for something


def test_what_lies_behind_the_size_is_not_looked_at(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data") as store:
        log = filled(store, Random(7))
        segment = next(iter(log.state.segments))
        boundaries = sorted(true_boundaries(segment).items())

        for offset, position in boundaries:
            for size in {position, max(position - 1, 0), position + HEADER_SIZE - 1}:
                found = boundary_at(segment, Offset(offset), min(size, segment.size))

                assert found is None or found == position <= size


def test_a_rotten_header_leads_nowhere_else(tmp_path: Path) -> None:
    random = Random(3)
    with cordwood.open(tmp_path / "data") as store:
        log = filled(store, random)
        segment = next(iter(log.state.segments))
        truth = true_boundaries(segment)
        path = Path(segment.name)
        sound = path.read_bytes()

        for _ in range(300):
            at = random.choice(list(truth.values())[:-1]) + random.randrange(HEADER_SIZE)
            rotten = bytearray(sound)
            rotten[at] ^= 1 << random.randrange(8)
            path.write_bytes(rotten)
            offset = random.choice(list(truth))

            found = boundary_at(segment, Offset(offset), segment.size)

            assert found in (None, truth[offset])
        path.write_bytes(sound)


def test_ranges_for_sendfile_are_whole_batches_up_to_the_watermark(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data") as store:
        log = filled(store, Random(11))
        read = bytearray()
        offset = 0
        while (found := read_range(log.source, offset, max_bytes=1 << 20)) is not None:
            content = found.file.read_at(found.position, found.length)
            read += content
            position = 0
            while position < len(content):
                size = 12 + int.from_bytes(content[position + 8 : position + 12], "big")
                delta = int.from_bytes(content[position + 23 : position + 27], "big")
                offset = int.from_bytes(content[position : position + 8], "big") + delta + 1
                position += size
            assert position == len(content)

        whole = b"".join(Path(segment.path).read_bytes() for segment in log.segments())

    assert read == whole
    assert offset == log.end_offset


def produced(log: PartitionLog, *batches: bytearray) -> list[Offset | Exception]:
    """As a broker appends what came together: in one write."""
    group, gate = BatchGroup(), BatchGate(log.config)
    for batch in batches:
        survey = gate.survey(memoryview(batch), TimestampMs(NOW))
        assert survey is not None
        group.add(memoryview(batch), survey)
    return log.batches.append_group(group)


def small_batches(random: Random) -> list[bytearray]:
    sizes = [random.choice([1, 200, 1000]) for _ in range(random.randrange(1, 40))]
    return [client_batch(*[bytes(size)] * random.randrange(1, 4)) for size in sizes]


@pytest.mark.parametrize("interval", [300, 4096])
def test_an_index_entry_speaks_of_the_batch_it_points_at(tmp_path: Path, interval: int) -> None:
    """Also where batches that came together share one; or nobody could begin to read there."""
    random = Random(interval)
    with cordwood.open(tmp_path / "data") as store:
        config = {"durability": "os", "index.interval.bytes": str(interval)}
        log = store.create_topic("t", config=config).partition(0)
        assert isinstance(log, PartitionLog)
        for _ in range(30):
            produced(log, *small_batches(random))
        segment = log.state.segments.active
        starts = true_boundaries(segment)
        ends = dict(zip(sorted(starts.values()), sorted(starts)[1:], strict=False))

        index = segment.indexes.offset
        entries = [index.entry(slot) for slot in range(index.count)]

    assert len(entries) > 10
    assert [(ends[position] - 1, position) for _, position in entries] == entries


def test_a_reader_at_the_end_of_the_log_reads_no_more_than_what_is_new(tmp_path: Path) -> None:
    random = Random(5)
    with cordwood.open(tmp_path / "data") as store:
        log = store.create_topic("t", config={"durability": "os"}).partition(0)
        assert isinstance(log, PartitionLog)
        for _ in range(50):
            produced(log, *small_batches(random))
        segment = log.state.segments.active
        offset = log.end_offset
        assert read_range(log.source, offset - 1, max_bytes=1 << 20) is not None

        for _ in range(20):
            produced(log, client_batch(b"new"))
            kind = type(segment.file())
            with mock.patch.object(
                kind, "read_at", autospec=True, side_effect=kind.read_at
            ) as reads:
                found = read_range(log.source, offset, max_bytes=1 << 20)
            assert found is not None
            assert found.position + found.length == segment.size
            assert all(call.args[1] >= found.position for call in reads.call_args_list)
            offset = log.end_offset


def test_places_where_readers_left_off_are_forgotten_when_the_log_is_cut(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data") as store:
        log = store.create_topic("t", config={"durability": "os"}).partition(0)
        assert isinstance(log, PartitionLog)
        for number in range(30):
            produced(log, client_batch(b"%d" % number * 20))
            read_range(log.source, number, max_bytes=1 << 20)
        segment = log.state.segments.active
        cut = true_boundaries(segment)[Offset(20)]

        segment.writer.truncate_to(FilePosition(cut), Offset(20))

        assert segment.boundaries.before(Offset(30)) is None
