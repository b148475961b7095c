"""Copies that wait for their turns."""

from uuid import UUID

from cordwood.broker.cluster.replicas.copy_turns import COPIES_MAX, CopyTurns
from cordwood.cluster.replication.replica_fetch import PartitionPlace

PLACES = [PartitionPlace(UUID(int=1), number) for number in range(COPIES_MAX + 3)]


def waiting(turns: CopyTurns) -> list[PartitionPlace]:
    """All places wait; the list has those whose turn has come."""
    begun: list[PartitionPlace] = []
    for place in PLACES:
        turns.wait(place, lambda place=place: begun.append(place))  # type: ignore[misc]
    return begun


def test_some_copy_and_the_others_follow_in_their_order() -> None:
    turns = CopyTurns()
    begun = waiting(turns)
    at_first = list(begun)

    turns.leave(PLACES[1])

    assert at_first == PLACES[:COPIES_MAX]
    assert begun == PLACES[: COPIES_MAX + 1]


def test_one_that_is_over_before_its_turn_gets_none() -> None:
    turns = CopyTurns()
    begun = waiting(turns)

    turns.leave(PLACES[COPIES_MAX])
    turns.leave(PLACES[0])

    assert begun == [*PLACES[:COPIES_MAX], PLACES[COPIES_MAX + 1]]


def test_nobody_gets_a_turn_after_the_end() -> None:
    turns = CopyTurns()
    begun = waiting(turns)

    turns.stop()
    turns.leave(PLACES[0])

    assert begun == PLACES[:COPIES_MAX]
