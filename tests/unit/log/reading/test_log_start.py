import pytest

from cordwood.format.small_files.checkpoint_text import EpochEntry
from cordwood.log.reading.log_start import known_start
from cordwood.log.rules.leader_epochs import LeaderEpochs
from cordwood.quantities import LeaderEpoch, Offset


def start_by(
    *,
    first_base: int | None = 0,
    mark: int | None = None,
    checkpoint: int | None = None,
    epoch_start: int | None = None,
) -> int:
    entries = (
        []
        if epoch_start is None
        else [EpochEntry(epoch=LeaderEpoch(0), start_offset=Offset(epoch_start))]
    )
    return known_start(
        "orders-0",
        first_base=None if first_base is None else Offset(first_base),
        mark=None if mark is None else Offset(mark),
        checkpoint=None if checkpoint is None else Offset(checkpoint),
        epochs=LeaderEpochs(entries),
    )


def test_a_new_log_starts_at_zero() -> None:
    assert start_by(first_base=None) == 0


def test_nothing_lies_before_the_first_segment() -> None:
    assert start_by(first_base=40, mark=10, checkpoint=20, epoch_start=20) == 40


def test_the_mark_is_believed() -> None:
    assert start_by(mark=12, checkpoint=7, epoch_start=0) == 12


def test_the_checkpoint_is_believed_where_the_epochs_say_the_same() -> None:
    assert start_by(mark=3, checkpoint=7, epoch_start=7) == 7


@pytest.mark.parametrize(("epoch_start", "start"), [(0, 3), (3, 3), (5, 5)])
def test_a_checkpoint_that_nothing_confirms_is_not_believed(epoch_start: int, start: int) -> None:
    assert start_by(mark=3, checkpoint=7, epoch_start=epoch_start) == start


def test_without_epochs_the_checkpoint_is_all_there_is() -> None:
    assert start_by(mark=None, checkpoint=7, epoch_start=None) == 7
