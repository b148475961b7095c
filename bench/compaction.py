"""Compacting a log: one thread, nine of ten records superseded, the rest synced to the disk.

The rate is that of the input: bytes or records of the original log, read from the page cache.
Compaction reads and checks the input twice, once for its keys and once to copy the records that
stay. The limit does only that, and writes and syncs as many bytes. Kafka's cleaner, with its
default of one thread, gets the same batches.
"""

import os
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.broker_servers import KafkaServer, find_kafka, running
from bench.kafka_cleaner import CLEANER_PROPERTIES, Cleaning, KafkaCleaner
from bench.measure import Context, Row, RowMaker, Stopwatch, Target, measure_row
from bench.observed_fs import UnsyncedFileSystem
from bench.peers import PIECE_BYTES, new_file, read_seconds
from bench.workload import OS, TOPIC, fresh_path, log_files, log_of
from cordwood.format.compression import Codec
from cordwood.log.compaction.compaction_run import CompactionOutcome
from cordwood.log.store.store import Store, StoreSetup
from cordwood.quantities import KIB, MIB
from interop.kafka_peer import KafkaUnavailableError, kafka_version

_UNIQUE_PART = 10  # records per key
_SEGMENT_BYTES = 128 * MIB


def row_makers() -> dict[str, RowMaker]:
    """Each makes one row; Kafka starts with the first that needs it."""
    kafka = _Kafka()
    return {
        "1 KiB": partial(large_value_rows, kafka=kafka),
        "100 B": partial(small_value_rows, kafka=kafka),
        "100 B, all keys different": unique_key_rows,
        "lz4": compressed_rows,
    }


@dataclass(frozen=True, slots=True)
class DirtyLog:
    """A store whose log was never compacted; each run uses a copy."""

    path: Path
    size_bytes: int
    records: int
    kept_bytes: int


class _Kafka:
    """Apache Kafka's cleaner, if it can run; otherwise `note` has the reason."""

    def __init__(self) -> None:
        self._cleaner: KafkaCleaner | None = None
        self.note = ""

    def peers(
        self, context: Context, dirty: "DirtyLog", figure: Callable[[Cleaning], float]
    ) -> dict[str, Callable[[], float]]:
        """Kafka's part of a row about that log."""
        if self._cleaner is None and not self.note:
            self._start(context)
        cleaner = self._cleaner
        if cleaner is None:
            return {}
        files = [path for path in log_files(dirty.path) if path.stat().st_size]
        return {
            f"Kafka {kafka_version()}'s cleaner": lambda: figure(
                cleaner.clean(files, segment_bytes=_SEGMENT_BYTES)
            )
        }

    def _start(self, context: Context) -> None:
        try:
            tools = find_kafka()
        except KafkaUnavailableError as error:
            self.note = f"; Kafka skipped: {error}"
            return
        path = fresh_path(context.directory, "kafka")
        server = KafkaServer(tools, path, properties=CLEANER_PROPERTIES)
        context.resources.enter_context(running(server))
        self._cleaner = KafkaCleaner(server)
        context.facts["kafka"] = kafka_version()


def large_value_rows(context: Context, kafka: _Kafka) -> list[Row]:
    dirty = _prepare(context, value_size=KIB, total_bytes=context.pick(768, 192) * MIB)
    peers = kafka.peers(context, dirty, lambda done: done.size_bytes / done.seconds / 1e6)
    title, target = "compaction, 1 KiB values", Target(bound=400.0)
    return [_megabytes_row(context, dirty, title, target, peers=peers, more=kafka.note)]


def compressed_rows(context: Context) -> list[Row]:
    dirty = _prepare(
        context, value_size=KIB, total_bytes=context.pick(384, 128) * MIB, codec=Codec.LZ4
    )
    return [_megabytes_row(context, dirty, "compaction, 1 KiB values in lz4 batches", None)]


def _megabytes_row(
    context: Context,
    dirty: DirtyLog,
    title: str,
    target: Target | None,
    *,
    peers: Mapping[str, Callable[[], float]] | None = None,
    more: str = "",
) -> Row:
    row = measure_row(
        title,
        lambda: dirty.size_bytes / _compaction_seconds(context, dirty) / 1e6,
        runs=context.runs,
        durability="disk",
        unit="MB/s",
        limit=(
            "read + crc32c twice, write",
            lambda: dirty.size_bytes / _limit(context, dirty) / 1e6,
        ),
        peers=peers,
        target=target,
        note=_note(dirty) + more,
    )
    shutil.rmtree(dirty.path)
    return row


def small_value_rows(context: Context, kafka: _Kafka) -> list[Row]:
    dirty = _prepare(context, value_size=100, total_bytes=context.pick(400, 150) * 1_000_000)
    peers = kafka.peers(context, dirty, lambda done: done.records / done.seconds / 1e6)
    title, target = "compaction, 100 B values", Target(bound=3.0)
    return [_records_row(context, dirty, title, target, peers=peers, more=kafka.note)]


def unique_key_rows(context: Context) -> list[Row]:
    dirty = _prepare(
        context, value_size=100, total_bytes=context.pick(300, 100) * 1_000_000, unique_part=1
    )
    return [_records_row(context, dirty, "compaction, 100 B values, nothing to remove", None)]


def _records_row(
    context: Context,
    dirty: DirtyLog,
    title: str,
    target: Target | None,
    *,
    peers: Mapping[str, Callable[[], float]] | None = None,
    more: str = "",
) -> Row:
    row = measure_row(
        title,
        lambda: dirty.records / _compaction_seconds(context, dirty) / 1e6,
        runs=context.runs,
        durability="disk",
        unit="M records/s",
        limit=("read + crc32c twice, write", lambda: dirty.records / _limit(context, dirty) / 1e6),
        peers=peers,
        target=target,
        note=_note(dirty) + more,
    )
    shutil.rmtree(dirty.path)
    return row


def _note(dirty: DirtyLog) -> str:
    return (
        f"{dirty.size_bytes // MIB} MiB, {dirty.records:,} records, "
        f"{dirty.kept_bytes // MIB} MiB of them stay; one thread"
    )


# --- one run ----------------------------------------------------------------------------------


def _prepare(
    context: Context,
    *,
    value_size: int,
    total_bytes: int,
    unique_part: int = _UNIQUE_PART,
    codec: Codec = Codec.NONE,
) -> DirtyLog:
    """Records with random keys, a tenth as many keys as records, in batches in that order."""
    rng = random.Random(value_size)
    records = total_bytes // value_size
    keys = [b"key %012d" % number for number in range(max(records // unique_part, 1))]
    noise = rng.randbytes(4 * MIB)
    path = fresh_path(context.directory, "dirty")
    per_call = max(MIB // value_size, 1)
    config = {
        **OS,
        "cleanup.policy": "compact",
        "segment.bytes": _SEGMENT_BYTES,
        "compression.type": codec.name.lower() if codec else "producer",
    }
    with Store([str(path)], StoreSetup(fs=UnsyncedFileSystem(), has_housekeeping=False)) as store:
        store.create_topic(TOPIC, config=config)
        log = log_of(store)
        written = 0
        while written < records:
            starts = rng.choices(range(0, len(noise) - value_size, 16), k=per_call)
            if unique_part == 1:
                chosen = [keys[(written + i) % len(keys)] for i in range(per_call)]
            else:
                chosen = rng.choices(keys, k=per_call)
            values = [noise[at : at + value_size // 2] * 2 for at in starts]
            log.append_many(list(zip(chosen, values, strict=True)))
            written += per_call
        log.roll()
        size_bytes = log.size_bytes
    dirty = DirtyLog(path, size_bytes, written, 0)
    copy = _copied(context, dirty)
    with Store([str(copy)], StoreSetup(has_housekeeping=False)) as store:
        store.compact(TOPIC, force=True)
        kept_bytes = log_of(store).size_bytes
    shutil.rmtree(copy)
    return DirtyLog(path, size_bytes, written, kept_bytes)


def _compaction_seconds(context: Context, dirty: DirtyLog) -> float:
    path = _copied(context, dirty)
    with Store([str(path)], StoreSetup(has_housekeeping=False)) as store:
        with Stopwatch() as watch:
            (result,) = store.compact(TOPIC, force=True)
        assert result.outcome is CompactionOutcome.DONE, result
        assert result.records_read == dirty.records, result
    shutil.rmtree(path)
    return watch.seconds


def _copied(context: Context, dirty: DirtyLog) -> Path:
    """A copy to compact. Sealed segments are hard links, because they are never written."""

    def copy(source: str, target: str) -> None:
        if source.endswith(".log") and os.path.getsize(source):
            os.link(source, target)
        else:
            shutil.copy2(source, target)

    path = fresh_path(context.directory, "copy")
    shutil.copytree(dirty.path, path, copy_function=copy)
    return path


def _limit(context: Context, dirty: DirtyLog) -> float:
    """Seconds for the minimum of work."""
    files = log_files(dirty.path)
    seconds = read_seconds(files, with_checksum=True) + read_seconds(files, with_checksum=True)
    piece = bytes(PIECE_BYTES)
    with new_file(context.directory / "plain") as fd, Stopwatch() as watch:
        for _ in range(-(-dirty.kept_bytes // PIECE_BYTES)):
            os.write(fd, piece)
        os.fdatasync(fd)
    return seconds + watch.seconds
