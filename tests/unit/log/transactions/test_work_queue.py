"""Work for one thread: what is urgent, and what waits for it."""

import threading

from cordwood.log.transactions.work_queue import WorkQueue

TIMEOUT_S = 30.0


class Worked:
    """Remembers what was worked on together."""

    def __init__(self) -> None:
        self.rounds: list[list[str]] = []
        self._changed = threading.Condition()

    def __call__(self, items: list[str]) -> None:
        with self._changed:
            self.rounds.append(items)
            self._changed.notify_all()

    def wait_for(self, rounds: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.rounds) >= rounds, TIMEOUT_S)


def test_what_is_not_urgent_is_worked_on_with_the_next_that_is() -> None:
    worked = Worked()
    queue = WorkQueue("test", worked)

    queue.put("complete", is_urgent=False)
    queue.put("ongoing", is_urgent=False)
    queue.put("prepare")
    worked.wait_for(1)
    queue.stop()

    assert worked.rounds == [["complete", "ongoing", "prepare"]]


def test_what_is_not_urgent_is_worked_on_when_it_is_hurried() -> None:
    worked = Worked()
    queue = WorkQueue("test", worked)
    queue.hurry()

    queue.put("complete", is_urgent=False)
    queue.hurry()
    worked.wait_for(1)
    queue.stop()

    assert worked.rounds == [["complete"]]


def test_a_stop_works_on_what_is_not_urgent_too() -> None:
    worked = Worked()
    queue = WorkQueue("test", worked)
    queue.put("complete", is_urgent=False)

    queue.stop()

    assert worked.rounds == [["complete"]]
    assert not queue.put("late")
