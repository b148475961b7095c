"""``cordwood topics``, on every kind of target."""

import sys
from pathlib import Path

import pytest

import cordwood
from fakes.command_line import CommandLine, CommandTarget


def test_a_topic_is_created_listed_and_described(on_target: CommandLine) -> None:
    on_target.ok("topics", "create", "orders", "-p", "3", "-c", "retention.ms=7d")

    listed = on_target.ok("topics", "list")
    assert [line.split() for line in listed.lines] == [
        ["topic", "partitions", "records", "bytes", "config"],
        ["orders", "3", "0", "0", "B", "retention.ms=604800000"],
    ]
    [described] = on_target.ok("topics", "describe", "orders", "--json").objects
    assert described.pop("id")
    assert described == {
        "topic": "orders",
        "is_internal": False,
        "partitions": [
            {
                "partition": number,
                "start_offset": 0,
                "end_offset": 0,
                "records": 0,
                "is_record_bound": False,
                "bytes": 0,
                "is_elsewhere": False,
                "problem": None,
            }
            for number in range(3)
        ],
        "records": 0,
        "is_record_bound": False,
        "bytes": 0,
        "durability": "disk",
        "cleanup_policy": "delete",
        "config": {"retention.ms": "604800000"},
    }


def test_offsets_and_bytes_are_those_of_the_log(
    on_target: CommandLine, target: CommandTarget
) -> None:
    with target.open_store() as store:
        topic = store.create_topic("orders", partitions=2)
        topic.append_many([(None, b"x" * 100)] * 10, partition=1)
        topic.partition(1).delete_before(4)
        size = topic.partition(1).size_bytes

    described = on_target.ok("topics", "describe", "orders")

    assert "durability      disk" in described.lines
    assert [line.split() for line in described.lines[-2:]] == [
        ["0", "0", "0", "0", "0", "B"],
        ["1", "4", "10", "6", *(f"{size / 1024:.1f} KiB" if size > 1023 else f"{size} B").split()],
    ]
    [row] = on_target.ok("topics", "list", "--json").objects
    assert (row["topic"], row["partitions"], row["records"], row["bytes"]) == (
        "orders",
        2,
        6,
        size,
    )


def test_every_key_is_shown_with_where_it_is_from(on_target: CommandLine) -> None:
    on_target.ok("topics", "create", "orders", "-c", "segment.bytes=2MiB")

    lines = on_target.ok("topics", "describe", "orders", "--config").lines

    settings = {tuple(line.split()) for line in lines}
    assert ("segment.bytes", "2097152", "topic") in settings
    assert ("retention.ms", "604800000", "default") in settings


def test_internal_topics_are_listed_on_request(
    on_target: CommandLine, target: CommandTarget
) -> None:
    with target.open_store() as store:
        store.create_topic("orders")
        store.group("billing").commit({("orders", 0): 0})

    assert [row["topic"] for row in on_target.ok("topics", "list", "--json").objects] == ["orders"]

    listed = on_target.ok("topics", "list", "--all", "--json").objects
    assert [row["topic"] for row in listed] == ["__consumer_offsets", "orders"]


def test_a_topic_is_altered(on_target: CommandLine) -> None:
    on_target.ok("topics", "create", "orders", "-c", "retention.ms=7d")

    on_target.ok(
        "topics", "alter", "orders", "-c", "segment.ms=1h", "-u", "retention.ms", "-p", "4"
    )

    [row] = on_target.ok("topics", "list", "--json").objects
    assert row["partitions"] == 4
    assert row["config"] == {"segment.ms": "3600000"}


def test_as_many_partitions_as_there_are_is_no_change(on_target: CommandLine) -> None:
    on_target.ok("topics", "create", "orders", "-p", "2")

    on_target.ok("topics", "alter", "orders", "-p", "2", "-c", "segment.ms=1h")

    [row] = on_target.ok("topics", "list", "--json").objects
    assert (row["partitions"], row["config"]) == (2, {"segment.ms": "3600000"})


def test_a_topic_is_deleted_only_with_yes_where_nobody_can_be_asked(
    on_target: CommandLine,
) -> None:
    on_target.ok("topics", "create", "orders", "payments")

    refused = on_target("topics", "delete", "orders")
    assert refused.code == 2
    assert "pass --yes" in refused.err

    on_target.ok("topics", "delete", "orders", "--yes")
    assert [row["topic"] for row in on_target.ok("topics", "list", "--json").objects] == [
        "payments"
    ]


def test_of_several_topics_none_is_deleted_when_one_is_missing(on_target: CommandLine) -> None:
    on_target.ok("topics", "create", "orders")

    assert on_target("topics", "delete", "orders", "payments", "--yes").code == 1

    assert len(on_target.ok("topics", "list", "--json").objects) == 1


@pytest.mark.parametrize(("answer", "is_deleted"), [("y\n", True), ("n\n", False)])
def test_at_a_terminal_it_asks(
    cli: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    is_deleted: bool,
) -> None:
    cli.ok("topics", "create", "orders")
    monkeypatch.setattr("cordwood.cli.terminal.sys", FakeSystem)

    ran = cli("topics", "delete", "orders", stdin=answer.encode())

    assert ran.code == (0 if is_deleted else 1)
    assert "delete topic orders with 0 records" in ran.err
    with cordwood.open(tmp_path / "data", read_only=True) as store:
        assert store.topics() == ([] if is_deleted else ["orders"])


class Terminal:
    @staticmethod
    def isatty() -> bool:
        return True


class FakeSystem:
    """`sys` with a terminal at standard input."""

    stdin = Terminal()


def test_a_topic_is_trimmed_to_an_offset(on_target: CommandLine, target: CommandTarget) -> None:
    with target.open_store() as store:
        topic = store.create_topic("orders", partitions=2)
        topic.append_many([(None, b"x")] * 10, partition=0)
        topic.append_many([(None, b"x")] * 3, partition=1)

    trimmed = on_target.ok("topics", "trim", "orders", "--before", "5", "--yes", "--json")

    assert [(r["partition"], r["start_offset"], r["deleted"]) for r in trimmed.objects] == [
        (0, 5, 5),
        (1, 3, 3),
    ]
    assert "orders-1: offset 5 does not exist yet, using end 3" in trimmed.err
    with target.open_store() as store:
        assert [log.start_offset for log in store.topic("orders").partitions] == [5, 3]


def test_a_topic_is_trimmed_to_a_time_and_one_partition(
    on_target: CommandLine, target: CommandTarget
) -> None:
    with target.open_store() as store:
        topic = store.create_topic("orders", partitions=2)
        for number in (0, 1):
            topic.append_many(
                [cordwood.Record(b"x", timestamp_ms=1_700_000_000_000 + i) for i in range(10)],
                partition=number,
            )

    on_target.ok("topics", "trim", "orders", "-p", "1", "--before", "@1700000000007", "--yes")

    with target.open_store() as store:
        assert [log.start_offset for log in store.topic("orders").partitions] == [0, 7]


def test_a_dry_run_of_trim_deletes_nothing(on_target: CommandLine, target: CommandTarget) -> None:
    with target.open_store() as store:
        store.create_topic("orders").append_many([(None, b"x")] * 10)

    shown = on_target.ok("topics", "trim", "orders", "--before", "end", "--dry-run", "--json")

    assert [row["deleted"] for row in shown.objects] == [10]
    assert "nothing was deleted" in shown.err
    with target.open_store() as store:
        assert store.topic("orders").partition(0).start_offset == 0


def test_a_topic_that_is_there_may_be_left_as_it_is(on_target: CommandLine) -> None:
    on_target.ok("topics", "create", "orders")

    assert "already exists" in on_target("topics", "create", "orders").err
    assert "already exists" in on_target.ok("topics", "create", "orders", "--if-not-exists").err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["create", "a b"], 1, "topic name 'a b': must contain only"),
        (["create", "x", "-c", "retention.sm=1"], 2, "retention.sm = 1: unknown topic key"),
        (["create", "x", "-c", "segment.bytes=1"], 2, "segment.bytes = 1: must be"),
        (["create", "x", "-c", "segment.bytes"], 2, "--config = segment.bytes: must be key=value"),
        (["create", "x", "-c", "a=1", "-c", "a=2"], 2, "a is given twice"),
        (["create", "x", "-p", "100000"], 2, "partitions = 100000: must be 1 to 10000"),
        (["create", "__consumer_offsets"], 1, "internal"),
        (["describe", "none"], 1, "no topic named 'none'"),
        (["alter", "none", "-p", "3"], 1, "no topic named 'none'"),
        (["alter", "orders"], 2, "nothing to change"),
        (["alter", "orders", "-p", "1"], 2, "the number can only grow"),
        (["alter", "orders", "-c", "retention.ms=x"], 2, "retention.ms = x"),
        (["alter", "orders", "-u", "retention.sm"], 2, "retention.sm"),
        (["alter", "orders", "-c", "a=1", "-u", "a"], 2, "is also given to --config"),
        (["delete", "none", "-y"], 1, "no topic named 'none'"),
        (["trim", "none", "--before", "3"], 1, "no topic named 'none'"),
        (["trim", "orders", "--before", "soon"], 2, "--before = soon: must be beginning, end"),
        (["trim", "orders", "--before", "3", "-p", "7"], 1, "partitions 0 to 1, not 7"),
        (["trim", "changes", "--before", "end", "-y"], 1, "append tombstones"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_done_is_told_in_one_line(
    on_target: CommandLine,
    target: CommandTarget,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    with target.open_store() as store:
        store.create_topic("orders", partitions=2)
        changes = store.create_topic("changes", config={"cleanup.policy": "compact"})
        changes.append(b"x", key=b"k")

    ran = on_target("topics", *arguments)

    assert ran.code == code, ran
    assert ran.err.startswith("cordwood: ")
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert ran.out == ""


def test_a_directory_that_is_not_there_is_created_with_its_first_topic(
    cli: CommandLine, tmp_path: Path
) -> None:
    cli.ok("topics", "create", "orders", "--at", "./new/data")

    assert (tmp_path / "new" / "data" / "orders-0").is_dir()


def test_the_defaults_of_a_directory_are_those_that_serve_would_have(
    cli: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "cordwood.toml").write_text('log.durability = "os"\n')
    cli.ok("topics", "create", "orders")

    lines = cli.ok("topics", "describe", "orders", "--config").lines

    assert ["durability", "os", "broker"] in [line.split() for line in lines]


@pytest.mark.skipif(sys.platform == "win32", reason="no such terminal")
def test_names_are_completed_from_the_catalog(cli: CommandLine, tmp_path: Path) -> None:
    from typer import Context
    from typer.main import get_command

    from cordwood.cli.command_list import app
    from cordwood.cli.completion import complete_topic

    cli.ok("topics", "create", "orders", "offers", "payments")
    context = Context(get_command(app))

    assert complete_topic(context, "o") == ["offers", "orders"]
    context.params["at"] = str(tmp_path / "none")
    assert complete_topic(context, "o") == []
