"""``cordwood retention explain``, on every kind of target."""

import re
from pathlib import Path

import pytest

import cordwood
from cordwood.clock import SystemClock
from fakes.command_line import CommandLine, CommandTarget

HOUR_MS = 3_600_000


def fill(target: CommandTarget, **config: str) -> int:
    """Six segments of ten records, an hour apart, the last one new; return when."""
    now_ms = SystemClock().now_ms()
    keys = {key.replace("_", "."): value for key, value in config.items()}
    with target.open_store() as store:
        topic = store.create_topic("orders", config={"segment.records": 10, **keys})
        for hour in range(6):
            moment_ms = now_ms - (5 - hour) * HOUR_MS
            records = [cordwood.Record(b"x" * 50, timestamp_ms=moment_ms) for _ in range(10)]
            topic.append_many(records, partition=0)
    return now_ms


def test_each_segment_has_a_verdict_a_time_and_a_reason(
    on_target: CommandLine, target: CommandTarget
) -> None:
    now_ms = fill(target, retention_ms="150min")

    [plan] = on_target.ok("retention", "explain", "orders", "--json").objects

    assert (plan["topic"], plan["partition"]) == ("orders", 0)
    assert [s["base_offset"] for s in plan["segments"]] == [0, 10, 20, 30, 40, 50]
    assert [s["verdict"] for s in plan["segments"]] == ["delete"] * 3 + ["keep"] * 3
    assert [s["rule"] for s in plan["segments"]] == ["age"] * 3 + [None] * 3
    assert plan["segments"][3]["expires_ms"] == now_ms + HOUR_MS // 2 + 1
    assert "retention.ms is 2 h" in plan["segments"][0]["reason"]
    assert plan["start_offset"] == 0
    assert plan["start_offset_then"] == 30
    size = plan["segments"][0]["bytes"]
    assert (plan["bytes_freed_now"], plan["bytes_freed_later"]) == (3 * size, 3 * size)
    assert plan["next_expires_ms"] == now_ms + HOUR_MS // 2 + 1


def test_it_is_the_plan_that_runs(on_target: CommandLine, target: CommandTarget) -> None:
    fill(target, retention_segments="2")
    [foreseen] = on_target.ok("retention", "explain", "orders", "--json").objects

    with target.open_store() as store:
        store.maintain()

        log = store.topic("orders").partition(0)
        assert log.start_offset == foreseen["start_offset_then"] == 40
        [after] = on_target.ok("retention", "explain", "orders", "--json").objects
    assert after["bytes_freed_now"] == 0
    assert [s["after_segments"] for s in after["segments"]] == [1, 2]


def test_people_see_when_each_goes_and_what_is_freed(
    on_target: CommandLine, target: CommandTarget
) -> None:
    fill(target, retention_ms="150min", retention_bytes="100KiB")

    lines = on_target.ok("retention", "explain", "orders").lines

    assert lines[0].split() == [
        *("partition", "base_offset", "next_offset", "bytes", "verdict", "expires", "reason")
    ]
    assert "now, by age, due 2.5 h ago" in lines[1]
    assert "its newest record is from" in lines[1]
    assert re.search(r"in (30|29)\.\d min \(", lines[4])
    assert "or after 9" in lines[4]
    assert lines[4].endswith("more bytes (retention.bytes)")
    assert lines[-2].split()[:2] == ["partition", "bytes"]
    assert re.search(r"in (30|29)\.\d min \(", lines[-1])


def test_one_partition_is_explained_alone(on_target: CommandLine, target: CommandTarget) -> None:
    with target.open_store() as store:
        store.create_topic("orders", partitions=3)

    plans = on_target.ok("retention", "explain", "orders", "-p", "2", "--json").objects

    assert [plan["partition"] for plan in plans] == [2]
    assert plans[0]["segments"][0]["reason"] == "it is the active segment, and empty"
    assert on_target("retention", "explain", "orders", "-p", "3").code == 1


def test_a_topic_that_is_not_there_is_an_error(on_target: CommandLine) -> None:
    ran = on_target("retention", "explain", "none")

    assert (ran.code, ran.out) == (1, "")
    assert "no topic named 'none'" in ran.err


def test_of_an_archived_topic_local_copies_go_apart(tmp_path: Path, cli: CommandLine) -> None:
    config = {
        "segment.records": 10,
        "archive.url": (tmp_path / "archive").as_uri(),
        "archive.after.ms": 0,
        "local.retention.ms": 0,
    }
    with cordwood.open(tmp_path / "data") as store:
        topic = store.create_topic("orders", config=config)
        for _ in range(3):
            topic.append_many([(None, b"x")] * 10)
        store.archive_now()

        [plan] = cli.ok("retention", "explain", "orders", "--json").objects
        text = cli.ok("retention", "explain", "orders").out

    assert [s["verdict"] for s in plan["segments"]] == ["drop local copy"] * 2 + ["keep"]
    assert (plan["start_offset_then"], plan["local_start_offset_then"]) == (0, 20)
    assert "local copy as soon as allowed" in text


def test_a_terminal_gets_no_more_columns_than_it_has_room_for(
    tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("orders").append(b"x")
    monkeypatch.setattr("cordwood.cli.commands.retention.sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")

    out = cli.ok("retention", "explain", "orders").out

    assert "reason" not in out
    assert all(len(line) <= 80 for line in out.splitlines())
