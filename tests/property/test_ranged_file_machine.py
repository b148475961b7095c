"""A file that is read by range is the file that was archived, whatever is evicted and fails."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cordwood.archive.cache.held_pieces import PieceMemory
from cordwood.archive.fetching import read_streams
from cordwood.errors import StorageError
from cordwood.quantities import KIB
from cordwood.storage.files import File
from fakes.ranged_bench import RangedBench

BLOCK = 4 * KIB
SIZES = [150_000, 70_001, BLOCK, 1]
NUMBERS = st.integers(0, len(SIZES) - 1)
POSITIONS = st.integers(0, max(SIZES))
LENGTHS = st.one_of(st.integers(1, 200), st.integers(1, 150_000))


class RangedFileMachine(RuleBasedStateMachine):
    """The model: the bytes. Damaged objects are refused, and never returned in part."""

    @initialize(
        cache_bytes=st.sampled_from([1, 20_000, 100_000, 1 << 30]),
        memory_bytes=st.sampled_from([0, 80_000, 1 << 30]),
        run_min=st.sampled_from([8 * KIB, 512 * KIB]),  # from when on a reader reads in order
    )
    def open(self, cache_bytes: int, memory_bytes: int, run_min: int) -> None:
        self.patch = patch.object(read_streams, "_RUN_MIN", run_min)
        self.patch.start()
        self.directory = tempfile.TemporaryDirectory()
        self.bench = RangedBench(
            Path(self.directory.name), SIZES, cache_bytes=cache_bytes, block=BLOCK
        )
        self.bench.threads.memory = PieceMemory(memory_bytes)
        self.memory_bytes = memory_bytes
        self.is_sound = True
        self.held: list[tuple[File, int, bytes]] = []

    @rule(number=NUMBERS, position=POSITIONS, length=LENGTHS)
    def read(self, number: int, position: int, length: int) -> None:
        wanted = self.bench.contents[number][position : position + length]
        try:
            found = self.bench.files[number].read_at(position, length)
        except StorageError:
            assert not self.is_sound
        else:
            assert found == wanted

    @rule(number=NUMBERS, position=POSITIONS, length=LENGTHS)
    def hold(self, number: int, position: int, length: int) -> None:
        content = self.bench.contents[number]
        if position >= len(content):
            return
        length = min(length, len(content) - position)
        try:
            file = self.bench.files[number].holding(position, length)
        except StorageError:
            assert not self.is_sound
        else:
            self.held = [*self.held[-4:], (file, position, content[position : position + length])]

    @rule(number=NUMBERS, position=POSITIONS, length=LENGTHS, late=st.booleans())
    def fail(self, number: int, position: int, length: int, late: bool) -> None:
        self.bench.failing.fail_at(1, late=late)
        try:
            self.read(number, position, length)
        except OSError as error:
            assert "network" in str(error)
        finally:
            self.bench.failing.heal()

    @rule(number=NUMBERS, at=POSITIONS)
    def damage(self, number: int, at: int) -> None:
        content = bytearray(self.bench.contents[number])
        content[at % len(content)] ^= 0x40
        self.bench.damage(number, bytes(content))
        self.is_sound = False

    @rule(number=NUMBERS, size=POSITIONS)
    def resize(self, number: int, size: int) -> None:
        self.bench.damage(number, (self.bench.contents[number] + bytes(200_000))[:size])
        self.is_sound = False

    @rule()
    def heal(self) -> None:
        self.bench.heal()
        self.is_sound = True

    @rule(number=NUMBERS)
    def close_file(self, number: int) -> None:
        self.bench.files[number].close()

    @rule(number=NUMBERS)
    def lose_the_local_file(self, number: int) -> None:
        self.bench.files[number].close()
        (Path(self.directory.name) / "cache" / f"{number}.log").unlink(missing_ok=True)

    @invariant()
    def what_readers_hold_does_not_change(self) -> None:
        for file, position, wanted in self.held:
            assert file.read_at(position, len(wanted)) == wanted

    @invariant()
    def the_cache_is_bounded(self) -> None:
        assert self.bench.cache.size_bytes <= max(self.bench.cache.bytes_max, *SIZES)

    @invariant()
    def the_memory_is_bounded(self) -> None:
        assert 0 <= self.bench.threads.memory.size_bytes <= self.memory_bytes

    @rule(number=NUMBERS, step=st.sampled_from([10_000, 50_000]))
    def scan(self, number: int, step: int) -> None:
        for at in range(0, SIZES[number], step):
            self.read(number, at, step)

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.close()
            assert self.bench.threads.memory.size_bytes == 0
            self.directory.cleanup()
            self.patch.stop()


TestRangedFile = RangedFileMachine.TestCase
