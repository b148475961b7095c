"""Which process runs which tests, where `script/test` runs several: one file after the other.

A process that is free gets the next file, so what the tests of a file share is made once. The tests
of Spark are one portion: they share a JVM, whose start takes longer than most of them, and one
process is busy with them nearly until the end. So the files there that need no session are
portions of their own. Files that take long come first, and files that wait
(for clients, timers and other processes) take turns with files that compute. Short ones come last:
all processes then end at about the same time.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import Any, Protocol, TypeVar

import pytest
from xdist.scheduler import LoadScopeScheduling

# What one process runs, because it shares a session of Spark or the directories of a Kafka: how
# the names of the files begin.
_TOGETHER = {
    "tests/spark/": ("tests/spark/",),
    "tests/interop/test_spark_": ("tests/interop/test_spark_",),
    "tests/interop/test_kafka_": (
        "tests/interop/test_kafka_",
        "tests/interop/test_compacted_segments.py",
    ),
}
_APART = frozenset({"tests/spark/test_table_feed.py"})  # but for these files
_NICENESS = 5  # a third of the share of a process with the usual priority
_EQUAL = "tests/interop/"  # two processes run these, which mostly wait
# In this order; each is a folder or a file.
_COMPUTE = (
    "tests/crash/test_io_faults.py",
    "tests/simulation/",
    "tests/crash/",
    "tests/spark/test_table_feed.py",
    "tests/unit/protocol/test_messages.py",
    "tests/unit/log/beside/test_reading_during_a_swap.py",
    "tests/unit/log/transactions/test_transaction_crashes.py",
    "tests/unit/log/transactions/test_lone_commits.py",
    "tests/unit/log/compaction/test_compaction_crash.py",
    "tests/property/",
    "tests/docs/",
    "tests/unit/cli/commands/",
    "tests/unit/log/publishing/",
    "tests/unit/log/topics/",
    "tests/unit/log/store/",
    "tests/unit/protocol/",
    "tests/unit/broker/handlers/test_any_request.py",
    "tests/unit/archive/topics/test_restore.py",
    "tests/unit/archive/copying/test_copier.py",
    "tests/unit/spark/source/test_log_extent.py",
    "tests/unit/broker/security/test_client_quotas.py",
    "tests/unit/test_testing.py",
)
_WAIT = (
    "tests/crash/test_transactions.py",
    "tests/console/test_browser.py",
    "tests/wire/test_quotas.py",
    "tests/wire/test_processes.py",
    "tests/wire/test_groups.py",
    "tests/console/",
    "tests/wire/",
    "tests/s3/",
    "tests/deploy/",
)


def portion_of(nodeid: str) -> str:
    """The tests that stay together: the file of a test, or what it shares something with."""
    path = nodeid.split("::", 1)[0]
    if path in _APART:
        return path
    return next((name for name, files in _TOGETHER.items() if path.startswith(files)), path)


def give_way(nodeid: str) -> None:
    """Lower the priority of this process, if it runs beside the one with the tests of Spark.

    `nodeid` is its first test.

    The tests of Spark take longest of all portions. Besides, Spark gives a Python process that it
    starts for a stream 10 seconds to connect, whatever else is going on; no setting changes that.
    """
    if portion_of(nodeid) not in _TOGETHER and not nodeid.startswith(_EQUAL):
        os.nice(_NICENESS)


class Named(Protocol):
    """A test, as far as its order is concerned."""

    @property
    def nodeid(self) -> str: ...


_Test = TypeVar("_Test", bound=Named)


def in_turns(items: Iterable[_Test]) -> list[_Test]:
    """The tests in the order in which processes should get them; a portion stays together."""
    portions: dict[str, list[_Test]] = {}
    for item in items:
        portions.setdefault(portion_of(item.nodeid), []).append(item)
    shared = [name for name in _TOGETHER if name in portions]
    wait = _ranked(portions, _WAIT)
    compute = [name for name in _ranked(portions, _COMPUTE) if name not in wait]
    turns = [name for pair in zip_longest(wait, compute) for name in pair if name is not None]
    rest = [name for name in portions if name not in {*shared, *turns}]
    return list(chain.from_iterable(portions[name] for name in (*shared, *turns, *rest)))


def _ranked(names: Iterable[str], prefixes: Sequence[str]) -> list[str]:
    """The names that have one of the prefixes, in the order of the prefixes."""
    ranks = {
        name: rank
        for name in names
        if (rank := next((i for i, p in enumerate(prefixes) if name.startswith(p)), None))
        is not None
    }
    return sorted(ranks, key=lambda name: ranks[name])


def time_by_folder(reports: Iterable[pytest.TestReport]) -> list[str]:
    """Where the time went: a line for each folder of tests, the longest first."""
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: dict[str, set[str]] = {}
    for report in reports:
        folder = "/".join(report.nodeid.split("::", 1)[0].split("/")[1:-1][:2])
        seconds[folder] += report.duration
        tests.setdefault(folder, set()).add(report.nodeid)
    return [
        f"{spent:7.1f} s  {folder} ({len(tests[folder])} tests)"
        for folder, spent in sorted(seconds.items(), key=lambda item: -item[1])
    ]


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Hands out portions in the order of the collected tests. Belongs to the main process."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self._positions: dict[str, int] = {}

    def _split_scope(self, nodeid: str) -> str:
        return portion_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        """As inherited, but without a search of ten thousand names for each test."""
        if not self._positions:
            names = self.registered_collections[node]  # the same in all processes
            self._positions = {name: position for position, name in enumerate(names)}
        portion, tests = self.workqueue.popitem(last=False)
        self.assigned_work.setdefault(node, {})[portion] = tests
        node.send_runtest_some([self._positions[name] for name, done in tests.items() if not done])

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        portion = portion_of(self.registered_collections[node][item_index])
        super().mark_test_complete(node, item_index, duration)
        mine = self.assigned_work[node]
        if all(mine[portion].values()):
            del mine[portion]  # else all tests are counted again and again
