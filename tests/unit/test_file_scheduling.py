"""Which process runs which tests of ours."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from file_scheduling import FileScheduling, give_way, in_turns, portion_of, time_by_folder


def ordered(*nodeids: str) -> list[str]:
    return [item.nodeid for item in in_turns([SimpleNamespace(nodeid=each) for each in nodeids])]


def test_the_tests_of_a_file_stay_together_and_those_of_spark() -> None:
    assert portion_of("tests/wire/test_a.py::test_b[c::d]") == "tests/wire/test_a.py"
    assert portion_of("tests/spark/test_a.py::test_b") == portion_of(
        "tests/spark/test_c.py::test_d"
    )
    assert portion_of("tests/unit/spark/test_a.py::test_b") == "tests/unit/spark/test_a.py"
    assert portion_of("tests/spark/test_table_feed.py::test_b") == "tests/spark/test_table_feed.py"
    assert portion_of("tests/interop/test_spark_kafka.py::test_b") == portion_of(
        "tests/interop/test_spark_real_time.py::test_d"
    )
    assert portion_of("tests/interop/test_kafka_directory.py::test_b") == portion_of(
        "tests/interop/test_compacted_segments.py::test_d"
    )


def test_all_processes_give_way_to_the_one_with_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[int] = []
    monkeypatch.setattr(os, "nice", lowered.append)

    give_way("tests/spark/test_a.py::test_b")
    give_way("tests/interop/test_a.py::test_b")
    assert lowered == []
    give_way("tests/spark/test_table_feed.py::test_b")
    give_way("tests/wire/test_a.py::test_b")
    assert lowered == [5, 5]


def test_spark_is_first_then_those_that_wait_and_compute_take_turns_and_short_ones_are_last() -> (
    None
):
    assert ordered(
        "tests/unit/storage/test_a.py::test_a",
        "tests/property/test_a.py::test_a",
        "tests/wire/test_a.py::test_a",
        "tests/crash/test_io_faults.py::test_a",
        "tests/wire/test_quotas.py::test_a",
        "tests/spark/test_a.py::test_a",
        "tests/property/test_a.py::test_b",
    ) == [
        "tests/spark/test_a.py::test_a",
        "tests/wire/test_quotas.py::test_a",
        "tests/crash/test_io_faults.py::test_a",
        "tests/wire/test_a.py::test_a",
        "tests/property/test_a.py::test_a",
        "tests/property/test_a.py::test_b",
        "tests/unit/storage/test_a.py::test_a",
    ]


def test_a_file_that_is_in_both_lists_is_run_once() -> None:
    name = "tests/crash/test_transactions.py::test_a"

    assert ordered(name) == [name]


class Process:
    """A process of xdist, as its scheduler sees it."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.given: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduled(count: int, tests: list[str]) -> tuple[FileScheduling, list[Process]]:
    config: Any = SimpleNamespace(
        getvalue=lambda name: [f"{count}*popen"],
        option=SimpleNamespace(loadscopereorder=True),
    )
    scheduling = FileScheduling(config)
    processes = [Process(str(number)) for number in range(count)]
    for process in processes:
        scheduling.add_node(process)
        scheduling.add_node_collection(process, tests)
    scheduling.schedule()
    return scheduling, processes


def complete_all(scheduling: FileScheduling, process: Process) -> None:
    """The process runs what it was given, also what it gets meanwhile."""
    done = 0
    while done < len(process.given):
        scheduling.mark_test_complete(process, process.given[done])
        done += 1


def test_a_free_process_gets_the_next_file_and_each_test_is_run_once() -> None:
    long = [f"tests/spark/test_{n}.py::test_a" for n in range(5)]
    short = [f"tests/unit/test_{n}.py::test_{i}" for n in range(6) for i in range(4)]
    scheduling, (busy, free) = scheduled(2, [*long, *short])

    complete_all(scheduling, free)
    complete_all(scheduling, busy)

    assert busy.given == list(range(len(long)))
    assert free.given == list(range(len(long), len(long) + len(short)))
    assert scheduling.tests_finished
    assert not scheduling.has_pending


def test_the_files_of_a_process_that_died_are_given_to_another() -> None:
    tests = [f"tests/unit/test_{n}.py::test_{i}" for n in range(4) for i in range(3)]
    scheduling, (dead, alive) = scheduled(2, tests)

    assert scheduling.remove_node(dead) == tests[0]
    complete_all(scheduling, alive)

    assert sorted(alive.given) == list(range(len(tests)))


def test_the_time_is_told_by_folder() -> None:
    def report(nodeid: str, duration: float) -> Any:
        return SimpleNamespace(nodeid=nodeid, duration=duration)

    reports: list[pytest.TestReport] = [
        report("tests/wire/test_a.py::test_a", 1.0),
        report("tests/wire/test_a.py::test_a", 0.5),
        report("tests/unit/log/rules/test_b.py::test_b", 2.0),
        report("tests/wire/test_c.py::test_c", 1.0),
    ]

    assert time_by_folder(reports) == [
        "    2.5 s  wire (2 tests)",
        "    2.0 s  unit/log (1 tests)",
    ]
