"""``cordwood cluster`` where there is no cluster: one broker, a directory, wrong words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from fakes.command_line import CommandLine


@pytest.fixture
def broker(cli: CommandLine, tmp_path: Path) -> Iterator[cordwood.Broker]:
    with cordwood.Broker(tmp_path / "data") as running:
        cli.at = running.bootstrap_servers
        yield running


def test_one_broker_is_a_healthy_cluster_without_controllers(
    cli: CommandLine, broker: cordwood.Broker
) -> None:
    broker.store.create_topic("orders", partitions=3)

    text = cli("cluster", "status")
    [found] = cli("cluster", "status", "--json").objects

    assert text.code == 0
    assert text.lines[0] == "Healthy: 1 broker alive, 3 partitions, all replicas in sync."
    assert found["is_healthy"]
    assert found["quorum"] is None
    assert found["brokers"][0]["kind"] == "cordwood"
    assert found["brokers"][0]["leaders"] == 3


def test_one_broker_has_nowhere_to_move_to(cli: CommandLine, broker: cordwood.Broker) -> None:
    broker.store.create_topic("orders")
    node = cli("cluster", "status", "--json").objects[0]["brokers"][0]["node_id"]

    drained = cli("cluster", "drain", str(node))
    removed = cli("cluster", "remove", str(node), "--yes")
    elected = cli("cluster", "elect")
    joined = cli("cluster", "join", "--dir", "new", "--node-id", "7")

    rebuilt = cli("cluster", "rebuild", "orders-0", "--broker", str(node), "--yes")

    assert rebuilt.code == 1
    assert "there is no other replica to copy from" in rebuilt.err
    assert drained.code == 1
    assert "orders-0 cannot leave broker" in drained.err
    assert removed.code == 1
    assert "has 1 replica (orders-0); move them first" in removed.err
    assert elected.code == 0
    assert "nothing to do" in elected.err
    assert joined.code == 1
    assert "is alone: it has no controllers" in joined.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reassign"], "pass one of --to, --plan and --cancel"),
        (["reassign", "--to", "1"], "--to needs --topic"),
        (["reassign", "--to", "1", "--topic", "orders", "--cancel"], "pass one of"),
        (["reassign", "--to", "1,x", "--topic", "orders"], "must be ids of brokers"),
        (["reassign", "--to", "1,1", "--topic", "orders"], "names a broker twice"),
        (["reassign", "--to", "77", "--topic", "orders"], "is not a broker of this cluster"),
        (["reassign", "--plan", "nowhere.json"], "nowhere.json: No such file"),
        (["reassign", "--cancel", "--topic", "bills"], "no topic named 'bills'"),
        (["drain", "77"], "is not a broker of this cluster"),
        (["elect", "--unclean"], "--unclean needs --topic"),
        (["rebuild", "orders", "--broker", "1"], "must be a topic and a partition"),
    ],
)
def test_wrong_words_are_refused_with_advice(
    cli: CommandLine, broker: cordwood.Broker, words: list[str], message: str
) -> None:
    broker.store.create_topic("orders")

    ran = cli("cluster", *words)

    assert ran.code != 0
    assert message in ran.err


def test_a_plan_for_a_partition_that_is_not_there_is_refused(
    cli: CommandLine, broker: cordwood.Broker
) -> None:
    broker.store.create_topic("orders")
    plan = Path("plan.json")

    def with_plan(topic: str, partition: int) -> str:
        wanted = {"topic": topic, "partition": partition, "replicas": [1]}
        plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        return cli("cluster", "reassign", "--plan", "plan.json").err

    assert "no topic named 'bills'" in with_plan("bills", 0)
    assert "orders" in with_plan("orders", 5)


def test_a_directory_is_not_a_cluster(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()

    ran = cli("cluster", "status", "--at", "data")

    assert ran.code == 2
    assert "a cluster is reached through a broker" in ran.err


@pytest.mark.parametrize(("count", "is_odd"), [(1, True), (2, False), (3, True)])
def test_an_even_number_of_controllers_is_warned_of(
    cli: CommandLine, *, count: int, is_odd: bool
) -> None:
    ran = cli.ok("cluster", "controllers", *(f"{number}@a{number}:9093" for number in range(count)))

    assert ("survive no more failures" in ran.err) != is_odd


def test_a_plan_that_cannot_be_read_is_named_by_its_file(
    cli: CommandLine, broker: cordwood.Broker
) -> None:
    Path("plan.json").write_text("{\n")

    said = cli("cluster", "reassign", "--plan", "plan.json")

    assert said.code != 0
    assert "--plan = plan.json: " in said.err
    assert "is not JSON" in said.err
