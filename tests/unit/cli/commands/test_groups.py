"""``cordwood groups``, on every kind of target."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

import cordwood
from fakes.command_line import CommandLine, CommandTarget

START_MS = 1_700_000_000_000
DEADLINE_S = 60.0


@pytest.fixture
def groups(target: CommandTarget) -> None:
    """Two topics and two groups that have read some of them."""
    with target.open_store() as store:
        for name in ("orders", "payments"):
            topic = store.create_topic(name, partitions=2)
            for number in (0, 1):
                topic.append_many(
                    [cordwood.Record(b"x", timestamp_ms=START_MS + 1000 * i) for i in range(10)],
                    partition=number,
                )
        store.topic("orders").partition(0).delete_before(2)
        store.group("billing").commit(
            {("orders", 0): (4, "note"), ("orders", 1): 10, ("payments", 0): 1}
        )
        store.group("shipping").commit({("orders", 1): 9})


def committed(target: CommandTarget, group: str) -> dict[tuple[str, int], int]:
    with target.open_store() as store:
        return {place: int(offset) for place, offset in store.group(group).committed().items()}


@pytest.mark.usefixtures("groups")
def test_groups_are_listed_with_their_lag(on_target: CommandLine) -> None:
    listed = on_target.ok("groups", "list", "--json").objects

    assert [(g["group"], g["topics"], g["lag"]) for g in listed] == [
        ("billing", ["orders", "payments"], 6 + 0 + 9),
        ("shipping", ["orders"], 1),
    ]
    assert on_target.ok("groups", "list").lines[0].split() == [
        "group",
        "state",
        "members",
        "topics",
        "lag",
    ]


@pytest.mark.usefixtures("groups")
def test_a_group_is_described_partition_by_partition(
    on_target: CommandLine, target: CommandTarget
) -> None:
    [described] = on_target.ok("groups", "describe", "billing", "--json").objects

    assert described["partitions"] == [
        {
            "topic": topic,
            "partition": partition,
            "committed": offset,
            "start_offset": start,
            "end_offset": 10,
            "lag": 10 - offset,
            "metadata": metadata,
            "client": None,
        }
        for topic, partition, offset, start, metadata in [
            ("orders", 0, 4, 2, "note"),
            ("orders", 1, 10, 0, ""),
            ("payments", 0, 1, 0, ""),
        ]
    ]
    is_broker = target.kind == "broker"
    assert described["state"] == ("Empty" if is_broker else None)
    assert described["members"] == ([] if is_broker else None)
    lines = on_target.ok("groups", "describe", "billing").lines
    assert [line.split() for line in lines[-3:]] == [
        ["orders", "0", "4", "10", "6", "-"],
        ["orders", "1", "10", "10", "0", "-"],
        ["payments", "0", "1", "10", "9", "-"],
    ]


def test_what_was_committed_for_a_topic_that_is_gone_has_no_lag(
    on_target: CommandLine, target: CommandTarget
) -> None:
    with target.open_store() as store:
        store.create_topic("orders")
        store.group("billing").commit({("orders", 0): 0, ("gone", 0): 7})

    [described] = on_target.ok("groups", "describe", "billing", "--json").objects

    found = {row["topic"]: (row["committed"], row["lag"]) for row in described["partitions"]}
    assert found == {"orders": (0, 0), "gone": (7, None)}


@pytest.mark.parametrize(
    ("to", "topics", "expected"),
    [
        ("earliest", [], {("orders", 0): 2, ("orders", 1): 0, ("payments", 0): 0}),
        ("latest", [], {("orders", 0): 10, ("orders", 1): 10, ("payments", 0): 10}),
        ("5", ["orders"], {("orders", 0): 5, ("orders", 1): 5, ("payments", 0): 1}),
        ("-3", ["orders:1"], {("orders", 0): 4, ("orders", 1): 7, ("payments", 0): 1}),
        (
            f"@{START_MS + 7500}",
            ["payments", "orders:0"],
            {("orders", 0): 8, ("orders", 1): 10, ("payments", 0): 8, ("payments", 1): 8},
        ),
        (
            "-1h",
            ["payments:0,1"],
            {("orders", 0): 4, ("orders", 1): 10, ("payments", 0): 10, ("payments", 1): 10},
        ),
    ],
)
@pytest.mark.usefixtures("groups")
def test_a_group_is_moved(
    on_target: CommandLine,
    target: CommandTarget,
    to: str,
    topics: list[str],
    expected: dict[tuple[str, int], int],
) -> None:
    before = committed(target, "billing")
    chosen = [argument for topic in topics for argument in ("--topic", topic)]

    planned = on_target.ok("groups", "reset", "billing", "--to", to, *chosen, "--json")
    assert committed(target, "billing") == before
    assert planned.err == "dry run: nothing was changed; add --execute to commit the new offsets\n"

    done = on_target.ok("groups", "reset", "billing", "--to", to, *chosen, "--execute", "--json")
    assert done.objects == planned.objects
    assert committed(target, "billing") == expected
    for row in done.objects:
        place = (row["topic"], row["partition"])
        assert row["committed"] == before.get(place)
        assert row["new_offset"] == expected[place]
        assert row["lag"] == 10 - expected[place]


@pytest.mark.usefixtures("groups")
def test_an_offset_that_is_not_there_is_told_and_the_nearest_taken(
    on_target: CommandLine, target: CommandTarget
) -> None:
    ran = on_target.ok(
        "groups", "reset", "billing", "--to", "0", "--topic", "orders:0", "--execute"
    )

    assert "orders-0: offset 0 no longer exists, starting at 2" in ran.err
    assert committed(target, "billing")["orders", 0] == 2


@pytest.mark.usefixtures("groups")
def test_a_group_that_never_was_can_be_put_somewhere(
    on_target: CommandLine, target: CommandTarget
) -> None:
    on_target.ok("groups", "reset", "new", "--to", "latest", "--topic", "orders", "--execute")

    assert committed(target, "new") == {("orders", 0): 10, ("orders", 1): 10}


@pytest.mark.usefixtures("groups")
def test_a_group_is_deleted_only_with_yes_where_nobody_can_be_asked(
    on_target: CommandLine, target: CommandTarget
) -> None:
    assert on_target("groups", "delete", "billing").code == 2
    assert committed(target, "billing")

    on_target.ok("groups", "delete", "billing", "--yes")

    listed = on_target.ok("groups", "list", "--json").objects
    assert [group["group"] for group in listed] == ["shipping"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["describe", "none"], 1, "unknown group 'none'"),
        (["delete", "none", "-y"], 1, "unknown group 'none'"),
        (["delete", "billing", "none", "-y"], 1, "unknown group 'none'"),
        (["reset", "billing", "--to", "soon"], 2, "--to = soon: must be"),
        (["reset", "billing", "--to", "5", "--topic", "none"], 1, "no topic named 'none'"),
        (["reset", "billing", "--to", "5", "--topic", "orders:x"], 2, "--topic = orders:x"),
        (["reset", "billing", "--to", "5", "--topic", "orders:9"], 1, "0 to 1, not 9"),
        (["reset", "none", "--to", "5"], 1, "name topics with --topic"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
@pytest.mark.usefixtures("groups")
def test_what_cannot_be_done_is_told_in_one_line(
    on_target: CommandLine, target: CommandTarget, arguments: list[str], code: int, message: str
) -> None:
    before = committed(target, "billing")

    ran = on_target("groups", *arguments)

    assert (ran.code, ran.err.count("\n")) == (code, 1), ran
    assert message in ran.err
    assert committed(target, "billing") == before


# --- members ----------------------------------------------------------------------------------


@pytest.fixture(params=["classic", "consumer"])
def broker_with_a_member(request: pytest.FixtureRequest) -> Iterator[cordwood.Broker]:
    with cordwood.Broker(topics={"orders": 2}) as broker:
        broker.store.topic("orders").append_many([(None, b"x")] * 10, partition=0)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "billing",
                "client.id": "till",
                "group.protocol": request.param,
                "auto.offset.reset": "earliest",
            }
        )
        try:
            consumer.subscribe(["orders"])
            assert consumer.poll(DEADLINE_S) is not None
            yield broker
        finally:
            consumer.close()


def test_members_and_what_they_read_are_shown(
    cli: CommandLine, broker_with_a_member: cordwood.Broker
) -> None:
    at = broker_with_a_member.bootstrap_servers

    [described] = cli.ok("groups", "describe", "billing", "--at", at, "--json").objects

    assert described["state"] == "Stable"
    assert described["type"] in ("classic", "consumer")
    [member] = described["members"]
    assert member["client"] == "till"
    assert member["partitions"] == ["orders:0", "orders:1"]
    assert {row["client"] for row in described["partitions"]} == {"till"}
    shown = cli.ok("groups", "describe", "billing", "--at", at).out
    assert "orders:0, orders:1" in shown


def test_a_group_with_members_is_neither_moved_nor_deleted(
    cli: CommandLine, broker_with_a_member: cordwood.Broker
) -> None:
    at = broker_with_a_member.bootstrap_servers

    moved = cli(
        "groups", "reset", "billing", "--to", "latest", "--topic", "orders", "--execute", "--at", at
    )
    deleted = cli("groups", "delete", "billing", "--yes", "--at", at)

    for ran in (moved, deleted):
        assert ran.code == 1
        assert "group billing has 1 active member (till); stop its members first" in ran.err


def test_neither_is_it_by_the_directory_of_its_broker(
    cli: CommandLine, broker_with_a_member: cordwood.Broker
) -> None:
    at = broker_with_a_member.data_dir
    broker_with_a_member.store.committed_offsets.commit("billing", {("orders", 0): (3, "")})

    moved = cli("groups", "reset", "billing", "--to", "latest", "--execute", "--at", at)
    deleted = cli("groups", "delete", "billing", "--yes", "--at", at)

    for ran in (moved, deleted):
        assert ran.code == 1
        assert "group billing has members: stop them first" in ran.err
    assert broker_with_a_member.store.group("billing").committed("orders", 0) == 3
