"""What a table of transactions has done by others: records, markers and producer ids.

A broker that is alone does it with two threads of its own (`LocalWork`). A member of a cluster
does it for all its tables together: records count when other replicas have them, and partitions
may be led by other brokers.
"""

from typing import Protocol

from cordwood.log.transactions.transaction_entry import Ask, TransactionEntry
from cordwood.log.transactions.transaction_journal import JournalEntry


class TransactionWork(Protocol):
    """The port. `write`, `mark` and `give_id` are called under the lock of the table.

    has_threads  if not, `run_here` does the work
    """

    has_threads: bool

    def write(self, entry: JournalEntry, *, is_urgent: bool) -> None:
        """Write a record, after all that were given before, and tell the caller if it waits.

        One that is not urgent may wait for the next one, or for `hurry`.
        """
        ...

    def mark(self, entry: TransactionEntry) -> None:
        """Have all partitions of a prepared transaction get their markers."""
        ...

    def give_id(self, ask: Ask) -> None:
        """Give the request a producer id that nobody has, and ask the table again."""
        ...

    def hurry(self) -> None:
        """Write what is left to be written."""
        ...

    def run_here(self) -> bool:
        """Without threads: do all that waits, in this thread; whether there was anything."""
        ...

    def stop(self, *, finishes: bool) -> None:
        """End, after the records that wait if it `finishes`. Safe to repeat."""
        ...
