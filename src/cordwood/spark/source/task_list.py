"""The tasks of a plan in a form that is small and quick to unpickle, however many they are.

Every task of a job receives the whole plan and reads one entry of it. 100,000 entries are 2.4 MB of
words, which unpickle in milliseconds; as many objects would take a second in each task.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from cordwood.spark.source.compaction_guard import CompactionGuard
from cordwood.spark.source.log_place import LogPlace
from cordwood.spark.source.planning import OffsetRange
from cordwood.spark.worker_heap import settle_heap

if TYPE_CHECKING:
    import pyarrow as pa

_WORDS = 3


def task_numbers(batches: Iterable["pa.RecordBatch"]) -> Iterator[int]:
    """The numbers in the only column of what Spark passes to a task."""
    settle_heap()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            assert isinstance(number, int), number
            yield number


class TaskList(Sequence[OffsetRange]):
    """Tasks by number. Values only; Spark pickles it."""

    def __init__(self, tasks: Sequence[OffsetRange]) -> None:
        numbers: dict[LogPlace, int] = {}
        self._words = array("q")
        self._guards: dict[int, CompactionGuard] = {}
        for index, task in enumerate(tasks):
            place = numbers.setdefault(task.place, len(numbers))
            self._words.extend((place, task.start, task.stop))
            if task.guard is not None:
                self._guards[index] = task.guard
        self._places = tuple(numbers)

    def __len__(self) -> int:
        return len(self._words) // _WORDS

    def __getitem__(self, index: int) -> OffsetRange:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        place, start, stop = self._words[_WORDS * index : _WORDS * (index + 1)]
        return OffsetRange(
            place=self._places[place], start=start, stop=stop, guard=self._guards.get(index)
        )
