"""When and how far zeros are written ahead of a log's end."""

from cordwood.log.rules.ahead_policy import (
    AHEAD_BYTES_MAX,
    AHEAD_BYTES_MIN,
    GROWTH_BYTES_MAX,
    PAUSE_S_MAX,
    SMALL_SYNCS_MIN,
    SmallSyncs,
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


def note_many(syncs: SmallSyncs, count: int = SMALL_SYNCS_MIN + 1, *, from_s: float = 0.0) -> None:
    for number in range(count):
        syncs.note(1024, from_s + number * PAUSE_S_MAX)


def test_small_syncs_are_many_after_a_while() -> None:
    syncs = SmallSyncs()

    note_many(syncs, SMALL_SYNCS_MIN)
    before = syncs.are_many
    syncs.note(1024, SMALL_SYNCS_MIN * PAUSE_S_MAX)

    assert not before
    assert syncs.are_many


def test_after_a_pause_they_are_counted_anew() -> None:
    syncs = SmallSyncs()
    note_many(syncs)

    syncs.note(1024, 1000.0)
    after_pause = syncs.are_many
    note_many(syncs, from_s=1000.0)

    assert not after_pause
    assert syncs.are_many


def test_after_a_sync_that_brings_much_they_are_counted_anew() -> None:
    syncs = SmallSyncs()
    note_many(syncs)

    syncs.note(GROWTH_BYTES_MAX, SMALL_SYNCS_MIN * PAUSE_S_MAX)

    assert not syncs.are_many
