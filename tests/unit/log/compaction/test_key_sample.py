"""Keys are counted exactly as long as there is room, and fairly beyond that."""

import random
from array import array
from collections.abc import Sequence

import pyarrow as pa
import pytest

from cordwood.log.compaction.key_sample import KeySample


def add(
    sample: KeySample,
    hashes: Sequence[int],
    sizes: Sequence[int] | None = None,
    tombstones: Sequence[bool] | None = None,
) -> None:
    count = len(hashes)
    sample.add(
        array("Q", hashes),
        pa.array(list(sizes or [10] * count), pa.int64()),
        pa.array(list(tombstones or [False] * count), pa.bool_()),
    )


def spread(count: int, seed: int = 0) -> list[int]:
    rnd = random.Random(seed)
    return [rnd.getrandbits(64) | 1 for _ in range(count)]


def test_a_key_counts_once_and_its_last_record_is_the_newest() -> None:
    sample = KeySample()

    add(sample, [5, 7, 5], [10, 20, 30])
    add(sample, [7], [1], [True])

    assert sample.keys == 2
    assert sample.newest_bytes == 31
    assert sample.newest_tombstones == 1
    assert sample.sampled_one_in == 1


def test_records_without_a_key_do_not_count() -> None:
    sample = KeySample()

    add(sample, [0, 0, 9])

    assert sample.keys == 1


def test_an_empty_sample_has_no_keys() -> None:
    assert (KeySample().keys, KeySample().newest_bytes, KeySample().newest_tombstones) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(5))
def test_beyond_its_bound_figures_are_estimated_within_a_few_percent(seed: int) -> None:
    sample = KeySample(keys_max=5000)
    hashes = spread(50_000, seed)

    for start in range(0, len(hashes), 10_000):
        add(sample, hashes[start : start + 10_000])
    add(sample, hashes, [20] * len(hashes))  # again: no key is new

    assert sample.sampled_one_in > 1
    assert sample.keys == pytest.approx(50_000, rel=0.08)
    assert sample.newest_bytes == sample.keys * 20


def test_a_sample_never_keeps_more_than_its_bound() -> None:
    sample = KeySample(keys_max=100)

    add(sample, spread(10_000))

    assert sample.keys // sample.sampled_one_in <= 100


def test_keys_that_two_samples_share_count_once() -> None:
    one, other = KeySample(), KeySample()
    add(one, [1, 2, 3])
    add(other, [3, 4])

    one.merge(other)

    assert one.keys == 4


def test_samples_of_different_shares_are_merged_by_the_smaller_one() -> None:
    whole, small = KeySample(), KeySample(keys_max=1000)
    hashes = spread(20_000)
    add(whole, hashes[:10_000])
    add(small, hashes[5_000:])

    whole.merge(small)

    assert whole.sampled_one_in == small.sampled_one_in
    assert whole.keys == pytest.approx(20_000, rel=0.15)
