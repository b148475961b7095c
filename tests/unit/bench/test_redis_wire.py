from __future__ import annotations

import pytest

from bench.redis_wire import (
    AddCounter,
    RedisError,
    command,
    is_added,
    is_refused,
    last_id,
    lines_of_read,
    xadd,
    xread,
)


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


def test_added_entries_are_counted_whatever_portions_their_ids_come_in() -> None:
    said = b"$15\r\n1712345678901-0\r\n$15\r\n1712345678901-1\r\n"

    for size in range(1, len(said)):
        counter = AddCounter()
        pieces = [said[at : at + size] for at in range(0, len(said), size)]

        assert sum(counter.feed(piece) for piece in pieces) == 2


@pytest.mark.parametrize("before", [b"", b"$15\r\n1712345678901-0\r\n"])
def test_a_refusal_among_many_answers_is_an_error(before: bytes) -> None:
    counter = AddCounter()

    with pytest.raises(RedisError, match="OOM"):
        counter.feed(before + b"-OOM command not allowed\r\n")


def test_entries_are_read_after_the_last_id_of_those_before() -> None:
    entry = b"*2\r\n$3\r\n%b\r\n*2\r\n$1\r\nv\r\n$4\r\n\r$0!\r\n"
    answer = b"*1\r\n*2\r\n$5\r\nbench\r\n*2\r\n" + entry % b"7-0" + entry % b"7-1"

    assert answer.count(b"\n") == lines_of_read(2)
    assert last_id(answer) == b"7-1"
    assert xread(b"bench", b"7-1", 2).endswith(b"$7\r\nSTREAMS\r\n$5\r\nbench\r\n$3\r\n7-1\r\n")
