"""The answers of a row know when their requests came, however the row grew."""

from collections import deque
from types import SimpleNamespace
from typing import Any

from cordwood.broker.net.requests.answer import Answer
from cordwood.broker.net.rows.answer_row import AnswerRow

VERSION, ACKS = 9, -1


class _Connection:
    """Owes nothing, and is in the row."""

    def __init__(self, loop: SimpleNamespace) -> None:
        self.loop = loop
        self.answers: deque[Answer] = deque()
        self.is_in_row = True

    def leave_row(self) -> None:
        self.is_in_row = False


def row_of(*turns: tuple[float, int]) -> AnswerRow:
    """Grown in these turns, each by so many requests."""
    loop = SimpleNamespace(turn_s=0.0)
    row: AnswerRow | None = None
    for loop.turn_s, count in turns:
        connections: list[Any] = [_Connection(loop) for _ in range(count)]
        ids = list(range(count))
        if row is None:
            row = AnswerRow(connections, ids, VERSION, ACKS)
        else:
            row.extend(connections, ids)
    assert row is not None
    return row


def test_requests_of_one_turn_came_together_however_often_it_extended_the_row() -> None:
    row = row_of((1.0, 2), (1.0, 1), (1.0, 3), (2.5, 1), (2.5, 2))

    assert row.starts(0, row.count) == [(6, 1.0), (3, 2.5)]
    assert row.starts(4, 8) == [(2, 1.0), (2, 2.5)]
    assert row.starts(7, 8) == [(1, 2.5)]


def test_each_answer_of_its_own_has_the_time_of_its_request() -> None:
    row = row_of((1.0, 2), (1.0, 1), (2.0, 1), (4.0, 3), (4.0, 1))

    singles = row.singles()

    assert [each.started_s for each in singles] == [1.0, 1.0, 1.0, 2.0, 4.0, 4.0, 4.0, 4.0]
    assert [list(connection.answers) for connection in row.connections] == [
        [each] for each in singles
    ]
    assert not any(connection.is_in_row for connection in row.connections)
