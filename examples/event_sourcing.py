"""Event sourcing in one process: the log is the source of truth, a view is a fold over it.

    python examples/event_sourcing.py [directory]

Accounts are never updated in place. Each change is appended as an event. Balances are a view:
it is updated by reading the events after its last one, and rebuilt by reading from the start. A
snapshot of the view, in a compacted topic, saves reading from the start.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import cordwood
from cordwood.errors import UnexpectedOffsetError


class InsufficientFundsError(Exception):
    """The balance of the account is too low."""


@dataclass(slots=True)
class Balances:
    """The materialised view. It includes all events below `next_offset`."""

    next_offset: int = 0
    by_account: Counter[str] = field(default_factory=Counter)

    def catch_up(self, log: cordwood.LogReader) -> None:
        for record in log.read(self.next_offset):
            event = json.loads(record.value or b"{}")
            self.by_account[event["account"]] += event["amount"]
            self.next_offset = record.offset + 1

    def save(self, snapshots: cordwood.Topic[cordwood.PartitionLog]) -> None:
        state = {"next_offset": self.next_offset, "by_account": self.by_account}
        snapshots.append(json.dumps(state).encode(), key=b"balances")

    @classmethod
    def load(cls, snapshots: cordwood.Topic[cordwood.PartitionLog]) -> Balances:
        """The newest snapshot; an empty view if there is none."""
        newest = snapshots[0].find(b"balances")
        state = json.loads((newest and newest.value) or b'{"next_offset": 0, "by_account": {}}')
        return cls(state["next_offset"], Counter(state["by_account"]))


class Bank:
    """Decides on commands with the view, and appends the resulting events to the log."""

    def __init__(self, topic: cordwood.Topic[cordwood.PartitionLog]) -> None:
        self._topic = topic
        self._log = topic.partition(0)
        self.balances = Balances()

    def deposit(self, account: str, amount: int) -> None:
        self._topic.append(_event(account, amount), key=account.encode())

    def withdraw(self, account: str, amount: int) -> None:
        """Refuse if the balance is too low, whatever other threads append at the same time.

        The event is accepted only directly after the last event that the decision was based on.
        """
        while True:
            self.balances.catch_up(self._log)
            if self.balances.by_account[account] < amount:
                raise InsufficientFundsError(f"{account} holds less than {amount}")
            try:
                self._topic.append(
                    _event(account, -amount),
                    key=account.encode(),
                    expected_offset=self.balances.next_offset,
                )
            except UnexpectedOffsetError:
                continue  # another append was faster: read it and decide again
            return


def _event(account: str, amount: int) -> bytes:
    return json.dumps({"account": account, "amount": amount}).encode()


def main(directory: Path) -> None:
    with cordwood.open(directory) as store:
        # Events are kept for ever, so a view can always be rebuilt from all of them.
        topic = store.create_topic("accounts", config={"retention.ms": -1})
        bank = Bank(topic)
        bank.deposit("ada", 100)
        bank.deposit("bob", 20)
        bank.withdraw("ada", 30)
        try:
            bank.withdraw("bob", 50)
        except InsufficientFundsError as error:
            print(f"refused: {error}")
        bank.balances.catch_up(topic.partition(0))
        bank.balances.save(store.create_topic("snapshots", config={"cleanup.policy": "compact"}))
        bank.deposit("bob", 5)
        bank.balances.catch_up(topic.partition(0))
        live = dict(bank.balances.by_account)

    # The view was only in memory and is gone. The log still exists.
    with cordwood.open(directory) as store:
        rebuilt = Balances()
        rebuilt.catch_up(store.topic("accounts").partition(0))
        loaded = Balances.load(store.topic("snapshots"))
        new = rebuilt.next_offset - loaded.next_offset
        loaded.catch_up(store.topic("accounts").partition(0))
    assert dict(loaded.by_account) == dict(rebuilt.by_account) == live
    print(f"rebuilt from {rebuilt.next_offset} events: {dict(rebuilt.by_account)}")
    print(f"the same from a snapshot and {new} event")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
