"""``cordwood restore``, on every kind of target."""

from pathlib import Path

import pytest

import cordwood
from fakes.command_line import CommandLine, CommandTarget

FIRST_MS = 1_700_000_000_000
MINUTE_MS = 60_000


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An archive of two topics: one with a record a minute, thirty of them, and a group."""
    url = (tmp_path / "archive").as_uri()
    config = {
        "archive.url": url,
        "archive.after.ms": 0,
        "segment.records": 10,
        "retention.ms": -1,
        "durability": "os",
    }
    with cordwood.open(tmp_path / "lost") as store:
        for name in ("orders", "payments"):
            topic = store.create_topic(name, partitions=2, config=config)
            for n in range(30):
                topic.append(b"%d" % n, timestamp_ms=FIRST_MS + n * MINUTE_MS, partition=0)
            topic.partition(0).roll()
        store.group("billing").commit({("orders", 0): 25})
        store.topic("orders").partition(0).syncing.sync_pending()
        store.topic("payments").partition(0).syncing.sync_pending()
        store.archive_now()
    return url


def values(target: CommandTarget, topic: str) -> list[int]:
    with target.open_store() as store:
        return [int(record.value or b"") for record in store.topic(topic).partition(0).read()]


def test_a_topic_comes_back_with_its_groups(
    on_target: CommandLine, target: CommandTarget, url: str
) -> None:
    rows = on_target.ok("restore", url, "orders", "--json").objects

    assert [(row["topic"], row["partition"], row["records"]) for row in rows] == [
        ("orders", 0, 30),
        ("orders", 1, 0),
    ]
    assert values(target, "orders") == list(range(30))
    with target.open_store() as store:
        assert store.topics() == ["orders"]
        assert store.group("billing").committed("orders", 0) == 25
        assert store.topic("orders").config.archive_url is None


def test_a_copy_says_that_it_is_not_archived(on_target: CommandLine, url: str) -> None:
    ran = on_target.ok("restore", url, "orders")

    assert "orders: restored as a copy without an archive.url" in ran.err
    assert "topics alter" in ran.err


def test_taken_over_the_archive_is_continued_here_and_the_other_store_says_why_not_there(
    on_target: CommandLine, target: CommandTarget, cli: CommandLine, url: str, tmp_path: Path
) -> None:
    ran = on_target.ok("restore", url, "orders", "--take-over")

    assert "copy" not in ran.err
    with target.open_store() as store:
        assert store.topic("orders").config.archive_url == url
    assert on_target.ok("archive", "orders", "--status", "--json").objects
    lost = str(tmp_path / "lost")
    status = cli("archive", "orders", "--status", "--json", "--at", lost)
    assert status.code == 1
    assert "belongs to store" in status.objects[0]["last_error"]
    found = cli("doctor", "--json", "--at", lost)
    [archive] = [f for f in found.objects if f["name"] == "archive"]
    assert (found.code, archive["verdict"]) == (1, "problem")
    assert "orders-0: StorageError" in archive["value"]
    assert "payments" not in archive["value"]


def test_without_topics_all_of_the_archive_come_back(
    on_target: CommandLine, target: CommandTarget, url: str
) -> None:
    lines = on_target.ok("restore", url).lines

    assert lines[0].split()[:2] == ["topic", "partition"]
    assert [line.split()[0] for line in lines[1:]] == ["orders"] * 2 + ["payments"] * 2
    assert values(target, "payments") == list(range(30))


@pytest.mark.parametrize("moment", [str(FIRST_MS + 14 * MINUTE_MS), "2023-11-14T22:27:20Z"])
def test_a_topic_comes_back_as_it_was_at_a_time(
    on_target: CommandLine, target: CommandTarget, url: str, moment: str
) -> None:
    on_target.ok("restore", url, "orders", "--to", moment)

    assert values(target, "orders") == list(range(15))
    with target.open_store() as store:
        assert store.group("billing").committed("orders", 0) in (None, 15)
        assert store.topic("orders").config.archive_url is None


def test_a_dry_run_lists_what_would_come_back(
    on_target: CommandLine, target: CommandTarget, url: str
) -> None:
    moment = str(FIRST_MS + 14 * MINUTE_MS)

    ran = on_target.ok("restore", url, "orders", "--to", moment, "--dry-run", "--json")

    first, second = ran.objects
    assert (first["start_offset"], first["end_offset"], first["left_out"]) == (0, 15, 15)
    assert (first["segments"], second["records"]) == (2, 0)
    assert first["fetched_bytes"] > 0
    assert "nothing was restored" in ran.err
    with target.open_store() as store:
        assert store.topics() == []


def test_a_topic_comes_back_beside_itself(
    on_target: CommandLine, target: CommandTarget, url: str
) -> None:
    on_target.ok("restore", url, "orders", "--take-over")
    with target.open_store() as store:
        store.topic("orders").append(b"30", partition=0)

    on_target.ok("restore", "orders", "--to", str(FIRST_MS + 9 * MINUTE_MS), "--as", "orders-then")

    assert values(target, "orders-then") == list(range(10))
    assert values(target, "orders") == list(range(31))
    with target.open_store() as store:
        assert store.topic("orders").config.archive_url == url
        assert store.group("billing").committed("orders", 0) == 25
        assert store.group("billing").committed("orders-then", 0) is None


def test_keys_of_the_configuration_can_be_set(
    on_target: CommandLine, target: CommandTarget, url: str
) -> None:
    on_target.ok("restore", url, "orders", "-c", "segment.records=7")

    with target.open_store() as store:
        assert store.topic("orders").config.segment_records == 7


def test_a_topic_that_is_there_is_never_written_over(
    on_target: CommandLine, target: CommandTarget, url: str
) -> None:
    with target.open_store() as store:
        store.create_topic("payments").append(b"7")

    ran = on_target("restore", url)

    assert (ran.code, ran.out) == (1, "")
    assert "topic payments already exists" in ran.err
    assert values(target, "payments") == [7]
    with target.open_store() as store:
        assert store.topics() == ["payments"]


def test_what_cannot_be_restored_is_said(
    on_target: CommandLine, target: CommandTarget, url: str, tmp_path: Path
) -> None:
    with target.open_store() as store:
        store.create_topic("plain")
    cases = [
        (["none"], 1, "no topic named 'none'"),
        (["plain"], 1, "topic plain has no archive.url"),
        (["plain", "orders"], 2, "no archive given"),
        ([url, "none"], 1, "topics in it: orders, payments"),
        ([url, "file:///elsewhere"], 2, "one archive at a time"),
        ([(tmp_path / "data").as_uri()], 1, "check that it is an archive"),
        ([url, "--as", "new"], 2, "--as renames one topic"),
        ([url, "orders", "--as", "a/b"], 1, "cordwood: topic name 'a/b'"),
        ([url, "orders", "--take-over", "--as", "new"], 2, "leave out --to and --as"),
        ([url, "orders", "--take-over", "--to", "-2h"], 2, "leave out --to and --as"),
        ([url, "orders", "-c", f"archive.url={url}"], 2, "cannot continue this archive"),
        ([url, "orders", "--to", "yesterday"], 2, "--to = yesterday"),
        ([url, "orders", "-c", "retention.sm=1"], 2, "retention.sm"),
        ([url, "orders", "-c", "nonsense"], 2, "must be key=value"),
        (["ftp:///x"], 2, "archive.url = ftp:///x"),
    ]

    for arguments, code, message in cases:
        ran = on_target("restore", *arguments)

        assert (ran.code, ran.out) == (code, ""), ran
        assert message in ran.err
    with target.open_store() as store:
        assert store.topics() == ["plain"]


def test_a_topic_is_not_restored_over_itself(
    on_target: CommandLine, target: CommandTarget, url: str
) -> None:
    on_target.ok("restore", url, "orders", "--take-over")

    ran = on_target("restore", "orders")

    assert ran.code == 2
    assert "topic orders exists; pass another name with --as" in ran.err


def test_a_new_directory_is_made_for_what_comes_back(
    cli: CommandLine, url: str, tmp_path: Path
) -> None:
    cli.ok("restore", str(tmp_path / "archive"), "orders", "--at", "fresh")

    with cordwood.open(tmp_path / "fresh", read_only=True) as store:
        assert store.topic("orders").partition(0).end_offset == 30
