"""Buffers for large frames are kept while they are used again, and no longer."""

from cordwood.broker.net.memory.frame_pool import FramePool
from cordwood.quantities import KIB, MIB

SIZE = 256 * KIB


def used_at_once(pool: FramePool, count: int, size: int = SIZE) -> None:
    buffers = [pool.take(size) for _ in range(count)]
    for buffer in buffers:
        pool.give_back(buffer)


def test_a_buffer_is_used_again() -> None:
    pool = FramePool()
    first = pool.take(SIZE)
    pool.give_back(first)

    assert pool.keeps(SIZE - 1)
    assert pool.take(SIZE - 1) is first


def test_buffers_that_are_needed_between_two_looks_stay() -> None:
    pool = FramePool()
    for _ in range(4):
        used_at_once(pool, 3)
        pool.trim()

        assert pool.kept_bytes == 3 * SIZE


def test_buffers_that_were_needed_once_are_freed() -> None:
    pool = FramePool()
    used_at_once(pool, 20)
    pool.trim()
    used_at_once(pool, 2)

    pool.trim()

    assert pool.kept_bytes == 2 * SIZE


def test_buffers_that_come_from_another_loop_do_not_pile_up() -> None:
    """As with clients that connect, send one large request and leave."""
    pool, other = FramePool(), FramePool()
    for _ in range(10):
        pool.give_back(other.take(SIZE))
        used_at_once(pool, 1)
        pool.trim()

    assert pool.kept_bytes <= 2 * SIZE


def test_an_idle_loop_keeps_nothing() -> None:
    pool = FramePool()
    used_at_once(pool, 4)
    used_at_once(pool, 2, MIB)
    pool.trim()

    pool.trim()

    assert pool.kept_bytes == 0
    assert not pool.keeps(SIZE)


def test_the_limit_counts_what_was_freed() -> None:
    pool = FramePool()
    for _ in range(5):
        used_at_once(pool, 40)
        assert pool.kept_bytes == 8 * MIB
        pool.trim()
        pool.trim()
        assert pool.kept_bytes == 0
