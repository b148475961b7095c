"""Reading from an archive and writing to it, beside what the object store and its client can do."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.archive_stage import (
    FAR,
    NEAR,
    SEGMENT_BYTES,
    ArchiveStage,
    archive,
    archived_log,
    fetch_plainly,
    plain_client,
    plain_files,
    put_plainly,
    stored,
)
from bench.measure import Context, Row, Samples, Target, measure_in_turns, samples
from bench.object_server import RunningStore, StoreKind
from bench.workload import TOPIC, make_values
from cordwood.archive.fetching.fetch_threads import THREADS_MAX
from cordwood.archive.manifests.block_sums import BLOCK_BYTES
from cordwood.archive.objects.object_port import PIECE_BYTES
from cordwood.quantities import KIB, MIB

_CORDWOOD: Final = "Cordwood"
_OWN_RATE: Final = "the store's own rate"
_HASHED: Final = "the same, and SHA-256 of each block"
_RECORD_REQUESTS_MAX: Final = 4
_SMALL_REQUESTS_MAX: Final = 6
_SCAN_RATIO: Final = 0.7
_SMALL_RECORDS: Final = 50
_SMALL_SEGMENTS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moved:
    """Bytes that were read or written, and what it took."""

    size: int
    seconds: float
    cpu_s: float  # of this process

    @property
    def mb_per_s(self) -> float:
        return self.size / self.seconds / 1e6

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_s / self.size * 1e9


def _timed(work: Callable[[], int]) -> _Moved:
    cpu_before, began = time.process_time(), time.perf_counter()
    size = work()
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu_before
    return _Moved(size=size, seconds=seconds, cpu_s=cpu_s)


# --- one record -------------------------------------------------------------------------------


def one_record_rows(context: Context, stage: ArchiveStage) -> list[Row]:
    """Requests, and the time in both stores. Each record is read with an empty cache."""
    bucket = stage.filled(context)
    offsets = random.Random(5).choices(range(SEGMENT_BYTES // KIB), k=context.pick(20, 8))
    requests = [_requests_of_one(stage.store(context, NEAR), bucket, o) for o in offsets]
    rows = [
        Row(
            title=f"one record of {SEGMENT_BYTES // MIB} MiB, the most requests",
            durability="-",
            unit="requests",
            cordwood=samples(_CORDWOOD, [max(requests)]),
            target=Target(bound=_RECORD_REQUESTS_MAX + 1),
            is_lower_better=True,
            note=f"{len(offsets)} records at random, nothing in the cache, each batch verified",
        )
    ]
    for kind in (NEAR, FAR):
        store = stage.store(context, kind)
        _, files = plain_files(store, bucket)
        figures = measure_in_turns(
            {
                _CORDWOOD: partial(_record_p50_ms, store, bucket, offsets),
                "one GET of 256 KiB": partial(_get_p50_ms, files[0], offsets),
            },
            runs=context.runs,
        )
        own, plain = (samples(name, values) for name, values in figures.items())
        rows.append(
            Row(
                title=f"one record of {SEGMENT_BYTES // MIB} MiB, {kind.name}, p50",
                durability="-",
                unit="ms",
                cordwood=own,
                limit=plain,
                is_lower_better=True,
            )
        )
    return rows


def _requests_of_one(store: RunningStore, bucket: str, offset: int) -> int:
    with archived_log(store.url(bucket)) as log:
        store.requests()
        record = log[offset]
        asked = store.requests()
    assert record.offset == offset, (record.offset, offset)
    return len(asked)


def _record_p50_ms(store: RunningStore, bucket: str, offsets: list[int]) -> float:
    taken_s = []
    for offset in offsets:
        with archived_log(store.url(bucket)) as log:
            began = time.perf_counter()
            record = log[offset]
            taken_s.append(time.perf_counter() - began)
        assert record.offset == offset, (record.offset, offset)
    return median(taken_s) * 1e3


def _get_p50_ms(file: Any, offsets: list[int]) -> float:
    blocks = file.size() // BLOCK_BYTES
    taken_s = []
    for offset in offsets:
        began = time.perf_counter()
        data = file.read_at(BLOCK_BYTES, offset % blocks * BLOCK_BYTES)
        taken_s.append(time.perf_counter() - began)
        assert len(data) == BLOCK_BYTES, len(data)
    return median(taken_s) * 1e3


# --- a scan -----------------------------------------------------------------------------------


def scan_rows(context: Context, stage: ArchiveStage, kind: StoreKind) -> list[Row]:
    bucket, store = stage.filled(context), stage.store(context, kind)
    _, files = plain_files(store, bucket)
    total = sum(file.size() for file in files)
    figures = measure_in_turns(
        {
            _CORDWOOD: lambda: _scan(store.url(bucket), total),
            _OWN_RATE: lambda: _timed(lambda: fetch_plainly(files)),
            _HASHED: lambda: _timed(lambda: fetch_plainly(files, is_hashed=True)),
        },
        runs=context.runs,
    )
    note = (
        f"{total // MIB} MiB, an empty cache, every block and every batch verified; beside it the "
        f"same objects in ranges of {PIECE_BYTES // MIB} MiB by {THREADS_MAX} threads of pyarrow"
    )
    return _moved_rows(f"scan, {kind.name}", figures, ratio=_SCAN_RATIO, note=note)


def _scan(url: str, total: int) -> _Moved:
    """The bytes of the files, so that it can be compared with fetching them."""
    with archived_log(url) as log:
        end = log.end_offset

        def scan() -> int:
            rows = sum(batch.num_rows for batch in log.scan())
            assert rows == end, (rows, end)
            return total

        return _timed(scan)


def _moved_rows(
    title: str, figures: dict[str, list[_Moved]], *, ratio: float | None, note: str
) -> list[Row]:
    """The rate, and the processor time of this process."""

    def columns(figure: Callable[[_Moved], float]) -> list[Samples]:
        return [samples(name, [figure(m) for m in moved]) for name, moved in figures.items()]

    own, plain, *more = columns(lambda moved: moved.mb_per_s)
    own_cpu, plain_cpu, *more_cpu = columns(lambda moved: moved.cpu_s_per_gb)
    return [
        Row(
            title=title,
            durability="-",
            unit="MB/s",
            cordwood=own,
            limit=plain,
            peers=tuple(more),
            target=None if ratio is None else Target(bound=ratio, is_ratio=True),
            note=note,
        ),
        Row(
            title=f"{title}, processor time",
            durability="-",
            unit="s/GB",
            cordwood=own_cpu,
            limit=plain_cpu,
            peers=tuple(more_cpu),
            is_lower_better=True,
        ),
    ]


# --- archiving --------------------------------------------------------------------------------


def small_segment_rows(context: Context, stage: ArchiveStage) -> list[Row]:
    """What a small segment adds to a pass that has nothing to copy."""
    store = stage.store(context, FAR)
    config: dict[str, object] = {"segment.records": _SMALL_RECORDS}
    values = make_values(KIB, pool_bytes=MIB)
    pairs = values.lists[0][:_SMALL_RECORDS]
    requests: list[float] = []
    url = store.url(stage.new_bucket())
    with stored(context, url, values, _SMALL_RECORDS * KIB, config) as opened:
        topic = opened.topic(TOPIC)
        archive(opened)

        def pass_over(segments: int) -> tuple[int, float]:
            for _ in range(segments):
                topic.append_many(pairs)
            topic.partition(0).sync()
            store.requests()
            began = time.perf_counter()
            archive(opened)
            seconds = time.perf_counter() - began
            return len(store.requests()), seconds

        def ours() -> float:
            idle_requests, idle_s = pass_over(0)
            busy_requests, busy_s = pass_over(_SMALL_SEGMENTS)
            requests.append((busy_requests - idle_requests) / _SMALL_SEGMENTS)
            return (busy_s - idle_s) / _SMALL_SEGMENTS * 1e3

        fs, bucket = plain_client(store), stage.new_bucket()
        small = b"".join(value for _, value in pairs)

        def plain() -> float:
            began = time.perf_counter()
            put_plainly(fs, f"{bucket}/small", lambda: iter([small]))
            return (time.perf_counter() - began) * 1e3

        figures = measure_in_turns({_CORDWOOD: ours, "one upload": plain}, runs=context.runs)
    own, beside = (samples(name, taken) for name, taken in figures.items())
    title = f"archiving a segment of {_SMALL_RECORDS} KiB"
    return [
        Row(
            title=f"{title}, requests",
            durability="disk",
            unit="requests",
            cordwood=samples(_CORDWOOD, requests[-context.runs :]),
            target=Target(bound=_SMALL_REQUESTS_MAX + 1),
            is_lower_better=True,
            note=f"what each of {_SMALL_SEGMENTS} adds to a pass that has nothing to copy",
        ),
        Row(
            title=f"{title}, {FAR.name}",
            durability="disk",
            unit="ms",
            cordwood=own,
            limit=beside,
            is_lower_better=True,
        ),
    ]


def archiving_rows(context: Context, stage: ArchiveStage) -> list[Row]:
    store = stage.store(context, NEAR)
    values = make_values(KIB)

    def subjects(opened_path: Path) -> tuple[int, Callable[[], Iterator[bytes]]]:
        (path, *_) = sorted((opened_path / f"{TOPIC}-0").glob("*.log"))

        def pieces() -> Iterator[bytes]:
            with path.open("rb", buffering=0) as file:
                while piece := file.read(PIECE_BYTES):
                    yield piece

        return path.stat().st_size, pieces

    moved: dict[str, list[_Moved]] = {_CORDWOOD: [], "plain uploads": []}
    fs, bucket = plain_client(store), stage.new_bucket()
    for _ in range(1 + context.runs):
        own_bucket = stage.new_bucket()
        with stored(context, store.url(own_bucket), values, SEGMENT_BYTES) as opened:
            size, pieces = subjects(Path(opened.data_dirs[0]))

            def ours(size: int = size, store: Any = opened) -> int:
                archive(store)
                return size

            moved[_CORDWOOD].append(_timed(ours))
            moved["plain uploads"].append(
                _timed(partial(put_plainly, fs, f"{bucket}/plain", pieces))
            )
        stage.empty(own_bucket)
        stage.empty(bucket)
    figures = {name: each[1:] for name, each in moved.items()}  # without the warm-up
    note = f"a segment of {SEGMENT_BYTES // MIB} MiB, from the page cache; the store computes MD5"
    return _moved_rows(f"archiving, {NEAR.name}", figures, ratio=None, note=note)
