"""Batches that are written together, held against the plainest way to say the same."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.batch_header import decode_batch_header
from cordwood.format.batch_placing import index_stretches, place_batches
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.quantities import ProducerId, TimestampMs
from fakes.client_batches import client_batch

HEADER = 61


@st.composite
def groups(draw: st.DrawFn) -> list[UnplacedBatch]:
    return draw(
        st.lists(
            st.builds(
                UnplacedBatch,
                st.integers(HEADER, 300),
                st.integers(1, 5),
                st.integers(-1, 50).map(TimestampMs),
                st.sampled_from([-1, -1, 7]).map(ProducerId),
            ),
            max_size=12,
        )
    )


@given(groups(), st.integers(0, 2**62), st.integers(-1, 2**31 - 1))
def test_each_batch_gets_the_offset_behind_the_one_before_it(
    batches: list[UnplacedBatch], base: int, epoch: int
) -> None:
    data = bytearray(b"\xaa" * sum(batch.size for batch in batches))
    expected, at, offset, bases = bytearray(data), 0, base, []
    for batch in batches:
        struct.pack_into(">q", expected, at, offset)
        struct.pack_into(">i", expected, at + 12, epoch)
        bases.append(offset)
        at, offset = at + batch.size, offset + batch.record_count

    placed = place_batches(data, batches, base, epoch)

    newest = max((batch.max_timestamp for batch in batches), default=-1)
    is_numbered = any(batch.producer_id != -1 for batch in batches)
    assert placed == (bases, len(data), offset, newest, is_numbered)
    assert data == expected


def test_a_stamped_batch_keeps_its_checksum_and_reads_as_placed() -> None:
    data = client_batch(b"one", b"two")

    place_batches(data, [UnplacedBatch(len(data), 2, TimestampMs(5))], 41, 3)

    header = decode_batch_header(data)
    assert (header.base_offset, header.leader_epoch, header.record_count) == (41, 3, 2)


@pytest.mark.parametrize("size", [0, 60, 101, 2**40, -1])
def test_a_size_that_does_not_fit_the_data_is_refused(size: int) -> None:
    with pytest.raises(IndexError):
        place_batches(bytearray(100), [UnplacedBatch(size, 1, TimestampMs(5))], 0, 0)


@given(groups(), st.integers(0, 1000), st.sampled_from([0, 400]), st.integers(1, 900))
def test_a_stretch_ends_with_the_batch_that_fills_it(
    batches: list[UnplacedBatch], base: int, first_max: int, bytes_max: int
) -> None:
    ends = [base]
    for batch in batches:
        ends.append(ends[-1] + batch.record_count)
    limit, cut, runs = first_max, 0, []
    for index in range(len(batches)):
        if sum(batch.size for batch in batches[cut : index + 1]) >= limit:
            runs.append((cut, index + 1))
            limit, cut = bytes_max, index + 1
    if cut < len(batches):
        runs.append((cut, len(batches)))

    found = index_stretches(batches, base, first_max, bytes_max)

    assert len(found) == len(runs)
    for (start, stop), stretch in zip(runs, found, strict=True):
        size, end, newest, count, newest_offset, first_end, first_timestamp = stretch
        run = batches[start:stop]
        times = [batch.max_timestamp for batch in run]
        assert size == sum(batch.size for batch in run)
        assert (end, count) == (ends[stop], ends[stop] - ends[start])
        assert (newest, first_end, first_timestamp) == (max(times), ends[start + 1], times[0])
        if newest >= 0:
            assert newest_offset == ends[start + 1 + times.index(newest)] - 1
