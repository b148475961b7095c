"""Records about transactions that nobody waits for are written later; a crash may come before."""

from pathlib import Path

import cordwood
from cordwood.format.transaction_records import TransactionState, decode_transaction_value
from cordwood.log.store.store import Store, StoreSetup
from cordwood.log.transactions.transaction_journal import JournalEntry, TransactionJournal
from cordwood.log.transactions.transaction_machine import Refusal
from cordwood.log.transactions.transaction_metadata import TransactionMetadata
from cordwood.quantities import ProducerId, TimestampMs

NOW = TimestampMs(1_700_000_000_000)


def committed(store: Store) -> list[bytes | None]:
    return [
        record.value for record in store.topic("t").partition(0).read(isolation="read_committed")
    ]


def states(store: Store) -> list[TransactionState]:
    """What `__transaction_state` has of its only id, in order."""
    log = store.topic("__transaction_state").partition(0)
    values = [record.value for record in log.read()]
    return [decode_transaction_value(value).state for value in values if value is not None]


def test_a_death_of_the_process_before_the_late_records_loses_no_transaction(
    tmp_path: Path,
) -> None:
    store = Store([str(tmp_path / "data")], StoreSetup(has_housekeeping=False))
    store.create_topic("t", partitions=2)
    with store.transaction("id") as transaction:
        transaction.append("t", b"first", partition=0)
        transaction.append("t", b"first", partition=1)
    unfinished = store.transaction("id")
    unfinished.__enter__()
    unfinished.append("t", b"unfinished", partition=0)
    store.topic("t").partition(0).sync()
    assert states(store)[-1] is TransactionState.PREPARE_COMMIT
    store.abandon()

    with cordwood.open(tmp_path / "data") as again:
        continued = again.transactions.find("id")
        assert continued is not None
        assert continued.state is TransactionState.ONGOING
        assert committed(again) == [b"first"]
        with again.transaction("id") as transaction:
            transaction.append("t", b"second", partition=0)

        assert committed(again) == [b"first", b"second"]


def test_late_records_are_written_when_the_housekeeping_comes(tmp_path: Path) -> None:
    with Store([str(tmp_path / "data")], StoreSetup(has_housekeeping=False)) as store:
        store.create_topic("t")
        with store.transaction("id") as transaction:
            transaction.append("t", b"first")

        store.transactions.tick()
        with store.transaction("other") as transaction:  # its first record comes after those
            transaction.append("t", b"second")

        assert TransactionState.COMPLETE_COMMIT in states(store)


def test_late_records_are_written_when_the_store_is_closed(tmp_path: Path) -> None:
    with Store([str(tmp_path / "data")], StoreSetup(has_housekeeping=False)) as store:
        store.create_topic("t")
        with store.transaction("id") as transaction:
            transaction.append("t", b"first")

    with cordwood.open(tmp_path / "data", read_only=True) as again:
        log = again.topic("__transaction_state").partition(0)
        *_, last = log.read()
    assert last.value is not None
    assert decode_transaction_value(last.value).state is TransactionState.COMPLETE_COMMIT


def test_a_late_record_is_left_out_if_a_newer_one_of_its_id_is_written_with_it(
    tmp_path: Path,
) -> None:
    def entry(id_: str, state: TransactionState, *, is_awaited: bool = False) -> JournalEntry:
        metadata = TransactionMetadata(
            transactional_id=id_,
            producer_id=ProducerId(1),
            timeout_ms=1000,
            state=state,
            last_update_ms=NOW,
        )
        written = answers.append if is_awaited else None
        return JournalEntry(transactional_id=id_, value=metadata, at_ms=NOW, written=written)

    answers: list[Refusal | None] = []
    with Store([str(tmp_path / "data")], StoreSetup(has_housekeeping=False)) as store:
        log = store.create_topic("t").partition(0)

        written = TransactionJournal(lambda _: log).append(
            [
                entry("one", TransactionState.COMPLETE_COMMIT),
                entry("two", TransactionState.COMPLETE_ABORT),
                entry("one", TransactionState.ONGOING, is_awaited=True),
                entry("one", TransactionState.PREPARE_COMMIT, is_awaited=True),
            ]
        )
        log.sync()
        written.tell({})

        values = [record.value for record in log.read()]
    assert answers == [None, None]
    assert [decode_transaction_value(value).state for value in values if value is not None] == [
        TransactionState.COMPLETE_ABORT,
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
    ]
