"""Kafka's tools for groups, classic ones and those of KIP-848, against our broker."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

import cordwood
from interop.java_tools import JavaTools, RunningTool

BASE_MS = 1_760_000_000_000
HOUR_MS = 3_600_000
both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def iso(time_ms: int) -> str:
    """As ``--to-datetime`` takes it, in UTC."""
    moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000")


def fill(broker: cordwood.Broker, topic: str) -> None:
    """Two partitions, of ten records and of four, an hour apart from each other."""
    made = broker.create_topic(topic, partitions=2)
    for partition, count in enumerate((10, 4)):
        for n in range(count):
            made.append(b"%d" % n, partition=partition, timestamp_ms=BASE_MS + n * HOUR_MS)


def read_all(tools: JavaTools, topic: str, group: str, protocol: str) -> None:
    """Have a group of that kind read the 14 records of a topic, and leave."""
    tools.run(
        "console-consumer", "--topic", topic, "--group", group, "--from-beginning",
        "--max-messages", "14", "--command-property", f"group.protocol={protocol}",
    )  # fmt: skip


def committed(broker: cordwood.Broker, group: str, topic: str) -> list[int | None]:
    return [broker.store.group(group).committed(topic, partition) for partition in range(2)]


def member(tools: JavaTools, topic: str, group: str, protocol: str, instance: str) -> RunningTool:
    """A member that stays: it never has enough."""
    return tools.start(
        "verifiable-consumer", "--topic", topic, "--group-id", group,
        "--group-protocol", protocol, "--group-instance-id", instance,
        "--reset-policy", "earliest",
    )  # fmt: skip


def wait_until(is_true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline, f"waited a minute for {what}"
        time.sleep(0.02)


@both_protocols
def test_a_group_that_has_read_is_listed_and_described_without_lag(
    broker: cordwood.Broker, tools: JavaTools, protocol: str
) -> None:
    topic, group = f"seen-{protocol}", f"reader-{protocol}"
    fill(broker, topic)
    read_all(tools, topic, group, protocol)
    broker.store.topic(topic).append(b"one more", partition=1)

    by_type = tools.run("consumer-groups", "--list", "--type", protocol)
    by_state = tools.run("consumer-groups", "--list", "--state", "Empty")
    of_any_kind = tools.run("groups", "--list")
    offsets = tools.run("consumer-groups", "--describe", "--group", group)
    state = tools.run("consumer-groups", "--describe", "--group", group, "--state")

    assert [group, protocol.capitalize()] in by_type.rows
    assert [group, "Empty"] in by_state.rows
    assert [group, protocol.capitalize(), "consumer"] in of_any_kind.rows
    assert [row[:6] for row in offsets.rows if row[:2] == [group, topic]] == [
        [group, topic, "0", "10", "10", "0"],
        [group, topic, "1", "4", "5", "1"],
    ]
    assert f"Consumer group '{group}' has no active members." in offsets.printed
    where = f"{broker.bootstrap_servers} (1)"
    assignor = "uniform" if protocol == "consumer" else "-"
    assert [group, *where.split(), assignor, "Empty", "0"] in state.rows


@both_protocols
def test_offsets_of_a_group_are_reset_by_every_measure(
    broker: cordwood.Broker, tools: JavaTools, protocol: str
) -> None:
    topic, group = f"reset-{protocol}", f"again-{protocol}"
    fill(broker, topic)
    read_all(tools, topic, group, protocol)
    at_noon = iso(BASE_MS + 3 * HOUR_MS)
    measures: list[tuple[tuple[str, ...], list[int]]] = [
        (("--to-earliest",), [0, 0]),
        (("--to-offset", "3"), [3, 3]),
        (("--shift-by", "2"), [5, 4]),  # no further than the end
        (("--shift-by", "-1"), [4, 3]),
        (("--to-datetime", at_noon), [3, 3]),
        (("--by-duration", "P1D"), [10, 4]),  # younger than a day there are none
        (("--to-current",), [10, 4]),
    ]

    for measure, expected in measures:
        reset = ("--reset-offsets", "--group", group, "--topic", topic, *measure, "--execute")
        printed = tools.run("consumer-groups", *reset)

        assert committed(broker, group, topic) == expected, measure
        shown = [row for row in printed.rows if row[:2] == [group, topic]]
        assert sorted(shown) == [
            [group, topic, str(n), str(offset)] for n, offset in enumerate(expected)
        ], measure


def test_a_dry_run_of_a_reset_changes_nothing_and_may_make_a_group_when_it_is_done(
    broker: cordwood.Broker, tools: JavaTools
) -> None:
    fill(broker, "planned")
    reset = ("--reset-offsets", "--group", "planner", "--topic", "planned", "--to-latest")

    planned = tools.run("consumer-groups", *reset, "--dry-run", "--export")
    groups_before = broker.store.groups()
    tools.run("consumer-groups", *reset, "--execute")

    assert sorted(planned.lines) == ["planned,0,10", "planned,1,4"]
    assert "planner" not in groups_before
    assert committed(broker, "planner", "planned") == [10, 4]


@both_protocols
def test_offsets_of_a_group_are_deleted_and_then_the_group(
    broker: cordwood.Broker, tools: JavaTools, protocol: str
) -> None:
    topic, group = f"dropped-{protocol}", f"gone-{protocol}"
    fill(broker, topic)
    read_all(tools, topic, group, protocol)

    one = tools.run(
        "consumer-groups", "--delete-offsets", "--group", group, "--topic", f"{topic}:0"
    )
    after_one = committed(broker, group, topic)
    whole = tools.run("consumer-groups", "--delete", "--group", group)
    listed = tools.run("consumer-groups", "--list")
    again = tools.run("consumer-groups", "--delete", "--group", group)

    assert [topic, "0", "Successful"] in one.rows
    assert after_one == [None, 4]
    assert whole.lines == [f"Deletion of requested consumer groups ('{group}') was successful."]
    assert group not in listed.lines
    assert group not in broker.store.groups()
    assert "GroupIdNotFoundException" in again.printed


@both_protocols
def test_members_share_the_partitions_and_hold_the_group(
    broker: cordwood.Broker, tools: JavaTools, protocol: str
) -> None:
    topic, group = f"shared-{protocol}", f"team-{protocol}"
    fill(broker, topic)
    with ExitStack() as members:
        for instance in ("first", "second"):
            joined = members.enter_context(member(tools, topic, group, protocol, instance))
            joined.wait_for("partitions_assigned", lambda event: bool(event["partitions"]))

        def describe(*what: str) -> list[list[str]]:
            return tools.run("consumer-groups", "--describe", "--group", group, *what).rows

        def refused(*what: str) -> str:
            return tools.run("consumer-groups", *what, "--group", group).printed

        # A member of KIP-848 says with its next heartbeat that it has what it was given.
        wait_until(lambda: "Stable" in describe("--state")[1], "the members to agree")
        wait_until(lambda: committed(broker, group, topic) == [10, 4], "all to be read")
        state = describe("--state")
        shares = describe("--members", "--verbose")
        reset = refused("--reset-offsets", "--topic", topic, "--to-earliest", "--execute")
        forgotten = refused("--delete-offsets", "--topic", topic)
        deleted = refused("--delete")

    assignor = "uniform" if protocol == "consumer" else "range"
    assert state[1][-3:] == [assignor, "Stable", "2"]
    # CONSUMER-ID, GROUP-INSTANCE-ID, HOST, CLIENT-ID, how many partitions, epoch, which
    held = sorted((row[2], row[3], row[5], row[7]) for row in shares[1:])
    assert [(instance, host, count) for instance, host, count, _ in held] == [
        ("first", "/127.0.0.1", "1"),
        ("second", "/127.0.0.1", "1"),
    ]
    assert sorted(which for *_, which in held) == [f"{topic}:0", f"{topic}:1"]
    assert "the current state is Stable" in reset
    assert "GroupSubscribedToTopicException" in forgotten
    assert "GroupNotEmptyException" in deleted
    assert committed(broker, group, topic) == [10, 4]
