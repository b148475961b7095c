"""How far zeros are written ahead of a log's end."""

from cordwood.log.rules.ahead_policy import (
    AHEAD_BYTES_MAX,
    AHEAD_BYTES_MIN,
    GROWTH_BYTES_MAX,
    ahead_end,
)
from cordwood.quantities import GIB, KIB, MIB


def test_a_file_gets_as_many_zeros_as_it_has_batches() -> None:
    assert ahead_end(size=64 * KIB, grown=1, segment_bytes=GIB) == 128 * KIB


def test_a_small_file_gets_a_little_more_and_ends_with_a_page() -> None:
    assert ahead_end(size=100, grown=100, segment_bytes=GIB) == 2 * AHEAD_BYTES_MIN


def test_a_large_file_gets_no_more_than_the_limit() -> None:
    assert ahead_end(size=512 * MIB, grown=1, segment_bytes=GIB) == 512 * MIB + AHEAD_BYTES_MAX


def test_no_file_grows_past_the_size_of_a_segment() -> None:
    assert ahead_end(size=MIB - 10, grown=1, segment_bytes=MIB) == MIB
    assert ahead_end(size=MIB, grown=1, segment_bytes=MIB) is None


def test_nothing_is_written_ahead_if_a_sync_brings_much() -> None:
    assert ahead_end(size=MIB, grown=GROWTH_BYTES_MAX, segment_bytes=GIB) is None
