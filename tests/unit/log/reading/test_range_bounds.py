"""The range of a fetch says where its records end, so that its answer names few transactions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.format.batch import BatchDecoder
from cordwood.log.reading.file_range import read_range
from cordwood.quantities import Offset


class _StopError(Exception):
    pass


@pytest.fixture
def log(tmp_path: Path) -> Iterator[cordwood.PartitionLog]:
    with cordwood.open(tmp_path) as store:
        yield _filled(store)


def _filled(store: cordwood.Store) -> cordwood.PartitionLog:
    topic = store.create_topic(
        "t", config={"durability": "os", "segment.records": 150, "index.interval.bytes": 0}
    )
    for n in range(100):
        try:
            with store.transaction("tx") as transaction:
                for _ in range(1 + n % 4):
                    transaction.append("t", b"x" * 50, partition=0)
                if n % 3 == 0:
                    raise _StopError
        except _StopError:
            pass
    return topic.partition(0)


def test_every_aborted_record_of_a_range_is_named_and_later_ones_are_not(
    log: cordwood.PartitionLog,
) -> None:
    end = log.last_stable_offset
    everything = log.source.aborted_transactions(log.start_offset, end)
    assert len(everything) == 34
    for start in range(0, end, 3):
        for max_bytes in (1, 400, 3000, 1 << 20):
            found = read_range(
                log.source, start, max_bytes=max_bytes, stop=end, with_stop_offset=True
            )
            assert found is not None
            assert found.stop_offset is not None
            decoder = BatchDecoder()
            data = memoryview(found.file.read_at(found.position, found.length))
            count = decoder.scan(data, 0, len(data))
            last = decoder.batch(count - 1).next_offset - 1
            needed = [t for t in everything if t.first_offset <= last and t.last_offset >= start]

            named = log.source.aborted_transactions(Offset(start), found.stop_offset)

            assert last < found.stop_offset <= end
            assert [t for t in needed if t not in named] == []
            # An index entry for each batch: at most the next batch is counted, too.
            assert len(named) <= len(needed) + 1
