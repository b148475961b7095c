"""Which leader wrote which offsets."""

import pytest

from cordwood.format.small_files.checkpoint_text import EpochEntry
from cordwood.log.rules.leader_epochs import UNKNOWN_EPOCH_END, EpochEnd, LeaderEpochs
from cordwood.quantities import LeaderEpoch, Offset

LOG_END = Offset(100)


def epochs(*pairs: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(
        EpochEntry(epoch=LeaderEpoch(epoch), start_offset=Offset(start)) for epoch, start in pairs
    )


def pairs_of(leader_epochs: LeaderEpochs) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in leader_epochs.entries]


def test_a_log_without_epochs_knows_none() -> None:
    empty = epochs()

    assert empty.latest is None
    assert empty.earliest is None
    assert empty.epoch_of(Offset(0)) is None


def test_a_new_epoch_is_news() -> None:
    leader_epochs = epochs((1, 0))

    assert leader_epochs.assign(LeaderEpoch(2), Offset(10))
    assert pairs_of(leader_epochs) == [(1, 0), (2, 10)]
    assert leader_epochs.latest == EpochEntry(epoch=LeaderEpoch(2), start_offset=Offset(10))


def test_an_epoch_keeps_the_start_it_was_first_given() -> None:
    leader_epochs = epochs((1, 5))

    assert not leader_epochs.assign(LeaderEpoch(1), Offset(5))
    assert not leader_epochs.assign(LeaderEpoch(1), Offset(9))
    assert pairs_of(leader_epochs) == [(1, 5)]


@pytest.mark.parametrize(
    ("epoch", "start", "expected"),
    [
        (3, 15, [(1, 0), (2, 10), (3, 15)]),  # same epoch, earlier start
        (4, 20, [(1, 0), (2, 10), (4, 20)]),  # epoch 3 wrote nothing
        (4, 10, [(1, 0), (4, 10)]),
        (2, 30, [(1, 0), (2, 30)]),  # an epoch that goes back
        (0, 50, [(0, 50)]),
        (9, 0, [(9, 0)]),
    ],
)
def test_entries_that_contradict_a_new_one_are_dropped(
    epoch: int, start: int, expected: list[tuple[int, int]]
) -> None:
    leader_epochs = epochs((1, 0), (2, 10), (3, 20))

    assert leader_epochs.assign(LeaderEpoch(epoch), Offset(start))

    assert pairs_of(leader_epochs) == expected


def test_entries_are_replaced_and_never_edited() -> None:
    leader_epochs = epochs((1, 0))
    taken = leader_epochs.entries

    leader_epochs.assign(LeaderEpoch(2), Offset(10))

    assert len(taken) == 1


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (8, EpochEnd(LeaderEpoch(8), LOG_END)),  # the latest ends at the log's end
        (5, EpochEnd(LeaderEpoch(5), Offset(40))),
        (2, EpochEnd(LeaderEpoch(2), Offset(20))),
        (4, EpochEnd(LeaderEpoch(2), Offset(20))),  # none of that number: the one below
        (7, EpochEnd(LeaderEpoch(5), Offset(40))),
        (1, EpochEnd(LeaderEpoch(1), Offset(10))),  # older than all
        (9, UNKNOWN_EPOCH_END),
        (-1, UNKNOWN_EPOCH_END),
    ],
)
def test_an_epoch_ends_where_the_next_one_starts(asked: int, expected: EpochEnd) -> None:
    leader_epochs = epochs((2, 10), (5, 20), (8, 40))

    assert leader_epochs.end_offset_for(LeaderEpoch(asked), LOG_END) == expected


def test_without_epochs_every_end_is_unknown() -> None:
    assert epochs().end_offset_for(LeaderEpoch(0), LOG_END) == UNKNOWN_EPOCH_END


@pytest.mark.parametrize(
    ("offset", "epoch"), [(9, None), (10, 2), (19, 2), (20, 5), (39, 5), (40, 8), (1000, 8)]
)
def test_an_offset_belongs_to_the_epoch_that_started_last_before_it(
    offset: int, epoch: int | None
) -> None:
    assert epochs((2, 10), (5, 20), (8, 40)).epoch_of(Offset(offset)) == epoch


@pytest.mark.parametrize(
    ("end_offset", "expected", "is_changed"),
    [
        (41, [(2, 10), (5, 20), (8, 40)], False),
        (40, [(2, 10), (5, 20)], True),
        (15, [(2, 10)], True),
        (10, [], True),
        (0, [], True),
    ],
)
def test_truncating_the_end_drops_epochs_that_start_there_or_later(
    end_offset: int, expected: list[tuple[int, int]], is_changed: bool
) -> None:
    leader_epochs = epochs((2, 10), (5, 20), (8, 40))

    assert leader_epochs.truncate_from_end(Offset(end_offset)) is is_changed

    assert pairs_of(leader_epochs) == expected


@pytest.mark.parametrize(
    ("start_offset", "expected", "is_changed"),
    [
        (0, [(2, 10), (5, 20), (8, 40)], False),
        (10, [(2, 10), (5, 20), (8, 40)], False),
        (11, [(2, 11), (5, 20), (8, 40)], True),
        (20, [(5, 20), (8, 40)], True),
        (30, [(5, 30), (8, 40)], True),
        (90, [(8, 90)], True),
    ],
)
def test_truncating_the_start_moves_the_first_epoch_up_to_it(
    start_offset: int, expected: list[tuple[int, int]], is_changed: bool
) -> None:
    leader_epochs = epochs((2, 10), (5, 20), (8, 40))

    assert leader_epochs.truncate_from_start(Offset(start_offset)) is is_changed

    assert pairs_of(leader_epochs) == expected


def test_clearing_leaves_nothing_and_is_news_once() -> None:
    leader_epochs = epochs((2, 10))

    assert leader_epochs.clear()
    assert not leader_epochs.clear()
    assert leader_epochs.entries == ()


def test_entries_read_from_a_file_are_brought_into_order() -> None:
    assert pairs_of(epochs((1, 0), (3, 10), (2, 20))) == [(1, 0), (2, 20)]


@pytest.mark.parametrize(
    ("epoch", "last", "expected"),
    [
        (0, 3, [(0, 0), (1, 4), (2, 9)]),
        (0, 4, [(0, 0), (2, 9)]),
        (0, 11, [(0, 0)]),
        (1, 9, [(0, 0), (1, 4)]),
        (2, 50, [(0, 0), (1, 4), (2, 9)]),
    ],
)
def test_a_batch_is_believed_rather_than_later_epochs(
    epoch: int, last: int, expected: list[tuple[int, int]]
) -> None:
    leader_epochs = epochs((0, 0), (1, 4), (2, 9))

    is_changed = leader_epochs.drop_contradicted(LeaderEpoch(epoch), Offset(last))

    assert pairs_of(leader_epochs) == expected
    assert is_changed == (len(expected) < 3)
