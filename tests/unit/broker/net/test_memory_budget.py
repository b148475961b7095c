"""Bytes that requests may hold: lent, given back, and waited for in turn."""

from cordwood.broker.net.memory_budget import MemoryBudget


def taken(budget: MemoryBudget, size: int, granted: list[int]) -> bool:
    return budget.take(size, lambda: granted.append(size))


def test_what_fits_is_lent_at_once() -> None:
    budget, granted = MemoryBudget(100), list[int]()

    assert taken(budget, 60, granted)
    assert taken(budget, 40, granted)

    assert budget.lent == 100
    assert granted == []


def test_what_does_not_fit_waits_until_enough_is_given_back() -> None:
    budget, granted = MemoryBudget(100), list[int]()
    assert taken(budget, 80, granted)

    assert not taken(budget, 50, granted)
    assert granted == []
    budget.give_back(80)

    assert granted == [50]
    assert budget.lent == 50


def test_who_waits_is_served_in_turn_and_nobody_overtakes() -> None:
    budget, granted = MemoryBudget(100), list[int]()
    assert taken(budget, 90, granted)
    assert not taken(budget, 80, granted)

    assert not taken(budget, 5, granted)  # it would fit, and has to wait all the same
    budget.give_back(90)

    assert granted == [80, 5]
    assert budget.lent == 85


def test_one_return_may_serve_several() -> None:
    budget, granted = MemoryBudget(100), list[int]()
    assert taken(budget, 100, granted)
    for size in (30, 30, 30, 30):
        assert not taken(budget, size, granted)

    budget.give_back(100)

    assert granted == [30, 30, 30]
    budget.give_back(30)
    assert granted == [30, 30, 30, 30]


def test_a_request_above_the_limit_is_served_alone() -> None:
    budget, granted = MemoryBudget(100), list[int]()
    assert taken(budget, 10, granted)

    assert not taken(budget, 500, granted)
    budget.give_back(10)

    assert granted == [500]
    assert not taken(budget, 1, granted)
    budget.give_back(500)
    assert granted == [500, 1]


def test_who_is_granted_may_give_back_at_once() -> None:
    budget = MemoryBudget(100)
    order: list[str] = []

    def first() -> None:
        order.append("first")
        budget.give_back(100)  # its connection was closed while it waited

    assert budget.take(100, lambda: None)
    assert not budget.take(100, first)
    assert not budget.take(100, lambda: order.append("second"))

    budget.give_back(100)

    assert order == ["first", "second"]
    assert budget.lent == 100
