"""Rounds of markers and moments without them."""

import threading

import pytest

from cordwood.log.transactions.marker_turns import MarkerTurns

TIMEOUT_S = 30.0


def test_a_moment_of_stillness_waits_for_the_rounds_under_way() -> None:
    turns = MarkerTurns()
    turns.begin()
    turns.begin()
    is_still = threading.Event()

    def copy() -> None:
        with turns.still():
            is_still.set()

    thread = threading.Thread(target=copy)
    thread.start()
    turns.end()
    was_still = is_still.is_set()
    turns.end()
    thread.join(TIMEOUT_S)

    assert not was_still
    assert is_still.is_set()


def test_no_round_begins_in_a_moment_of_stillness() -> None:
    turns = MarkerTurns()

    with turns.still():
        meanwhile = turns.begin(wait=False)
    after = turns.begin(wait=False)

    assert (meanwhile, after) == (False, True)


def test_a_moment_that_ends_with_an_error_is_over() -> None:
    turns = MarkerTurns()

    with pytest.raises(KeyboardInterrupt), turns.still():
        raise KeyboardInterrupt

    assert turns.begin(wait=False)


def test_a_round_that_waits_begins_when_the_moment_is_over() -> None:
    turns = MarkerTurns()
    thread = threading.Thread(target=turns.begin)

    with turns.still():
        thread.start()
    thread.join(TIMEOUT_S)

    assert not thread.is_alive()
