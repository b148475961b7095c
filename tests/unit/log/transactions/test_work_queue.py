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


class Deputy:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.items: list[tuple[str, bool]] = []
        self.hurried = 0

    def put(self, item: str, *, is_urgent: bool) -> None:
        self.items.append((item, is_urgent))

    def hurry(self) -> None:
        self.hurried += 1


def test_a_substitute_gets_what_comes_after_the_thread_has_done_what_came_before() -> None:
    worked, deputy = Worked(), Deputy()
    queue = WorkQueue("test", worked)
    queue.put("complete", is_urgent=False)

    queue.hand_over(deputy)
    before = list(worked.rounds)
    queue.put("ongoing", is_urgent=False)
    queue.put("prepare")
    queue.hurry()
    queue.stop()

    assert before == worked.rounds == [["complete"]]
    assert deputy.items == [("ongoing", False), ("prepare", True)]
    assert deputy.hurried == 1


def test_what_a_substitute_has_not_done_is_done_by_the_thread_in_order() -> None:
    worked, deputy = Worked(), Deputy()
    queue = WorkQueue("test", worked)
    queue.hand_over(deputy)
    queue.put("prepare")

    queue.take_back(lambda: [item for item, _ in deputy.items])
    queue.put("complete")
    queue.stop()

    assert [item for items in worked.rounds for item in items] == ["prepare", "complete"]


def test_a_substitute_can_leave_an_item_to_the_thread() -> None:
    worked, deputy = Worked(), Deputy()
    queue = WorkQueue("test", worked)
    queue.hand_over(deputy)

    queue.put_here("offsets")
    worked.wait_for(1)
    queue.stop()

    assert worked.rounds == [["offsets"]]
    assert not queue.put_here("late")
