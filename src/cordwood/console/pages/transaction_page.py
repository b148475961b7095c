"""Transactions: those of each transactional id, and what is open in partitions."""

from typing import Final

from cordwood.console.pages.page import PageRequest
from cordwood.console.views.table import Column, TablePage, TableState, table_page
from cordwood.errors import BrokerRefusedError, CordwoodError
from cordwood.format.file_names import TRANSACTION_STATE_TOPIC
from cordwood.log.transactions.transaction_topic import read_transactions
from cordwood.remote.refusals import is_forbidden
from cordwood.remote.remote_transactions import (
    ListedTransaction,
    OpenTransaction,
    RemoteTransactions,
)
from cordwood.value_class import dataclass

_DESCRIBED_MAX: Final = 500
_LOOKED_AT_MAX: Final = 500  # partitions whose producers are read for one page


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRow:
    """A transaction that is open in a partition. Readers of committed records wait behind it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp_ms: int
    waiting: int | None  # offsets behind its start


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsView:
    table: TablePage[ListedTransaction]
    open: tuple[OpenRow, ...]
    looked_at: int
    partition_count: int
    problem: str | None


_COLUMNS: Final[tuple[Column[ListedTransaction], ...]] = (
    Column(name="id", title="Transactional id", value=lambda t: t.transactional_id),
    Column(name="state", title="State", value=lambda t: t.state),
    Column(name="producer", title="Producer id", value=lambda t: t.producer_id, is_number=True),
    Column(name="epoch", title="Epoch", value=lambda t: t.producer_epoch, is_number=True),
    Column(name="started", title="Started", value=lambda t: t.start_ms, is_number=True),
    Column(name="timeout", title="Timeout", value=lambda t: t.timeout_ms, is_number=True),
    Column(
        name="partitions",
        title="Partitions",
        value=lambda t: len(t.partitions or ()),
        is_number=True,
    ),
)


def show_transactions(request: PageRequest) -> TransactionsView:
    listed: list[ListedTransaction] = []
    found: list[OpenTransaction] = []
    problem = None
    looked_at = 0
    try:
        if request.viewer.access is not None:
            listed, found, looked_at = _of_broker(request)
        else:
            listed, found, looked_at = _of_files(request)
    except BrokerRefusedError as error:
        if not is_forbidden(error):
            raise
        problem = "You may not see transactions."
    except (CordwoodError, OSError) as error:
        problem = str(error)
        if request.console.opened is not None and not request.console.config.needs_login:
            listed, found, looked_at = _of_files(request)
    state = TableState.parse(request.parameters, sort="id")
    return TransactionsView(
        table=table_page(listed, _COLUMNS, state, text=lambda t: f"{t.transactional_id} {t.state}"),
        open=tuple(_open_row(request, transaction) for transaction in found),
        looked_at=looked_at,
        partition_count=request.snapshot.partition_count,
        problem=problem,
    )


def _places(request: PageRequest) -> list[tuple[str, int]]:
    """Partitions with records, those that grow first."""
    rates = request.snapshot.rates
    places = [
        (name, facts.partition)
        for name, topic in request.snapshot.topics.items()
        for facts in topic.partitions
        if facts.record_count
    ]
    return sorted(places, key=lambda place: place not in rates)[:_LOOKED_AT_MAX]


def _of_broker(
    request: PageRequest,
) -> tuple[list[ListedTransaction], list[OpenTransaction], int]:
    assert request.viewer.access is not None
    places = _places(request)
    with request.viewer.access.connected() as cluster:
        remote = RemoteTransactions(cluster)
        listed = remote.listed()
        described = remote.described([t.transactional_id for t in listed[:_DESCRIBED_MAX]])
        known = {transaction.transactional_id: transaction for transaction in described}
        listed = [known.get(t.transactional_id, t) for t in listed]
        found = remote.open_in(places)
    return listed, found, len(places)


def _of_files(request: PageRequest) -> tuple[list[ListedTransaction], list[OpenTransaction], int]:
    opened = request.console.opened
    assert opened is not None
    listed: list[ListedTransaction] = []
    if TRANSACTION_STATE_TOPIC in request.snapshot.topics:
        state = opened.store.topic(TRANSACTION_STATE_TOPIC)
        listed = [
            ListedTransaction(
                transactional_id=metadata.transactional_id,
                state=metadata.state.kafka_name,
                producer_id=metadata.producer_id,
                producer_epoch=metadata.epoch,
                timeout_ms=metadata.timeout_ms,
                start_ms=None if metadata.start_ms < 0 else metadata.start_ms,
                partitions=tuple(sorted(metadata.partitions)),
            )
            for metadata in read_transactions(state.opened_partitions)
        ]
    places = _places(request) if listed else []
    found = [
        OpenTransaction(
            place=(topic, number),
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=producer.coordinator_epoch,
            start_offset=producer.current_txn_first_offset,
            last_timestamp_ms=producer.timestamp,
        )
        for topic, number in places
        for producer in opened.store.topic(topic)
        .partition(number)
        .open_transactions(request.console.clock.now_ms())
    ]
    return listed, found, len(places)


def _open_row(request: PageRequest, transaction: OpenTransaction) -> OpenRow:
    facts = request.snapshot.partition(transaction.place)
    end = None if facts is None else facts.end_offset
    return OpenRow(
        topic=transaction.place[0],
        partition=transaction.place[1],
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        start_offset=transaction.start_offset,
        last_timestamp_ms=transaction.last_timestamp_ms,
        waiting=None if end is None else max(end - transaction.start_offset, 0),
    )
