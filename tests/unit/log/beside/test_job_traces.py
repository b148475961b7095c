import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cordwood
from cordwood.clock import SystemClock
from cordwood.log.beside.job_traces import (
    LOST_MS,
    TRACES_MAX,
    JobTrace,
    JobTracer,
    parse_trace,
    read_traces,
    render_trace,
)
from cordwood.storage.files import RealFileSystem
from cordwood.value_class import replace

JOB = "0" * 32
TRACE = JobTrace(
    job_id=JOB,
    kind="export",
    subject="orders to lake",
    host="h",
    process=1,
    started_ms=1,
    beat_ms=2,
    step="writing",
    done=3,
    total=10,
    positions=(("orders", 0, 17),),
)


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = tmp_path / "data"
    with cordwood.open(path) as opened:
        opened.create_topic("orders")
    return str(path)


def folder_of(store: str) -> Path:
    return Path(store, "remote-log-index-cache", "cordwood-jobs")


def test_a_trace_is_read_as_it_was_written() -> None:
    assert parse_trace(JOB, render_trace(TRACE)) == TRACE


def test_a_trace_stays_small() -> None:
    large = replace(
        TRACE,
        subject="x" * 10_000,
        positions=tuple(("t" * 249, number, 2**62) for number in range(10_000)),
    )

    assert len(render_trace(large)) < 64 * 1024
    assert parse_trace(JOB, render_trace(large)) is not None


@given(
    st.binary(max_size=60)
    | st.sampled_from(["kind", "process", "positions", "ended_ms"]).flatmap(
        lambda name: st.sampled_from([None, -1, 2**70, "x", [], [[1]], [["a", "b", "c"]], {}]).map(
            lambda value: json.dumps({**json.loads(render_trace(TRACE)), name: value}).encode()
        )
    )
)
def test_anything_else_is_a_trace_or_none(data: bytes) -> None:
    found = parse_trace(JOB, data)

    assert found is None or parse_trace(JOB, render_trace(found)) == found


def test_a_job_is_seen_while_it_runs_and_after(store: str) -> None:
    now_ms = SystemClock().now_ms()
    with JobTracer(store, kind="export", subject="orders") as tracer:
        [running] = read_traces(RealFileSystem(), store)
        tracer.note("writing", done=3, total=10)
    [done] = read_traces(RealFileSystem(), store)

    assert running.state(now_ms) == "running"
    assert (done.state(now_ms), done.step, done.done) == ("done", "writing", 3)


def test_a_job_that_fails_says_why(store: str) -> None:
    with (
        pytest.raises(ValueError, match="no such table"),
        JobTracer(store, kind="export", subject="orders"),
    ):
        raise ValueError("no such table")
    [found] = read_traces(RealFileSystem(), store)

    assert (found.state(0), found.text) == ("failed", "no such table")


def test_a_job_that_was_killed_is_lost_after_two_minutes() -> None:
    assert TRACE.state(TRACE.beat_ms + LOST_MS) == "running"
    assert TRACE.state(TRACE.beat_ms + LOST_MS + 1) == "lost"


def test_traces_do_not_grow_without_bound(store: str) -> None:
    for _ in range(TRACES_MAX + 20):
        with JobTracer(store, kind="verify", subject="all topics"):
            pass
    old = folder_of(store) / ("f" * 32 + ".json")
    old.write_bytes(render_trace(TRACE))
    os.utime(old, (0, 0))
    with JobTracer(store, kind="verify", subject="all topics"):
        pass

    assert len(os.listdir(folder_of(store))) == TRACES_MAX
    assert not old.exists()


def test_a_directory_of_others_gets_no_trace(tmp_path: Path) -> None:
    with JobTracer(str(tmp_path), kind="verify", subject="all topics") as tracer:
        tracer.note("reading")

    assert os.listdir(tmp_path) == []


def test_a_trace_that_cannot_be_written_disturbs_nobody(store: str) -> None:
    folder_of(store).parent.mkdir(exist_ok=True)
    folder_of(store).write_text("a file is in the way")

    with JobTracer(store, kind="verify", subject="all topics") as tracer:
        tracer.note("reading")

    assert read_traces(RealFileSystem(), store) == []
