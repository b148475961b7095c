"""What is read once and in order waits in memory and is not written to the disk."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cordwood.archive.cache.held_pieces import HeldPiece, PieceMemory, Room
from cordwood.archive.cache.kept_blocks import COMING
from cordwood.archive.fetching.fetch_threads import FetchThreads
from cordwood.errors import StorageError
from cordwood.quantities import KIB, MIB
from fakes.interrupter import interrupt
from fakes.ranged_bench import RangedBench

SIZE = 24 * MIB + 1234
STEP = 512 * KIB
NOT_RECOGNISED = 2 * MIB  # a reader is recognised after a few reads; until then it fills the cache


class Owner:
    def __init__(self) -> None:
        self.dropped: list[HeldPiece] = []

    def drop_held(self, piece: HeldPiece) -> None:
        self.dropped.append(piece)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[RangedBench]:
    bench = RangedBench(tmp_path, [SIZE, SIZE])
    yield bench
    bench.close()


def scan(bench: RangedBench, number: int = 0, *, end: int = SIZE) -> None:
    content = bench.contents[number]
    buffer = bytearray(STEP)
    for at in range(0, end, STEP):
        got = bench.files[number].read_into(at, memoryview(buffer))
        assert buffer[:got] == content[at : at + STEP]


def quiet(bench: RangedBench) -> None:
    """Wait until nothing is fetched any more."""
    bench.threads.close(60)


# --- a scan ---------------------------------------------------------------------------------


def test_what_a_scan_reads_is_not_written_to_the_disk(bench: RangedBench) -> None:
    scan(bench, 0)
    scan(bench, 1)

    assert bench.cache.size_bytes <= NOT_RECOGNISED
    assert bench.cache.fetched_bytes == 2 * SIZE, "nothing is fetched twice"


def test_a_scan_leaves_nothing_in_memory(bench: RangedBench) -> None:
    scan(bench, 0)
    scan(bench, 1)

    assert bench.threads.memory.size_bytes == 0


def test_reads_that_go_back_a_little_fetch_nothing_twice(bench: RangedBench) -> None:
    content = bench.contents[0]
    at = 0
    while at < SIZE:
        assert bench.files[0].read_at(at, STEP) == content[at : at + STEP]
        at += STEP - 61 if at + STEP < SIZE else STEP  # the start of a batch is read again
    quiet(bench)

    # The next file is fetched ahead, and may be on its way.
    assert SIZE <= bench.cache.fetched_bytes <= 2 * SIZE


def test_what_is_read_in_order_again_is_kept_in_the_cache(bench: RangedBench) -> None:
    scan(bench, 1)
    scan(bench, 1)
    fetched = bench.cache.fetched_bytes
    kept = bench.cache.size_bytes

    scan(bench, 1)

    assert kept == SIZE
    assert fetched <= 2 * SIZE
    assert bench.cache.fetched_bytes == fetched


def test_two_readers_in_order_fetch_nothing_twice(tmp_path: Path) -> None:
    bench = RangedBench(tmp_path, [SIZE])
    content, middle = bench.contents[0], 12 * MIB

    for at in range(0, middle, STEP):
        for start in (at, middle + at):
            assert bench.files[0].read_at(start, STEP) == content[start : start + STEP]
    assert bench.files[0].read_at(2 * middle, STEP) == content[2 * middle :]

    assert bench.cache.fetched_bytes == SIZE
    bench.close()


def test_who_needs_a_file_gets_what_is_in_memory_written_to_it(bench: RangedBench) -> None:
    scan(bench, 0, end=6 * MIB)
    at, content = 6 * MIB, bench.contents[0]
    assert bench.files[0].read_at(at, 100) == content[at : at + 100]
    bench.damage(0, bytes(SIZE))  # so it cannot come from there
    cached = bench.cache.size_bytes

    file = bench.files[0].holding(at, 100)

    assert file.read_at(at, 100) == content[at : at + 100]
    assert bench.cache.size_bytes > cached


def test_closed_threads_keep_nothing_in_memory(bench: RangedBench) -> None:
    scan(bench, 0, end=6 * MIB)

    bench.threads.close(60)

    assert bench.threads.memory.size_bytes == 0
    scan(bench, 0)


def test_without_room_in_memory_a_scan_goes_through_the_cache(bench: RangedBench) -> None:
    room = Room(64 * MIB)
    assert bench.threads.memory.reserve(room)

    scan(bench, 1)

    assert bench.cache.size_bytes == SIZE
    assert bench.cache.fetched_bytes == SIZE


def test_a_damaged_block_is_never_held(bench: RangedBench) -> None:
    content = bytearray(bench.contents[1])
    content[20 * MIB] ^= 1
    bench.damage(1, bytes(content))

    with pytest.raises(StorageError, match="SHA-256"):
        scan(bench, 1)

    bench.heal()
    scan(bench, 1)
    quiet(bench)
    assert bench.threads.memory.size_bytes == 0


def test_readers_in_order_and_at_random_and_of_files_see_only_what_was_archived(
    tmp_path: Path,
) -> None:
    bench = RangedBench(tmp_path, [6 * MIB] * 3, cache_bytes=8 * MIB)
    bench.threads.memory = PieceMemory(10 * MIB)
    wrong: list[tuple[int, int]] = []

    def read(seed: int) -> None:
        rng = random.Random(seed)
        at, number = 0, seed % 3
        for _ in range(120):
            if rng.random() < 0.03 or at >= 6 * MIB:
                at, number = rng.randrange(6 * MIB), rng.randrange(3)
            size = rng.choice([61, 100_000, 700_000])
            file = bench.files[number]
            if rng.random() < 0.1:
                found = file.holding(at, size).read_at(at, min(size, 6 * MIB - at))
            else:
                found = file.read_at(at, size)
            if found != bench.contents[number][at : at + size]:
                wrong.append((number, at))
            at += size

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    quiet(bench)

    assert wrong == []
    assert bench.threads.memory.size_bytes == 0
    bench.close()


# --- the memory -----------------------------------------------------------------------------


def piece(owner: Owner, memory: PieceMemory, size: int = 40) -> HeldPiece:
    room = Room(size)
    assert memory.reserve(room)
    held = HeldPiece(owner, 0, 1, 0, bytes(size))
    assert memory.add(held, room)
    return held


def test_the_memory_has_a_limit() -> None:
    memory = PieceMemory(100)
    owner = Owner()
    piece(owner, memory)
    piece(owner, memory)

    assert not memory.reserve(Room(40))
    assert (memory.size_bytes, owner.dropped) == (80, [])


def test_pieces_that_were_read_to_their_end_make_room() -> None:
    memory = PieceMemory(100)
    owner = Owner()
    first, second = piece(owner, memory), piece(owner, memory)
    first.note_read(39)
    second.note_read(40)

    room = Room(40)
    assert memory.reserve(room)
    assert (memory.size_bytes, owner.dropped) == (80, [second])


def test_pieces_that_nobody_came_for_are_dropped() -> None:
    memory = PieceMemory(100)
    owner = Owner()
    held = piece(owner, memory)

    memory.drop_idle()
    assert owner.dropped == []
    memory.drop_idle(0)

    assert owner.dropped == [held]
    assert memory.size_bytes == 0


def test_a_piece_is_removed_once() -> None:
    memory = PieceMemory(100)
    held = piece(Owner(), memory)

    memory.remove([held])
    memory.remove([held])

    assert memory.size_bytes == 0


def test_a_closed_memory_takes_nothing() -> None:
    memory = PieceMemory(100)
    owner = Owner()
    held, room = piece(owner, memory), Room(40)
    assert memory.reserve(room)

    memory.close()

    assert owner.dropped == [held]
    assert not memory.reserve(Room(40))
    assert not memory.add(HeldPiece(owner, 0, 1, 0, bytes(40)), room)
    memory.give_back(room)
    assert memory.size_bytes == 0


def test_room_that_nobody_gave_back_is_free_again() -> None:
    memory = PieceMemory(100)

    assert memory.reserve(Room(100))

    assert memory.size_bytes == 0


def test_pieces_of_a_removed_file_do_not_stay_in_memory(bench: RangedBench) -> None:
    scan(bench, 0, end=6 * MIB)
    partial = bench.files[0]._partial
    assert partial is not None
    assert partial.kept.held

    bench.files[0].release()

    assert partial.kept.held == {}


# --- interrupts -----------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["read_at", "holding"])
def test_after_an_interrupt_all_is_read_and_no_memory_is_lost(tmp_path: Path, way: str) -> None:
    step, size = 256 * KIB, 2 * MIB
    where: str | None = ""
    place = 0
    bench = RangedBench(tmp_path, [size])
    while where is not None:
        place += 1
        bench.threads = FetchThreads(threads_max=0)  # the reader fetches by itself
        bench.use(bench.failing)
        file, content = bench.files[0], bench.contents[0]
        for at in range(0, MIB + step, step):
            file.read_at(at, step)
        start = MIB + step if way == "read_at" else MIB

        where = interrupt(lambda: getattr(file, way)(start, step), place)  # noqa: B023

        assert COMING not in (file._partial.kept.blocks if file._partial else b""), where
        for at in range(0, size, step):
            assert file.read_at(at, step) == content[at : at + step], where
        bench.threads.close()
        assert bench.threads.memory.size_bytes == 0, where
    bench.close()
    assert place > 100


def test_an_interrupt_after_a_failed_fetch_leaves_no_reader_waiting(tmp_path: Path) -> None:
    bench = RangedBench(tmp_path, [MIB])
    where: str | None = ""
    place = 0
    while where is not None:
        place += 1
        bench.heal()
        bench.use(bench.failing)
        file = bench.files[0]
        file.read_at(0, KIB)
        bench.damage(0, bytes(MIB))

        def read() -> None:
            with suppress(StorageError):
                file.read_at(MIB // 2, KIB)  # noqa: B023

        where = interrupt(read, place)

        assert COMING not in (file._partial.kept.blocks if file._partial else b""), where
    bench.close()
    assert place > 50
