from __future__ import annotations

import pytest

from bench.null_server import RequestCounter


@pytest.mark.parametrize("portion", [1, 2, 3, 5, 7, 100])
def test_requests_are_counted_whatever_portions_they_come_in(portion: int) -> None:
    sizes = [1, 5, 300, 2, 9]
    stream = b"".join(size.to_bytes(4, "big") + bytes(size) for size in sizes)
    counter = RequestCounter()

    completed = [
        counter.feed(memoryview(stream)[at : at + portion]) for at in range(0, len(stream), portion)
    ]

    assert sum(completed) == len(sizes)
    assert completed[-1] >= 1


def test_a_request_that_is_not_whole_does_not_count() -> None:
    counter = RequestCounter()

    assert counter.feed(memoryview(b"\x00\x00\x00\x05abcd")) == 0
    assert counter.feed(memoryview(b"e\x00\x00")) == 1
