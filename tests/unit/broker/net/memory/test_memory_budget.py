"""Memory for large frames: lent in shares, within the limit, so that each can be received."""

from random import Random

import pytest

from cordwood.broker.net.memory.memory_budget import FrameMemory, MemoryBudget


def taken(budget: MemoryBudget, frame: FrameMemory, count: int, granted: list[int]) -> bool:
    return budget.take(frame, count, lambda: granted.append(count))


def test_what_fits_is_lent_at_once() -> None:
    budget, granted = MemoryBudget(100), list[int]()

    assert taken(budget, FrameMemory(60), 60, granted)
    assert taken(budget, FrameMemory(40), 40, granted)

    assert budget.lent == 100
    assert not budget.is_short
    assert granted == []


def test_what_is_announced_costs_nothing() -> None:
    budget, granted = MemoryBudget(100), list[int]()

    for _ in range(10):
        assert taken(budget, FrameMemory(50), 1, granted)

    assert budget.lent == 10
    assert taken(budget, FrameMemory(90), 90, granted)


def test_what_does_not_fit_waits_until_enough_is_given_back() -> None:
    budget, granted = MemoryBudget(100), list[int]()
    large = FrameMemory(80)
    assert taken(budget, large, 80, granted)

    assert not taken(budget, FrameMemory(50), 50, granted)
    assert granted == []
    assert budget.is_short
    budget.give_back(large)

    assert granted == [50]
    assert budget.lent == 50
    assert not budget.is_short


def test_a_share_that_would_leave_no_frame_able_to_finish_waits() -> None:
    budget, granted = MemoryBudget(100), list[int]()
    first, second = FrameMemory(100), FrameMemory(100)
    assert taken(budget, first, 60, granted)

    assert not taken(budget, second, 30, granted)  # then neither would find its rest
    assert taken(budget, first, 40, granted)
    budget.give_back(first)

    assert granted == [30]


def test_a_small_frame_passes_large_ones_that_wait() -> None:
    budget, granted = MemoryBudget(100), list[int]()
    assert taken(budget, FrameMemory(100), 60, granted)
    assert not taken(budget, FrameMemory(100), 50, granted)

    assert taken(budget, FrameMemory(30), 30, granted)


def test_a_frame_that_is_given_up_while_it_waits_gets_nothing() -> None:
    budget, granted = MemoryBudget(100), list[int]()
    first, second = FrameMemory(100), FrameMemory(100)
    assert taken(budget, first, 100, granted)
    assert not taken(budget, second, 100, granted)

    budget.give_back(second)
    budget.give_back(first)
    budget.give_back(first)

    assert granted == []
    assert budget.lent == 0


def test_who_is_granted_may_give_back_at_once() -> None:
    budget = MemoryBudget(100)
    frames = [FrameMemory(100) for _ in range(3)]
    order: list[str] = []

    def first() -> None:
        order.append("first")
        budget.give_back(frames[1])  # its connection was closed while it waited

    assert budget.take(frames[0], 100, lambda: None)
    assert not budget.take(frames[1], 100, first)
    assert not budget.take(frames[2], 100, lambda: order.append("second"))

    budget.give_back(frames[0])

    assert order == ["first", "second"]
    assert budget.lent == 100


@pytest.mark.parametrize("seed", range(200))
def test_as_long_as_clients_send_every_frame_is_received_within_the_limit(seed: int) -> None:
    random = Random(seed)
    limit = random.randint(10, 1000)
    budget = MemoryBudget(limit)
    frames = [FrameMemory(random.randint(1, limit)) for _ in range(random.randint(1, 40))]
    ready = list(frames)

    finished = 0
    while ready:
        frame = ready.pop(random.randrange(len(ready)))
        if not frame.rest:
            finished += 1
            budget.give_back(frame)
            continue
        count = random.randint(1, frame.rest)
        if budget.take(frame, count, lambda frame=frame: ready.append(frame)):  # type: ignore[misc]
            ready.append(frame)
        assert 0 <= budget.lent <= limit

    assert finished == len(frames)  # none waits for ever
    assert budget.lent == 0
