"""``cordwood segments``, on every kind of target."""

from pathlib import Path

import pytest

import cordwood
from cordwood.cli.commands.segment_timeline import Timeline
from cordwood.clock import SystemClock
from fakes.command_line import CommandLine, CommandTarget

DAY_MS = 86_400_000


@pytest.fixture
def orders(target: CommandTarget) -> str:
    config = {"segment.records": 20, "retention.segments": 2, "durability": "os"}
    with target.open_store() as store:
        topic = store.create_topic("orders", partitions=2, config=config)
        for n in range(90):
            topic.append(b"v%d" % n, key=b"k%d" % n, partition=n % 2)
    return "orders"


def test_every_segment_has_a_row_with_its_offsets_and_times(
    on_target: CommandLine, orders: str
) -> None:
    rows = on_target.ok("segments", orders, "--json").objects

    assert [(r["partition"], r["base_offset"], r["next_offset"]) for r in rows] == [
        (0, 0, 20),
        (0, 20, 40),
        (0, 40, 45),
        (1, 0, 20),
        (1, 20, 40),
        (1, 40, 45),
    ]
    assert [r["state"] for r in rows[:3]] == ["sealed", "sealed", "active"]
    assert all(r["records"] == r["next_offset"] - r["base_offset"] for r in rows)
    assert all(r["bytes"] == Path(r["path"]).stat().st_size for r in rows)
    assert all(0 < r["first_timestamp_ms"] <= r["last_timestamp_ms"] for r in rows)


def test_why_a_segment_goes_is_said(on_target: CommandLine, orders: str) -> None:
    rows = on_target.ok("segments", orders, "-p", "0", "--json").objects

    assert [r["verdict"] for r in rows] == ["delete", "keep", "keep"]
    assert rows[0]["rule"] == "count"
    assert "retention.segments is 2" in rows[0]["reason"]
    assert rows[1]["expires_ms"] > rows[1]["last_timestamp_ms"]


def test_people_see_a_table_and_a_timeline(on_target: CommandLine, orders: str) -> None:
    lines = on_target.ok("segments", orders).lines

    assert lines[0].split() == [
        "partition", "base", "next", "records", "bytes", "first", "last", "state", "expires",
    ]  # fmt: skip
    assert lines[1].endswith("sealed  now: count")
    assert "or count" in lines[2]
    assert [line[:3] for line in lines[8:10]] == ["0  ", "1  "]
    assert lines[-1].startswith("| new segment")


def test_only_the_partitions_asked_for_are_shown(on_target: CommandLine, orders: str) -> None:
    rows = on_target.ok("segments", orders, "-p", "1", "--json").objects

    assert {row["partition"] for row in rows} == {1}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["none"], 1, "no topic named 'none'"),
        (["orders", "-p", "2"], 1, "partitions 0 to 1, not 2"),
        (["orders", "-p", "-1"], 2, "--partition"),
        ([], 2, "TOPIC"),
    ],
)
def test_what_cannot_be_shown_is_told(
    on_target: CommandLine, orders: str, arguments: list[str], code: int, message: str
) -> None:
    ran = on_target("segments", *arguments)

    assert ran.code == code, ran
    assert message in ran.err
    assert ran.out == ""


def test_an_empty_topic_has_one_segment_and_no_timeline(
    on_target: CommandLine, target: CommandTarget
) -> None:
    with target.open_store() as store:
        store.create_topic("empty")

    lines = on_target.ok("segments", "empty").lines

    assert len(lines) == 2
    assert lines[1].split() == ["0", "0", "0", "0", "0", "B", "-", "-", "active", "never"]


def test_where_compaction_took_records_their_number_is_a_bound(
    cli: CommandLine, tmp_path: Path
) -> None:
    config = {"segment.records": 20, "cleanup.policy": "compact", "durability": "os"}
    with cordwood.open(tmp_path / "data") as store:
        topic = store.create_topic("users", config=config)
        for n in range(50):
            topic.append(b"v%d" % n, key=b"k%d" % (n % 3))
        store.compact("users", force=True)

    rows = cli.ok("segments", "users", "--json").objects
    lines = cli.ok("segments", "users").lines

    kept = [row for row in rows if row["bytes"] and row["state"] == "compacted"]
    assert kept
    assert all(row["is_record_bound"] for row in kept)
    assert any("  <=" in line for line in lines)


def test_archived_segments_are_shown_too(cli: CommandLine, tmp_path: Path) -> None:
    config = {
        "segment.records": 20,
        "durability": "os",
        "archive.url": (tmp_path / "archive").as_uri(),
        "local.retention.bytes": 1,
    }
    with cordwood.open(tmp_path / "data") as store:
        topic = store.create_topic("orders", config=config)
        for n in range(50):
            topic.append(b"v%d" % n)
        topic.partition(0).sync()  # only what is durable is archived
        store.archive_now()
        topic.partition(0).upkeep.apply_retention(SystemClock().now_ms())

    rows = cli.ok("segments", "orders", "--json").objects

    assert [row["base_offset"] for row in rows] == [0, 20, 40]
    assert [row["has_archived_copy"] for row in rows] == [True, True, False]
    assert "archived" in {row["state"] for row in rows}


def test_an_empty_active_segment_is_not_copied(cli: CommandLine, tmp_path: Path) -> None:
    config = {"archive.url": (tmp_path / "archive").as_uri(), "archive.after.ms": 0}
    with cordwood.open(tmp_path / "data") as store:
        topic = store.create_topic("orders", config=config)
        topic.append(b"v")
        topic.partition(0).roll()
        store.archive_now()

    rows = cli.ok("segments", "orders", "--json").objects

    assert [(row["next_offset"], row["has_archived_copy"]) for row in rows] == [
        (1, True),
        (1, False),
    ]


def test_a_compacted_topic_has_the_times_of_its_records_and_bounds_everywhere(
    on_target: CommandLine, target: CommandTarget
) -> None:
    first_ms = SystemClock().now_ms() - 3 * DAY_MS
    config = {"cleanup.policy": "compact", "delete.retention.ms": "30d"}
    with target.open_store() as store:
        topic = store.create_topic("accounts", config=config)
        for n in range(6):
            value = None if n == 4 else b"v%d" % n
            key = b"k%d" % (n % 3)
            topic.append(value, key=key, timestamp_ms=first_ms + 1000 * n)
        store.compact("accounts", force=True)

    rows = on_target.ok("segments", "accounts", "--json").objects
    table = on_target.ok("segments", "accounts").lines
    listed = on_target.ok("topics", "list").lines[1]
    described = on_target.ok("topics", "describe", "accounts").lines
    [facts] = on_target.ok("topics", "list", "--json").objects
    [statistics, *_] = on_target.ok("stats", "accounts", "--json").objects

    assert rows[0]["first_timestamp_ms"] == first_ms + 3000
    assert rows[0]["last_timestamp_ms"] == first_ms + 5000
    assert "<=6" in table[1]
    assert listed.split()[:3] == ["accounts", "1", "<=6"]
    assert "records         <=6" in described
    assert (facts["records"], facts["is_record_bound"], statistics["records"]) == (6, True, 3)


# --- the timeline -----------------------------------------------------------------------------


def row(first: int | None, last: int | None, state: str, **more: object) -> dict[str, object]:
    return {
        "partition": 0,
        "first_timestamp_ms": first,
        "last_timestamp_ms": last,
        "state": state,
        "verdict": "keep",
        **more,
    }


def test_a_timeline_shows_states_in_order_over_its_whole_width() -> None:
    rows = [
        row(0, 9, "archived", verdict="delete"),
        row(10, 19, "archived"),
        row(20, 29, "compacted"),
        row(30, 34, "sealed"),
        row(35, 40, "active"),
    ]

    line = Timeline(rows, columns=43).line(0)

    assert line == "0  |xxxxxxxxx|.........|---------|====|####"


def test_segments_too_short_to_begin_are_drawn_by_their_state() -> None:
    rows = [row(0, 0, "sealed"), row(1000, 1000, "active")]

    assert Timeline(rows, columns=33).line(0) == "0  =" + " " * 28 + "#"


def test_records_without_a_time_are_left_out_and_late_ones_are_not() -> None:
    assert not Timeline([row(None, None, "active")], columns=80).has_times
    assert Timeline([row(90, 40, "active"), row(None, 50, "sealed")], columns=80).line(0)


def test_the_axis_names_both_ends() -> None:
    timeline = Timeline([row(0, 3 * DAY_MS, "sealed")], columns=80)

    assert len(timeline.axis()) == 80
    assert timeline.axis().split()[0][:4] in ("1969", "1970")
