"""A table and its rejected rows: every offset once, in one of the two, wherever a run dies."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cordwood.errors import ConfigError
from cordwood.spark.decoding.column_format import Encoding
from cordwood.spark.jobs.export import ExportOptions, run_export
from cordwood.spark.jobs.feed_steps import StepKind, next_step, with_replayed
from cordwood.spark.jobs.row_choice import ColumnChoice, RowChoice
from cordwood.spark.jobs.topic_span import TopicSpan
from cordwood.spark.tables.lake_table import TableState, UpkeepPolicy
from cordwood.spark.tables.lake_target import LakeTarget, TableFormat
from cordwood.spark.tables.time_partitions import PartitionBy
from fakes.schema_registry import running_registry
from spark.typed_topics import (
    TOPIC,
    append,
    export,
    log_places,
    places_of,
    rejected,
    rows_of,
    target,
)

FORMATS = list(TableFormat)
REPLACING = [TableFormat.DELTA, TableFormat.ICEBERG]
SCHEMA = "id BIGINT, name STRING"
GOOD = [b'{"id": %d, "name": "n"}' % n for n in range(6)]
MIXED: list[bytes | None] = [*GOOD[:3], b"bad", *GOOD[3:], b'{"id": "x"}', None]


class KilledError(BaseException):
    """Stands for SIGKILL: nothing handles it."""


def killed_at(
    monkeypatch: pytest.MonkeyPatch,
    to: LakeTarget,
    commit: int,
    moment: str,
    run: Callable[[], Any],
) -> None:
    """Run, and die before or after that commit of either table."""
    home = type(to.open())
    real = home.commit
    count = 0

    def commit_or_die(self: Any, *arguments: Any, **rest: Any) -> None:
        nonlocal count
        count += 1
        if count == commit and moment == "before":
            raise KilledError
        real(self, *arguments, **rest)
        if count == commit:
            raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(home, "commit", commit_or_die)
        # A killed process removes nothing.
        patched.setattr(home, "discard", lambda *_: None)
        with pytest.raises(KilledError):
            run()


def check_complete(data: Path, to: LakeTarget) -> None:
    both = sorted(places_of(to) + places_of(rejected(to)))
    assert both == log_places(data)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("commit", [1, 2, 3, 4])
def test_a_run_killed_at_any_commit_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: TableFormat, moment: str, commit: int
) -> None:
    data, to = tmp_path / "data", target(tmp_path, kind)
    append(data, MIXED)
    append(data, MIXED)
    shape: dict[str, Any] = {"value_schema": SCHEMA, "commit_records": 8}

    killed_at(monkeypatch, to, commit, moment, lambda: export(data, to, **shape))
    export(data, to, **shape)

    check_complete(data, to)
    assert [row["value"] for row in rows_of(rejected(to))].count(b"bad") == 2


@pytest.mark.parametrize("kind", FORMATS)
def test_a_part_that_was_half_committed_is_completed_with_the_rules_of_that_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: TableFormat
) -> None:
    data, to = tmp_path / "data", target(tmp_path, kind)
    append(data, [b'{"id": 1}', b'{"id": 1.5}', b'{"id": 3}'], partitions=1)

    # Rejected: 1.5 is no BIGINT. The run dies before the table itself exists.
    killed_at(monkeypatch, to, 1, "after", lambda: export(data, to, value_schema="id BIGINT"))
    append(data, [b'{"id": 4}'], partitions=1)
    export(data, to)  # without a schema: that of the killed run counts

    assert [row["value"]["id"] for row in rows_of(to)] == [1, 3, 4]
    assert places_of(rejected(to)) == [(0, 1)]


@pytest.mark.parametrize("kind", FORMATS)
def test_new_fields_become_columns_and_old_rows_have_null_there(
    tmp_path: Path, kind: TableFormat
) -> None:
    data, to = tmp_path / "data", target(tmp_path, kind)
    choice = RowChoice(value=ColumnChoice(schema="infer"), grows=True)
    append(data, [b'{"id": 1, "place": {"x": 1}}'], partitions=1)
    export(data, to, rows=choice)
    append(
        data, [b'{"id": 2, "place": {"x": 2, "y": "b"}, "tags": ["a"]}', b'{"id": 3}'], partitions=1
    )

    export(data, to)

    values = [row["value"] for row in rows_of(to)]
    assert values[0] == {"id": 1, "place": {"x": 1}}  # its file; readers add the rest
    assert values[1:] == [
        {"id": 2, "place": {"x": 2, "y": "b"}, "tags": ["a"]},
        {"id": 3, "place": None, "tags": None},
    ]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_given_schema_may_add_and_widen_and_not_contradict(
    tmp_path: Path, kind: TableFormat
) -> None:
    data, to = tmp_path / "data", target(tmp_path, kind)
    append(data, [b'{"id": 1}'], partitions=1)
    export(data, to, value_schema="id INT")
    append(data, [b'{"id": 2, "name": "b"}'], partitions=1)

    export(data, to, value_schema="id INT, name STRING")

    assert rows_of(to)[1]["value"] == {"id": 2, "name": "b"}
    with pytest.raises(ConfigError, match="was made with another one"):
        export(data, to, value_schema="id STRING")
    if not kind.can_widen:
        with pytest.raises(ConfigError, match="was made with another one"):
            export(data, to, value_schema="id BIGINT")
    else:
        append(data, [b'{"id": 3000000000}'], partitions=1)
        export(data, to, value_schema="id BIGINT")
        assert rows_of(to)[2]["value"]["id"] == 3_000_000_000


@pytest.mark.parametrize("kind", REPLACING)
@pytest.mark.parametrize("death", [None, (1, "before"), (1, "after"), (2, "before"), (2, "after")])
def test_rejected_rows_whose_schema_became_known_move_to_the_table_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: TableFormat,
    death: tuple[int, str] | None,
) -> None:
    data, to = tmp_path / "data", target(tmp_path, kind)
    with running_registry() as registry:
        known = registry.register("orders-value", user_schema("id"))
        later = registry.register("orders-value", user_schema("id", "size"))
        registry.hidden = {later}
        values: list[bytes | None] = [user(known, 1), user(later, 2, 3), b"bad", user(known, 4)]
        append(data, values, partitions=1)
        choice = RowChoice(value=ColumnChoice(encoding=Encoding.AVRO), registry=registry.url)
        export(data, to, rows=choice)
        assert places_of(rejected(to)) == [(0, 1), (0, 2)]
        registry.hidden = set()

        if death is not None:
            killed_at(monkeypatch, to, *death, lambda: export(data, to, rows=choice, replays=True))
            append(data, [b"worse", user(later, 6, 7)], partitions=1)
        export(data, to, rows=choice, replays=True)
        export(data, to, rows=choice, replays=True)

    check_complete(data, to)
    moved = {row["offset"]: row["value"] for row in rows_of(to)}
    assert moved[1] == {"id": 2, "size": 3}
    assert (0, 2) in places_of(rejected(to))


def user_schema(*fields: str) -> str:
    return json.dumps(
        {"type": "record", "name": "U", "fields": [{"name": f, "type": "long"} for f in fields]}
    )


def user(number: int, *values: int) -> bytes:
    return b"\x00" + struct.pack(">i", number) + bytes(2 * value for value in values)  # zigzag


def test_rows_of_a_parquet_table_cannot_be_replayed(tmp_path: Path) -> None:
    data, to = tmp_path / "data", target(tmp_path, TableFormat.PARQUET)
    append(data, [b"{}"])

    with pytest.raises(ConfigError, match="use delta or iceberg"):
        export(data, to, replays=True)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_job_that_follows_commits_what_comes_until_it_is_stopped(
    tmp_path: Path, kind: TableFormat
) -> None:
    data, to = tmp_path / "data", target(tmp_path, kind)
    append(data, MIXED)
    stop = threading.Event()
    options = ExportOptions(
        paths=(str(data),), topics=(TOPIC,), target=to, value_schema=SCHEMA, follow_s=0.1
    )
    reports: list[Any] = []
    thread = threading.Thread(
        target=lambda: reports.append(run_export(None, options, stop=stop)), daemon=True
    )
    thread.start()
    try:
        for _ in range(3):
            before = _held(to)
            _wait(lambda before=before: _held(to) >= before)  # type: ignore[misc]
            append(data, MIXED)
            _wait(lambda: _held(to) == len(log_places(data)))
    finally:
        stop.set()
        thread.join(60)

    assert reports[0].totals["records"] + reports[0].totals["rejected"] == 4 * len(MIXED)
    check_complete(data, to)


def _held(to: LakeTarget) -> int:
    state = to.open().load()
    return 0 if state is None else sum(state.offsets.values())


def _wait(condition: Callable[[], bool]) -> None:
    waited = threading.Event()
    for _ in range(600):
        if condition():
            return
        waited.wait(0.05)
    raise AssertionError("waited too long")


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("by", [PartitionBy.HOUR, PartitionBy.DAY, PartitionBy.MONTH])
def test_a_table_is_divided_by_time(tmp_path: Path, kind: TableFormat, by: PartitionBy) -> None:
    data, to = tmp_path / "data", target(tmp_path, kind)
    append(data, [b"%d" % n for n in range(30)])

    export(data, to, rows=RowChoice(partition_by=by))

    assert places_of(to) == log_places(data)
    units = {PartitionBy.HOUR: 30, PartitionBy.DAY: 3, PartitionBy.MONTH: 1}
    table = to.open()
    table.load()
    assert len(table.files()) == units[by]
    with pytest.raises(ConfigError, match="is divided by"):
        export(data, to, rows=RowChoice(partition_by=PartitionBy.NONE))


@pytest.mark.parametrize("kind", REPLACING)
def test_upkeep_merges_files_and_removes_leftovers_and_changes_no_row(
    tmp_path: Path, kind: TableFormat
) -> None:
    data, to = tmp_path / "data", target(tmp_path, kind)
    for _ in range(6):
        append(data, MIXED)
        export(data, to, value_schema=SCHEMA, rows=RowChoice(partition_by=PartitionBy.DAY))
    held = to.open()
    held.load()
    leftover = Path(held.staging("x").removeprefix("file://")).parent / "cordwood-killed"
    leftover.mkdir(parents=True, exist_ok=True)
    (leftover / "part.parquet").write_bytes(b"half a file")
    table = to.open()
    state, before = table.load(), rows_of(to)
    files = len(table.files())

    report = export(data, to, upkeep=UpkeepPolicy(expire_ms=0, leftover_ms=0))

    assert report.totals["merged_files"] > 0
    assert report.totals["removed_files"] > 0
    table = to.open()
    assert table.load() == state
    assert len(table.files()) < files
    assert rows_of(to) == before
    assert not (leftover / "part.parquet").exists()
    append(data, MIXED)
    export(data, to)
    check_complete(data, to)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_dry_run_checks_everything_and_changes_nothing(tmp_path: Path, kind: TableFormat) -> None:
    data, to = tmp_path / "data", target(tmp_path, kind)
    append(data, MIXED)
    before = sorted(path for path in tmp_path.rglob("*") if "data" not in path.parts)

    report = export(data, to, value_schema="infer", is_dry_run=True)

    assert sorted(p for p in tmp_path.rglob("*") if "data" not in p.parts) == before
    assert report.totals["offsets"] == len(MIXED)
    assert report.totals["value"] == "struct<id: string, name: string>"
    with pytest.raises(ConfigError, match="value schema"):
        export(data, to, value_schema="id NOTHING", is_dry_run=True)
    with pytest.raises(ConfigError, match="registry"):
        export(data, to, rows=RowChoice(registry="not a url"), is_dry_run=True)


# --- the steps alone ----------------------------------------------------------------------------


def span(starts: dict[int, int], stops: dict[int, int]) -> TopicSpan:
    return TopicSpan(
        paths=("data",),
        starts={(TOPIC, n): offset for n, offset in starts.items()},
        stops={(TOPIC, n): offset for n, offset in stops.items()},
        topic_ids={},
    )


def state(settings: dict[str, str] | None = None, **offsets: int) -> TableState:
    return TableState(
        offsets={(TOPIC, int(name[1:])): offset for name, offset in offsets.items()},
        settings=settings or {},
    )


def test_a_rejected_table_that_is_ahead_is_followed_first_and_exactly() -> None:
    step = next_step(
        span({0: 5, 1: 7}, {0: 50, 1: 70}), state(p0=5, p1=7), state({"a": "b"}, p0=9, p1=3), [],
        commit_records=100,
    )  # fmt: skip

    assert step.kind is StepKind.RECOVER
    assert step.settings == {"a": "b"}
    assert step.span is not None
    assert step.span.stops == {(TOPIC, 0): 9, (TOPIC, 1): 7}


def test_a_rejected_table_that_is_behind_means_nothing() -> None:
    step = next_step(span({0: 5}, {0: 9}), state(p0=5), state(p0=5), [], commit_records=2)

    assert step.kind is StepKind.WRITE
    assert step.span is not None
    assert step.span.stops == {(TOPIC, 0): 7}


def test_a_replay_is_finished_before_anything_else() -> None:
    main = state(with_replayed({}, ["a.parquet", "b.parquet"]), p0=5)

    pending = next_step(
        span({0: 5}, {0: 9}), main, state(p0=7), ["b.parquet", "c.parquet"], commit_records=9
    )
    done = next_step(span({0: 9}, {0: 9}), main, state(p0=7), ["c.parquet"], commit_records=9)

    assert (pending.kind, pending.files) == (StepKind.FINISH_REPLAY, frozenset({"b.parquet"}))
    assert done.kind is StepKind.IDLE
