"""A distributed compaction leaves what the store's own cleaner leaves, however it ends."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import cordwood
from cordwood.errors import ConfigError
from cordwood.library import request_change
from cordwood.log.inbox.store_change import ChangeAnswer
from cordwood.quantities import TimestampMs
from cordwood.spark.jobs import compact
from cordwood.spark.jobs.compact import CompactOptions, run_compact
from cordwood.spark.jobs.compaction.group_plan import CompactionScope, plan_job
from cordwood.spark.jobs.compaction.whole_log import WHOLE_BYTES_MAX
from fakes.client_batches import client_batch

from .compacted_topic import (
    CONFIG,
    DAY_MS,
    NOW,
    TOPIC,
    cleaner_checkpoint,
    compact_locally,
    fill,
    indexes_of,
    more,
    open_quiet,
    records_of,
    segments_of,
    staged,
)


def options(path: Path, **rest: object) -> CompactOptions:
    return CompactOptions(
        paths=(str(path),),
        topics=(TOPIC,),
        scope=CompactionScope.ALL,
        now_ms=TimestampMs(NOW),
        **rest,  # type: ignore[arg-type]
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.mark.parametrize("whole_bytes_max", [0, WHOLE_BYTES_MAX, 45_000])
def test_the_result_is_byte_for_byte_that_of_the_stores_own_cleaner(
    spark: SparkSession, data: Path, tmp_path: Path, whole_bytes_max: int
) -> None:
    writers = fill(data, seed=1, partitions=2)
    same = tmp_path / "same"
    shutil.copytree(data, same)

    compact_locally(same, now_ms=NOW)
    report = run_compact(spark, options(data, whole_bytes_max=whole_bytes_max))

    assert report.problems == ()
    assert report.totals["bytes_reclaimed"] > 0
    assert segments_of(data) == segments_of(same)
    assert indexes_of(data) == indexes_of(same)
    assert cleaner_checkpoint(data) == cleaner_checkpoint(same)

    # Again, on top of what is clean, after the tombstones' time is over.
    more(data, writers, batches=120, now_ms=NOW)
    shutil.rmtree(same)
    shutil.copytree(data, same)
    later = NOW + 2 * DAY_MS
    compact_locally(same, now_ms=later)
    run_compact(
        spark,
        CompactOptions(
            paths=(str(data),),
            scope=CompactionScope.ALL,
            now_ms=TimestampMs(later),
            whole_bytes_max=whole_bytes_max,
        ),
    )

    assert segments_of(data) == segments_of(same)
    assert indexes_of(data) == indexes_of(same)
    assert cleaner_checkpoint(data) == cleaner_checkpoint(same)


@pytest.mark.parametrize("survived", [0, 1, 2])
def test_a_job_that_is_killed_between_swaps_is_finished_by_the_next(
    spark: SparkSession,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    survived: int,
) -> None:
    fill(data, seed=7)
    same = tmp_path / "same"
    shutil.copytree(data, same)
    compact_locally(same, now_ms=NOW)
    swaps: list[object] = []

    def die(*arguments: object, **rest: object) -> ChangeAnswer:
        if len(swaps) == survived:
            raise KeyboardInterrupt
        swaps.append(arguments)
        return request_change(*arguments, **rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(compact, "request_change", die)
        with pytest.raises(KeyboardInterrupt):
            run_compact(spark, options(data))
    report = run_compact(spark, options(data))

    assert len(swaps) == survived
    assert report.problems == ()
    assert records_of(data) == records_of(same)
    assert cleaner_checkpoint(data) == cleaner_checkpoint(same)
    assert staged(data) == []


def test_where_the_store_is_open_its_owner_puts_the_segments_in_place(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    fill(data, seed=3)
    same = tmp_path / "same"
    shutil.copytree(data, same)
    compact_locally(same, now_ms=NOW)

    with cordwood.open(data) as owner:
        log = owner.topic(TOPIC).partition(0)
        before = log.size_bytes
        report = run_compact(spark, options(data))
        after = log.size_bytes
        where = owner.topic(TOPIC).append(b"still taken", key=b"new")

    assert report.problems == ()
    assert after < before
    assert [r for r in records_of(data) if r[1] != where.offset] == records_of(same)


def test_a_log_that_was_compacted_meanwhile_is_left_as_it_is_and_said(
    spark: SparkSession, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(data, seed=4)
    swaps = 0

    def overtaken(*arguments: object, **rest: object) -> ChangeAnswer:
        nonlocal swaps
        if not swaps:
            compact_locally(data, now_ms=NOW)
            compact_locally(data, now_ms=NOW + 2 * DAY_MS)
        swaps += 1
        return request_change(*arguments, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(compact, "request_change", overtaken)
    report = run_compact(spark, options(data))
    expected = records_of(data)

    (problem,) = report.problems
    assert "users-0: stopped" in problem
    assert swaps == 1
    assert records_of(data) == expected
    assert staged(data) == []


def test_a_dry_run_says_what_would_be_done_and_needs_no_spark(data: Path) -> None:
    fill(data, seed=5)
    before = segments_of(data)

    report = run_compact(None, options(data, is_dry_run=True))

    assert report.is_dry_run
    (row,) = report.rows
    assert (row["topic"], row["is_due"], row["first_dirty"]) == (TOPIC, True, 0)
    assert row["bytes"] == sum(map(len, list(before.values())[:-1]))
    assert segments_of(data) == before
    assert staged(data) == []


def test_what_is_clean_is_not_compacted_again_unless_all_is_asked_for(data: Path) -> None:
    fill(data, seed=6)
    compact_locally(data, now_ms=NOW)

    due = {
        scope: plan_job([str(data)], [], scope=scope, now_ms=TimestampMs(NOW))[0].decision.is_due
        for scope in CompactionScope
    }

    assert due == {
        CompactionScope.DIRTY: False,
        CompactionScope.DUE: False,
        CompactionScope.ALL: True,
    }


def test_the_topics_threshold_counts_only_where_it_is_asked_for(data: Path) -> None:
    writers = fill(data, seed=6)
    compact_locally(data, now_ms=NOW)
    more(data, writers, batches=5, now_ms=NOW)

    due = {
        scope: plan_job([str(data)], [], scope=scope, now_ms=TimestampMs(NOW))[0].decision.is_due
        for scope in (CompactionScope.DIRTY, CompactionScope.DUE)
    }

    assert due == {CompactionScope.DIRTY: True, CompactionScope.DUE: False}


def test_an_open_transaction_holds_back_everything_from_its_start_on(data: Path) -> None:
    with open_quiet(data) as store:
        log = store.create_topic(TOPIC, config=CONFIG).partition(0)
        log.append(b"1", key=b"a")
        log.roll()
        batch = client_batch(b"2", keys=[b"a"], producer_id=9, sequence=0, transactional=True)
        log.batches.append_batch(batch)
        log.roll()
        log.append(b"3", key=b"b")
        log.roll()

    (plan,) = plan_job([str(data)], [], scope=CompactionScope.ALL, now_ms=TimestampMs(NOW))

    assert plan.decision.first_uncleanable == 1


def test_a_topic_that_is_not_compacted_is_refused(data: Path) -> None:
    with open_quiet(data) as store:
        store.create_topic(TOPIC)

    with pytest.raises(ConfigError, match=r"cleanup\.policy does not include compact"):
        run_compact(None, options(data, is_dry_run=True))


def test_a_topic_that_is_not_there_is_refused_with_those_that_are(data: Path) -> None:
    with open_quiet(data) as store:
        store.create_topic("orders")

    with pytest.raises(ConfigError, match="known are: orders"):
        run_compact(None, options(data, is_dry_run=True))
