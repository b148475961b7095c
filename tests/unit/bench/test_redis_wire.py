from __future__ import annotations

import pytest

from bench.redis_wire import command, is_added, is_refused, xadd


def test_a_command_is_an_array_of_words_with_their_sizes() -> None:
    assert command(b"PING") == b"*1\r\n$4\r\nPING\r\n"


def test_a_value_may_hold_any_bytes() -> None:
    request = xadd(b"s", b"\r\n$0")

    assert request == b"*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$1\r\nv\r\n$4\r\n\r\n$0\r\n"


@pytest.mark.parametrize("size", [0, 1, 3, 5, 19, 20])
def test_an_answer_is_taken_only_when_it_is_whole(size: int) -> None:
    answer = b"$15\r\n1712345678901-0\r\n"

    assert not is_added(answer[:size])
    assert is_added(answer)


def test_a_refusal_is_not_an_acknowledgement() -> None:
    answer = b"-MISCONF Errors writing to the AOF file\r\n"

    assert is_refused(answer)
    assert not is_added(answer)
