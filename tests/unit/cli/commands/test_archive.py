"""``cordwood archive``, on every kind of target."""

from pathlib import Path

import pytest

import cordwood
from fakes.command_line import CommandLine, CommandTarget


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "archive").as_uri()


def fill(target: CommandTarget, url: str, *topics: str) -> None:
    """Three segments of ten records each, the last one active."""
    config = {"archive.url": url, "archive.after.ms": 0, "segment.records": 10}
    with target.open_store() as store:
        for name in topics or ("orders",):
            topic = store.create_topic(name, config=config)
            for _ in range(3):
                topic.append_many([(None, b"x" * 50)] * 10)


def test_what_is_due_is_copied(on_target: CommandLine, target: CommandTarget, url: str) -> None:
    fill(target, url)

    [row] = on_target.ok("archive", "orders", "--json").objects

    assert (row["topic"], row["partition"], row["url"]) == ("orders", 0, url)
    assert (row["archived_up_to"], row["end_offset"], row["segments"]) == (20, 30, 2)
    assert (row["lag_records"], row["lag_segments"], row["copied_segments"]) == (10, 0, 2)
    assert row["lag_bytes"] > 0
    assert row["last_error"] is None
    with cordwood.open_archive(url) as archive:
        assert archive.topic("orders").partition(0).end_offset == 20


def test_rolled_segments_are_copied_too(
    on_target: CommandLine, target: CommandTarget, url: str
) -> None:
    fill(target, url)
    on_target.ok("roll", "orders")

    [row] = on_target.ok("archive", "--json").objects

    assert (row["archived_up_to"], row["lag_records"], row["lag_bytes"]) == (30, 0, 0)


def test_the_status_is_looked_up_without_copying(
    on_target: CommandLine, target: CommandTarget, url: str
) -> None:
    fill(target, url)

    [before] = on_target.ok("archive", "--status", "--json").objects
    on_target.ok("archive")
    [after] = on_target.ok("archive", "--status", "--json").objects

    assert (before["archived_up_to"], before["lag_records"], before["segments"]) == (0, 30, 0)
    assert before["lag_segments"] == 2
    assert (after["archived_up_to"], after["lag_records"], after["segments"]) == (20, 10, 2)


def test_one_topic_is_archived_alone(
    on_target: CommandLine, target: CommandTarget, url: str
) -> None:
    fill(target, url, "orders", "payments")

    rows = on_target.ok("archive", "payments", "--json").objects

    assert [(row["topic"], row["archived_up_to"]) for row in rows] == [("payments", 20)]
    lines = on_target.ok("archive", "--status").lines
    assert [line.split()[:3] for line in lines] == [
        ["topic", "partition", "archived"],
        ["orders", "0", "0"],
        ["payments", "0", "20"],
    ]


def test_a_topic_without_an_archive_is_refused(
    on_target: CommandLine, target: CommandTarget
) -> None:
    with target.open_store() as store:
        store.create_topic("orders")

    for arguments in (["archive", "orders"], ["archive", "orders", "--status"]):
        ran = on_target(*arguments)
        assert (ran.code, ran.out) == (1, "")
        assert "topic orders has no archive" in ran.err
        assert "cordwood topics alter orders --config archive.url=URL" in ran.err
    assert "no topic has an archive" in on_target("archive").err
    assert "no topic named 'none'" in on_target("archive", "none").err


def test_an_archive_that_fails_is_named_with_exit_code_1(
    on_target: CommandLine, target: CommandTarget, tmp_path: Path, url: str
) -> None:
    (tmp_path / "archive").write_text("a file, where the archive should be")
    fill(target, url)

    ran = on_target("archive", "--json")

    assert ran.code == 1
    assert ran.objects[0]["last_error"]
    assert ran.objects[0]["archived_up_to"] == 0
