"""``cordwood transactions``, on every kind of target."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import TransactionError
from cordwood.log.transactions.transaction_topic import read_transactions
from fakes.client_batches import client_batch
from fakes.command_line import CommandLine, CommandTarget
from wire.waiting import await_true


@pytest.fixture
def transactions(target: CommandTarget) -> None:
    """A topic, and two ids that have written to it."""
    with target.open_store() as store:
        store.create_topic("orders", partitions=2)
        with store.transaction("billing") as transaction:
            transaction.append("orders", b"a", partition=0)
        with store.transaction("shipping") as transaction:
            transaction.append("orders", b"b", partition=1)
            transaction.abort()
        await_true(lambda: are_complete(store))  # for readers beside it


def are_complete(store: cordwood.Store) -> bool:
    """Whether the ends of all transactions are on the disk."""
    log = store.topic("__transaction_state").partition(0)
    log.sync()
    return all(found.is_complete for found in read_transactions([log]))


@pytest.mark.usefixtures("transactions")
def test_ids_are_listed_with_their_states(on_target: CommandLine) -> None:
    listed = on_target.ok("transactions", "list", "--json").objects
    committed = on_target.ok("transactions", "list", "--state", "CompleteCommit", "--json").objects

    assert [(t["transactional_id"], t["state"]) for t in listed] == [
        ("billing", "CompleteCommit"),
        ("shipping", "CompleteAbort"),
    ]
    assert [t["transactional_id"] for t in committed] == ["billing"]
    assert "billing" in on_target.ok("transactions", "list").out


@pytest.mark.usefixtures("transactions")
def test_an_id_is_described(on_target: CommandLine) -> None:
    [described] = on_target.ok("transactions", "describe", "billing", "--json").objects

    assert (described["state"], described["producer_epoch"]) == ("CompleteCommit", 1)
    assert described["partitions"] == []
    assert described["start_ms"] > 0
    assert "CompleteCommit" in on_target.ok("transactions", "describe", "billing").out
    refused = on_target("transactions", "describe", "nobody")
    assert refused.code != 0
    assert "unknown transactional id 'nobody'" in refused.err


@pytest.mark.usefixtures("transactions")
def test_nothing_hangs(on_target: CommandLine) -> None:
    found = on_target("transactions", "find-hanging", "--json")

    assert found.code == 0
    assert found.objects == []


@pytest.fixture
def broker() -> Iterator[cordwood.Broker]:
    with cordwood.Broker() as running:
        yield running


@pytest.fixture
def on_broker(
    broker: cordwood.Broker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> CommandLine:
    return CommandLine(capsys, monkeypatch, at=broker.bootstrap_servers)


def test_an_open_transaction_is_aborted_by_its_id(
    broker: cordwood.Broker, on_broker: CommandLine
) -> None:
    log = broker.create_topic("orders").partition(0)

    def be_aborted() -> None:
        with broker.store.transaction("billing") as transaction:
            transaction.append("orders", b"x")
            [described] = on_broker.ok("transactions", "describe", "billing", "--json").objects
            assert described["partitions"] == ["orders:0"]
            on_broker.ok("transactions", "abort", "billing", "--yes")

    with pytest.raises(TransactionError):
        be_aborted()

    assert list(log.read(isolation="read_committed")) == []
    assert log.last_stable_offset == log.high_watermark
    assert "unknown transactional id" in on_broker("transactions", "abort", "no", "--yes").err
    assert "give a transactional id, or" in on_broker("transactions", "abort", "--yes").err


def test_an_open_transaction_in_a_directory_is_aborted_by_its_id(
    cli: CommandLine, tmp_path: Path
) -> None:
    store = cordwood.open(tmp_path / "data")
    store.create_topic("orders")
    transaction = store.transaction("billing")
    transaction.__enter__()
    transaction.append("orders", b"x")
    store.close()
    at = ("--at", str(tmp_path / "data"))
    [listed] = cli.ok("transactions", "list", "--json", *at).objects

    cli.ok("transactions", "abort", "billing", "--yes", *at)

    assert listed["state"] == "Ongoing"
    [aborted] = cli.ok("transactions", "list", "--json", *at).objects
    assert aborted["state"] == "CompleteAbort"


def test_what_hangs_is_found_and_aborted(broker: cordwood.Broker, on_broker: CommandLine) -> None:
    """Only in a live broker: opening a store ends what hangs in it."""
    log = broker.create_topic("hanging").partition(0)
    log.batches.append_batch(client_batch(b"x", producer_id=4711, sequence=0, transactional=True))

    found = on_broker("transactions", "find-hanging", "--json")
    wrong = on_broker("transactions", "abort", "--topic", "hanging:0", "--producer", "9", "--yes")
    on_broker.ok("transactions", "abort", "--topic", "hanging:0", "--producer", "4711", "--yes")

    assert found.code == 1
    assert [(t["topic"], t["partition"], t["producer_id"]) for t in found.objects] == [
        ("hanging", 0, 4711)
    ]
    assert "producer 9 has no open transaction" in wrong.err
    assert log.last_stable_offset == log.high_watermark == 2
