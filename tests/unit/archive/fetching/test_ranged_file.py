"""A log file in an archive is read by range, and no byte of it is believed unverified."""

import io
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.archive.cache.kept_blocks import COMING
from cordwood.archive.fetching import partial_file
from cordwood.archive.fetching.fetch_threads import THREADS_MAX
from cordwood.archive.fetching.partial_file import PartialFile
from cordwood.archive.fetching.ranged_file import AHEAD_BYTES
from cordwood.archive.objects.object_port import PIECE_BYTES
from cordwood.errors import StorageError
from cordwood.quantities import KIB, MIB
from fakes.own_threads import OwnThreads
from fakes.ranged_bench import BLOCK, RangedBench
from fakes.watched_objects import WatchedObjects
from wire.waiting import await_true

SIZE = 3 * MIB + 1234


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[RangedBench]:
    bench = RangedBench(tmp_path, [SIZE])
    yield bench
    bench.close()


def ranges(bench: RangedBench) -> int:
    return sum(name == "get_range" for name, _ in bench.failing.call_log)


def test_a_read_fetches_only_what_lies_near(bench: RangedBench) -> None:
    assert bench.files[0].read_at(2 * MIB, 61) == bench.contents[0][2 * MIB :][:61]

    assert ranges(bench) == 1
    assert bench.cache.fetched_bytes <= 2 * BLOCK


def test_a_header_and_the_batch_behind_it_are_one_request(bench: RangedBench) -> None:
    position = 1 * MIB - 30  # the header itself lies in two blocks
    file = bench.files[0]

    file.read_at(position, 61)
    file.read_into(position, memoryview(bytearray(32 * KIB)))

    assert ranges(bench) == 1


def test_what_the_index_promises_is_fetched_at_once(bench: RangedBench) -> None:
    file = bench.files[0]
    size = 400 * KIB  # too little to be a scan, for which threads would fetch ahead
    file.expect(1 * MIB, 1 * MIB + size)

    file.read_at(1 * MIB, 61)
    file.read_at(1 * MIB, size)

    assert ranges(bench) == 1


def test_the_end_of_the_file_cuts_a_read_short(bench: RangedBench) -> None:
    file, content = bench.files[0], bench.contents[0]
    buffer = bytearray(100)

    assert file.read_at(SIZE - 10, 100) == content[-10:]
    assert file.read_into(SIZE - 10, memoryview(buffer)) == 10
    assert (file.read_at(SIZE, 5), file.read_into(SIZE + 5, memoryview(buffer))) == (b"", 0)
    assert file.size() == SIZE
    assert bytes(file.map()) == content


def test_a_block_is_fetched_once(bench: RangedBench) -> None:
    file = bench.files[0]
    for _ in range(3):
        file.read_at(70_000, 10)
        file.close()

    assert ranges(bench) == 1


def test_it_cannot_be_written_and_has_no_descriptor_of_its_own(bench: RangedBench) -> None:
    file = bench.files[0]
    for change in (lambda: file.write_at(0, b"x"), lambda: file.truncate_to(0), file.fileno):
        with pytest.raises(io.UnsupportedOperation):
            change()

    assert file.holding(5, 10).fileno() > 0


# --- damage and failures --------------------------------------------------------------------


def test_a_damaged_block_is_an_error_and_the_others_are_read(bench: RangedBench) -> None:
    content = bytearray(bench.contents[0])
    content[1 * MIB + 5] ^= 1
    bench.damage(0, bytes(content))
    file = bench.files[0]

    for _ in range(2):
        with pytest.raises(StorageError, match="is damaged: its SHA-256 differs from the manifest"):
            file.read_at(1 * MIB, 10)

    assert file.read_at(2 * MIB, 100) == bench.contents[0][2 * MIB :][:100]


@pytest.mark.parametrize("size", [0, 1 * MIB, SIZE - 1, SIZE + 1])
def test_an_object_of_another_size_is_damaged_wherever_it_is_read(
    bench: RangedBench, size: int
) -> None:
    bench.damage(0, (bench.contents[0] * 2)[:size])

    with pytest.raises(StorageError, match="is damaged"):
        bench.files[0].read_at(0, 10)


def test_an_object_that_changes_between_two_reads_is_never_mixed(bench: RangedBench) -> None:
    file = bench.files[0]
    file.read_at(0, 10)
    bench.damage(0, bytes(SIZE))

    assert file.read_at(0, 10) == bench.contents[0][:10]
    with pytest.raises(StorageError, match="SHA-256"):
        file.read_at(2 * MIB, 10)


def test_a_missing_object_is_a_file_not_found(bench: RangedBench) -> None:
    bench.failing.inner.delete("0")

    with pytest.raises(FileNotFoundError):
        bench.files[0].read_at(0, 10)


@pytest.mark.parametrize("late", [False, True])
def test_a_failed_range_can_be_tried_again(bench: RangedBench, late: bool) -> None:
    bench.failing.fail_at(1, late=late)
    with pytest.raises(OSError, match="network"):
        bench.files[0].read_at(0, 10)

    assert bench.files[0].read_at(0, 10) == bench.contents[0][:10]
    assert bench.cache.size_bytes == 2 * BLOCK or bench.cache.size_bytes == BLOCK


def test_who_waits_for_a_failing_thread_tries_by_itself(tmp_path: Path) -> None:
    bench = RangedBench(tmp_path, [SIZE])
    bench.failing.fail_at(1)
    results: list[object] = []

    def read() -> None:
        try:
            results.append(bench.files[0].read_at(0, 10))
        except OSError as error:
            results.append(error)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bench.close()

    assert sum(isinstance(result, OSError) for result in results) == 1
    assert results.count(bench.contents[0][:10]) == 7
    assert ranges(bench) == 2


@pytest.mark.parametrize("way", ["read_at", "holding"])
@pytest.mark.parametrize("who", ["the same thread", "another thread"])
def test_a_block_whose_reader_was_interrupted_in_its_cleanup_is_fetched_by_the_next(
    bench: RangedBench, monkeypatch: pytest.MonkeyPatch, way: str, who: str
) -> None:
    file, content = bench.files[0], bench.contents[0]
    bench.failing.fail_at(1)
    held: list[BaseException] = []
    with monkeypatch.context() as patch:
        patch.setattr(PartialFile, "_give_up", _interrupted)
        try:
            getattr(file, way)(0, 10)
        except KeyboardInterrupt as error:
            if who == "the same thread":
                held.append(error)  # with its traceback, and what that refers to
    assert file._partial is not None
    assert COMING in file._partial.kept.blocks
    results: list[bytes] = []

    def read() -> None:
        results.append(file.read_at(0, 10))

    if who == "the same thread":
        read()
    else:
        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        thread.join(60)

    assert results == [content[:10]]


def _interrupted(*_arguments: object) -> None:
    raise KeyboardInterrupt


def test_a_block_that_a_living_thread_fetches_is_not_taken_over(
    bench: RangedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_file, "LOOK_S", 0.001)
    content = bench.contents[0]
    asked, answering = threading.Event(), threading.Event()

    class Slow(WatchedObjects):
        def get_range(
            self, key: str, position: int, size: int, *, whole: int | None = None
        ) -> bytes:
            asked.set()
            answering.wait(60)
            return super().get_range(key, position, size, whole=whole)

    slow = Slow(bench.failing)
    bench.use(slow)
    file = bench.files[0]
    results: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: results.append(file.read_at(0, 10))) for _ in range(2)
    ]
    threads[0].start()
    asked.wait(60)
    threads[1].start()

    threads[1].join(0.1)  # it looks again, and goes on waiting
    answering.set()
    for thread in threads:
        thread.join()

    assert results == [content[:10]] * 2
    assert slow.calls == 1


# --- the cache ------------------------------------------------------------------------------


def test_what_is_read_stays_within_the_cache(tmp_path: Path) -> None:
    bench = RangedBench(tmp_path, [1 * MIB] * 8, cache_bytes=1 * MIB)
    rng = random.Random(3)

    for _ in range(200):
        number, at = rng.randrange(8), rng.randrange(1 * MIB)
        assert bench.files[number].read_at(at, 100) == bench.contents[number][at : at + 100]
        assert bench.cache.size_bytes <= 1 * MIB

    bench.threads.close(60)  # what is fetched ahead may still push out files
    on_disk = sum(f.stat().st_blocks * 512 for f in (tmp_path / "cache").iterdir())
    assert on_disk <= bench.cache.size_bytes + 8 * 64 * KIB
    bench.close()


def test_a_reader_goes_on_after_its_file_was_removed(tmp_path: Path) -> None:
    bench = RangedBench(tmp_path, [1 * MIB, 1 * MIB], cache_bytes=300_000)
    held = bench.files[0].holding(100_000, 100_000)

    bench.files[1].read_at(0, 300_000)

    assert not (tmp_path / "cache" / "0.log").exists()
    assert held.read_at(100_000, 100_000) == bench.contents[0][100_000:200_000]
    assert bench.files[0].read_at(100_000, 100) == bench.contents[0][100_000:100_100]
    bench.close()


def test_a_file_larger_than_the_cache_is_read(tmp_path: Path) -> None:
    bench = RangedBench(tmp_path, [1 * MIB], cache_bytes=1)

    assert bench.files[0].read_at(0, 1 * MIB) == bench.contents[0]
    bench.close()


def test_many_threads_read_and_evict_and_see_only_what_was_archived(tmp_path: Path) -> None:
    bench = RangedBench(tmp_path, [2 * MIB] * 4, cache_bytes=2 * MIB)
    wrong: list[tuple[int, int]] = []

    def read(seed: int) -> None:
        rng = random.Random(seed)
        at, number = 0, seed % 4
        for _ in range(150):
            if rng.random() < 0.3:
                at, number = rng.randrange(2 * MIB), rng.randrange(4)
            size = rng.choice([61, 1000, 100_000])
            found = bench.files[number].read_at(at, size)
            if found != bench.contents[number][at : at + size]:
                wrong.append((number, at))
            at += size
            if rng.random() < 0.1:
                bench.files[number].close()

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bench.close()

    assert wrong == []


# --- reading ahead --------------------------------------------------------------------------


def scan(bench: RangedBench, number: int = 0, piece: int = 512 * KIB) -> None:
    content = bench.contents[number]
    for at in range(0, len(content), piece):
        assert bench.files[number].read_at(at, piece) == content[at : at + piece]


def test_a_scan_has_several_ranges_under_way_and_not_too_many(tmp_path: Path) -> None:
    bench = RangedBench(tmp_path, [48 * MIB])
    watched = WatchedObjects(bench.failing)
    bench.use(watched)
    watched.await_together(4, position_min=16 * MIB)

    scan(bench)
    bench.close()

    assert 4 <= watched.together_max <= THREADS_MAX + 1
    assert watched.bytes_asked == 48 * MIB, "nothing is fetched twice"
    assert watched.calls <= 48 * MIB // PIECE_BYTES + 12


def test_a_scan_goes_on_into_the_next_files(tmp_path: Path) -> None:
    bench = RangedBench(tmp_path, [2 * MIB] * 6)
    watched = WatchedObjects(bench.failing)
    bench.use(watched)

    scan(bench, 0)
    await_true(lambda: watched.bytes_asked > 2 * MIB)
    bench.threads.close(60)
    fetched = watched.bytes_asked
    bench.close()

    assert fetched <= 2 * MIB + min(AHEAD_BYTES, 10 * MIB)


def test_small_files_add_up_to_one_long_read(tmp_path: Path) -> None:
    bench = RangedBench(tmp_path, [100 * KIB] * 12)
    watched = WatchedObjects(bench.failing)
    bench.use(watched)
    for number in range(8):
        scan(bench, number)

    await_true(lambda: watched.calls > 8)  # somebody fetches ahead
    bench.close()


def test_looking_up_records_fetches_nothing_ahead(tmp_path: Path) -> None:
    bench = RangedBench(tmp_path, [48 * MIB])
    watched = WatchedObjects(bench.failing)
    bench.use(watched)
    rng = random.Random(5)

    for _ in range(20):
        at = rng.randrange(48 * MIB - 40 * KIB)
        bench.files[0].read_at(at, 61)
        bench.files[0].read_at(at, 32 * KIB)
    bench.close()

    assert watched.calls <= 20
    assert watched.bytes_asked <= 20 * 3 * BLOCK


def test_what_fails_ahead_is_the_readers_error_only_if_it_gets_there(tmp_path: Path) -> None:
    bench = RangedBench(tmp_path, [16 * MIB])
    content = bytearray(bench.contents[0])
    content[15 * MIB] ^= 1
    bench.damage(0, bytes(content))

    for at in range(0, 14 * MIB, 1 * MIB):
        assert bench.files[0].read_at(at, 1 * MIB) == bench.contents[0][at : at + 1 * MIB]
    with pytest.raises(StorageError, match="SHA-256"):
        bench.files[0].read_at(14 * MIB, 2 * MIB)
    bench.close()


def test_closing_in_the_middle_of_a_scan_leaves_a_file_that_can_be_read(tmp_path: Path) -> None:
    with OwnThreads() as own:
        bench = RangedBench(tmp_path, [16 * MIB])
        for at in range(0, 6 * MIB, 1 * MIB):
            bench.files[0].read_at(at, 1 * MIB)

        bench.threads.close(60)

        scan(bench)
        assert own.names == []
    bench.close()


def test_a_second_file_with_the_same_path_takes_nothing_from_the_first(bench: RangedBench) -> None:
    old, content = bench.files[0], bench.contents[0]
    size = len(content)
    old.holding(0, size)
    running = old.holding(0, size)
    bench.use(bench.failing)

    assert bench.files[0].read_at(size - 100, 100) == content[-100:]

    assert running.read_at(0, size) == content
    assert bench.cache.size_bytes < size, "the first file is not counted any more"
    assert old.read_at(0, size) == content
    assert bench.files[0].read_at(0, size) == content
    assert bench.cache.size_bytes <= size


def test_a_closed_file_does_not_open_the_file_of_another(bench: RangedBench) -> None:
    old, content = bench.files[0], bench.contents[0]
    size = len(content)
    old.holding(0, size)
    old.close()
    bench.use(bench.failing)

    bench.files[0].read_at(size - 100, 100)

    assert old.read_at(0, size) == content
