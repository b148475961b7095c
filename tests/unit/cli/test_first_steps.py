"""What someone meets who tries commands for the first time."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import cordwood
from cordwood.cli.command_list import COMMANDS
from fakes.command_line import CommandLine


def test_an_empty_store_says_how_to_go_on(on_target: CommandLine) -> None:
    topics = on_target.ok("topics", "list")
    groups = on_target.ok("groups", "list")

    assert topics.err == "no topics yet; create one with `cordwood topics create NAME`\n"
    assert groups.err == "no group has committed offsets yet\n"


def test_programs_are_told_nothing_of_what_is_not_there(on_target: CommandLine) -> None:
    ran = on_target.ok("topics", "list", "--json")

    assert (ran.out, ran.err) == ("", "")


def test_from_nothing_to_records(cli: CommandLine, tmp_path: Path) -> None:
    at = ("--at", str(tmp_path / "data"))

    cli.ok("topics", "create", "orders", *at)
    cli.ok("produce", "orders", "-q", *at, stdin=b"one\ntwo\n")

    assert cli.ok("consume", "orders", *at).lines == ["one", "two"]


def test_programs_are_told_what_was_done(on_target: CommandLine) -> None:
    [created, other] = on_target.ok("topics", "create", "a", "b", "-p", "2", "--json").objects
    [there] = on_target.ok("topics", "create", "a", "--if-not-exists", "--json").objects
    [altered] = on_target.ok(
        "topics", "alter", "a", "-p", "3", "-c", "retention.ms=1d", "--json"
    ).objects
    on_target.ok("groups", "reset", "g", "--to", "earliest", "--topic", "a:0", "--execute")
    [forgotten] = on_target.ok("groups", "delete", "g", "--yes", "--json").objects
    [deleted] = on_target.ok("topics", "delete", "a", "--yes", "--json").objects

    assert created == {"topic": "a", "is_created": True, "partitions": 2}
    assert other["topic"] == "b"
    assert there == {"topic": "a", "is_created": False}
    assert altered == {"topic": "a", "partitions": 3, "config": {"retention.ms": "1d"}}
    assert forgotten == {"group": "g", "partitions": 1}
    assert (deleted["topic"], deleted["partitions"], deleted["records"]) == ("a", 3, 0)


def test_a_pipe_is_not_told_how_to_end_the_input(cli: CommandLine, tmp_path: Path) -> None:
    cli.ok("topics", "create", "orders", "--at", str(tmp_path / "data"))

    ran = cli.ok("produce", "orders", "-q", "--at", str(tmp_path / "data"), stdin=b"one\n")

    assert ran.err == ""


@pytest.mark.parametrize("at", ["nowhere", "localhost", "http://localhost:9092", ""])
@pytest.mark.parametrize("command", [["topics", "list"], ["consume", "orders"], ["groups", "list"]])
def test_a_target_that_is_none_is_told_with_an_example(
    cli: CommandLine, at: str, command: list[str]
) -> None:
    ran = cli(*command, "--at", at)

    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert re.search(r"host:port|localhost:9092", ran.err)


@pytest.mark.parametrize("name", [place.name for place in COMMANDS])
@pytest.mark.parametrize("columns", ["40", "200"])
def test_help_fits_any_terminal(
    cli: CommandLine, name: str, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)

    ran = cli.ok(name, "--help")

    assert ran.lines[0].startswith(f"Usage: cordwood {name}")
    assert "\b" not in ran.out


@pytest.mark.parametrize("left", [[], ["security"], ["security", "security/ca.key.tmp"]])
def test_what_an_interrupted_set_up_left_does_not_stop_the_next_one(
    cli: CommandLine, tmp_path: Path, left: list[str]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ".lock").touch()
    for name in left:
        path = tmp_path / "data" / name
        path.touch() if name.endswith(".tmp") else path.mkdir()

    cli.ok("users", "list", "--at", str(tmp_path / "data"))


def test_a_directory_that_is_no_store_is_an_error(cli: CommandLine, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "pytest-0").mkdir(parents=True)  # has the name of a partition, but no segments

    for command in (["topics", "list"], ["consume", "orders"], ["segments", "orders"], ["verify"]):
        ran = cli(*command, "--at", str(other))

        assert ran.code == 1, ran
        assert f"{other} is not a store" in ran.err
        assert "--at" in ran.err
    cli.ok("topics", "create", "orders", "--at", str(other))
    assert cli.ok("topics", "list", "--at", str(other)).lines[1].startswith("orders")


WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None
from cordwood.cli.app import main
for job in sys.argv[1:]:
    try:
        main(["spark", *job.split()])
    except SystemExit as ended:
        assert ended.code == 2, ended.code
"""


def test_without_spark_every_job_says_what_to_install(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("orders")
    jobs = [
        "compact",
        "verify",
        "stats orders --dry-run",
        "export orders --table t",
        "materialize orders --table t",
        "ingest orders --from csv files",
        "replay orders --to-topic again",
    ]

    finished = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, *jobs],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert finished.returncode == 0, finished.stderr
    assert finished.stderr.count("pip install 'cordwood[spark]'") == len(jobs)
