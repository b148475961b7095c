"""Checks a store segment by segment, several in parallel.

Threads are enough: reading, checksums, decompression and parsing release the GIL.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Final

from cordwood.errors import FormatError, StorageError
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.inspection.segment_check import SegmentFindings, SegmentProblem, check_segment
from cordwood.log.inspection.small_file_check import check_small_files
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.topics.catalog_files import read_catalog
from cordwood.quantities import Offset
from cordwood.storage.files import RealFileSystem
from cordwood.value_class import dataclass, field

_QUEUED_PER_JOB: Final = 4  # bounds the queue: a store may have a million segments

Found = SegmentFindings | list[SegmentProblem] | None


@dataclass(slots=True, kw_only=True)
class Verified:
    """What was checked, and the problems found, ordered by file name."""

    topics: int = 0
    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    archived_left: int = 0
    problems: list[SegmentProblem] = field(default_factory=list)

    def take(self, found: Found) -> None:
        """Add the result of one task."""
        if found is None:
            return
        if isinstance(found, list):
            self.problems += found
            return
        self.segments += 1
        self.batches += found.batches
        self.records += found.records
        self.bytes += found.size
        self.problems += found.problems


class StoreVerification:
    """Checks all topics of a store, or some. For one thread; run it once."""

    def __init__(
        self, store: ReadOnlyStore, topics: Sequence[str] | None, *, with_archived: bool = False
    ) -> None:
        names = store.topics(include_internal=True) if topics is None else dict.fromkeys(topics)
        self._fs = RealFileSystem()
        self._paths = store.data_dirs
        self._topics = [store.topic(name) for name in names]
        self._logs: list[ReadOnlyLog] = [log for t in self._topics for log in t.partitions]
        self._plan: list[tuple[LogReader, Offset]] = []
        self.bytes_total = 0
        self._verified = Verified(topics=len(self._topics), partitions=len(self._logs))
        for log in self._logs:
            for segment in log.view().segments:
                if segment.is_archived and not with_archived:
                    self._verified.archived_left += 1
                    continue
                self._plan.append((log, segment.base_offset))
                self.bytes_total += segment.size

    def run(self, advance: Callable[[int], None], *, jobs: int) -> Verified:
        """Check everything. Any of the threads may call `advance` with the bytes checked."""
        verified = self._verified
        verified.problems += self._missing()
        pool = ThreadPoolExecutor(jobs, thread_name_prefix="cordwood-verify")
        try:
            pending: set[Future[Found]] = set()
            for task in self._tasks(advance):
                pending.add(pool.submit(task))
                if len(pending) >= jobs * _QUEUED_PER_JOB:
                    pending = self._take_some(pending)
            while pending:
                pending = self._take_some(pending)
        finally:
            pool.shutdown(cancel_futures=True)
        verified.problems.sort(key=lambda problem: (problem.file, problem.position or 0))
        return verified

    def _take_some(self, pending: set[Future[Found]]) -> set[Future[Found]]:
        done, left = wait(pending, return_when=FIRST_COMPLETED)
        for future in done:
            self._verified.take(future.result())
        return left

    def _tasks(self, advance: Callable[[int], None]) -> Iterator[Callable[[], Found]]:
        for path in self._paths:
            yield partial(self._small_files, path)
        for log in self._logs:
            yield partial(self._small_files, log.directory)
        for planned, base_offset in self._plan:
            yield partial(_checked, planned, base_offset, advance)

    def _small_files(self, directory: str) -> list[SegmentProblem]:
        return list(check_small_files(self._fs, directory))

    def _missing(self) -> Iterator[SegmentProblem]:
        """Problems of missing data: a damaged catalog, or partitions it names without files.

        Without a catalog nothing is missing: other Kafka brokers may hold the other partitions.
        Nor are partitions of which other brokers of the cluster have the replicas.
        """
        try:
            catalog = read_catalog(self._fs, self._paths)
        except (FormatError, StorageError) as error:
            yield SegmentProblem(file=self._paths[0], reason=f"topic catalog: {error}")
            return
        if catalog is None:
            return
        for topic in self._topics:
            entry = catalog.topics.get(topic.name)
            for number in range(topic.partition_count):
                is_elsewhere = entry is not None and not entry.is_here(number)
                if not topic.has_partition(number) and not is_elsewhere:
                    yield SegmentProblem(
                        file=f"{topic.name}-{number}",
                        reason="its files are missing from the data directories",
                    )


def _checked(log: LogReader, base_offset: Offset, advance: Callable[[int], None]) -> Found:
    """Check one segment; one that cannot be read is reported as a problem."""
    try:
        return check_segment(log, base_offset, advance)
    except (OSError, FormatError, StorageError) as error:
        name = f"{log.name}, segment {base_offset}"
        return [SegmentProblem(file=name, reason=f"cannot be read: {error}", offset=base_offset)]
