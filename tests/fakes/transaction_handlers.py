"""The handlers of transactions over a store that is alone, as `Services` builds them."""

from __future__ import annotations

from cordwood.broker.cluster_view import SoleBroker
from cordwood.broker.handlers.transaction_admin import TransactionAdminHandler, write_alone
from cordwood.broker.handlers.transactions import TransactionsHandler
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.log.store.store import Store
from fakes.handler_calls import IDENTITY
from fakes.manual_clock import ManualClock


def transactions_handler(
    store: Store, closed_topics: frozenset[str] = frozenset()
) -> TransactionsHandler:
    return TransactionsHandler(
        store.transactions,
        SoleBroker(IDENTITY, store),
        offsets_place=lambda group: (
            store.offsets_topic.ensure().name,
            store.committed_offsets.partition_of(group),
        ),
        allocate=store.producer_ids.allocate,
        closed_topics=closed_topics,
    )


def transaction_admin(store: Store) -> TransactionAdminHandler:
    table = PartitionTable(store)
    return TransactionAdminHandler(
        store.transactions,
        table,
        ManualClock(),
        write_alone(store.transactions.markers, table.log),
    )
