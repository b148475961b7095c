"""The transactions of a target: of a broker, or of a data directory.

A directory is read without a lock. To abort a transaction in it, the store is opened: a broker that
has it open must be asked instead.
"""

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from cordwood.cli.at.target import BrokerTarget, DirectoryTarget, Target
from cordwood.errors import LogError
from cordwood.remote.remote_transactions import ListedTransaction, OpenTransaction, Place

if TYPE_CHECKING:
    from cordwood.cli.at.broker_backend import BrokerBackend


class TransactionAccess(Protocol):
    """Reads and ends transactions."""

    def listed(self) -> list[ListedTransaction]: ...

    def described(self, transactional_ids: Sequence[str]) -> list[ListedTransaction]: ...

    def open_in(self, places: Iterable[Place]) -> list[OpenTransaction]: ...

    def places(self) -> list[Place]:
        """All partitions, also those of internal topics."""
        ...

    def abort(self, transactional_id: str) -> None: ...

    def end(self, transaction: OpenTransaction) -> None: ...


@contextlib.contextmanager
def open_transactions(target: Target) -> Iterator[TransactionAccess]:
    match target:
        case DirectoryTarget():
            yield _DirectoryTransactions(target)
        case BrokerTarget():
            from cordwood.cli.at.broker_backend import BrokerBackend

            with BrokerBackend(target) as backend:
                yield _BrokerTransactions(backend)


def hanging(access: TransactionAccess, places: Iterable[Place]) -> list[OpenTransaction]:
    """The transactions that are open in these partitions and that no transactional id has.

    Looked for twice: a transaction may end between two looks.
    """
    wanted = list(places)
    suspects = _unlisted(access, access.open_in(wanted))
    if not suspects:
        return []
    still_open = access.open_in({found.place for found in suspects})
    return [found for found in _unlisted(access, still_open) if found in suspects]


def _unlisted(access: TransactionAccess, found: Sequence[OpenTransaction]) -> list[OpenTransaction]:
    if not found:
        return []
    producers = {transaction.producer_id for transaction in found}
    ids = [t.transactional_id for t in access.listed() if t.producer_id in producers]
    has = {
        (transaction.producer_id, place)
        for transaction in access.described(ids)
        for place in transaction.partitions or ()
    }
    return [t for t in found if (t.producer_id, t.place) not in has]


class _BrokerTransactions:
    def __init__(self, backend: "BrokerBackend") -> None:
        from cordwood.remote.remote_transactions import RemoteTransactions

        remote = RemoteTransactions(backend.cluster)
        self._backend = backend
        self.listed = remote.listed
        self.described = remote.described
        self.open_in = remote.open_in
        self.abort = remote.abort
        self.end = remote.end

    def places(self) -> list[Place]:
        topics = self._backend.cluster.describe()
        return [(name, number) for name, topic in topics.items() for number in topic.partitions]


class _DirectoryTransactions:
    def __init__(self, target: DirectoryTarget) -> None:
        self._paths = target.paths

    def listed(self) -> list[ListedTransaction]:
        from cordwood.format.file_names import TRANSACTION_STATE_TOPIC
        from cordwood.library import open_store
        from cordwood.log.transactions.transaction_topic import read_transactions

        with open_store(self._paths[0], read_only=True, data_dirs=self._paths[1:]) as store:
            if TRANSACTION_STATE_TOPIC not in store.topics(include_internal=True):
                return []
            found = read_transactions(store.topic(TRANSACTION_STATE_TOPIC).opened_partitions)
        return [
            ListedTransaction(
                transactional_id=metadata.transactional_id,
                state=metadata.state.kafka_name,
                producer_id=metadata.producer_id,
                producer_epoch=metadata.epoch,
                timeout_ms=metadata.timeout_ms,
                start_ms=None if metadata.start_ms < 0 else metadata.start_ms,
                partitions=tuple(sorted(metadata.partitions)),
            )
            for metadata in sorted(found, key=lambda metadata: metadata.transactional_id)
        ]

    def described(self, transactional_ids: Sequence[str]) -> list[ListedTransaction]:
        found = {transaction.transactional_id: transaction for transaction in self.listed()}
        return [found[id_] for id_ in transactional_ids if id_ in found]

    def places(self) -> list[Place]:
        from cordwood.library import open_store

        with open_store(self._paths[0], read_only=True, data_dirs=self._paths[1:]) as store:
            return [
                (name, number)
                for name in store.topics(include_internal=True)
                for number in range(store.topic(name).partition_count)
            ]

    def open_in(self, places: Iterable[Place]) -> list[OpenTransaction]:
        from cordwood.clock import SystemClock
        from cordwood.library import open_store

        now_ms = SystemClock().now_ms()
        wanted = set(places)
        with open_store(self._paths[0], read_only=True, data_dirs=self._paths[1:]) as store:
            return [
                OpenTransaction(
                    place=place,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    coordinator_epoch=producer.coordinator_epoch,
                    start_offset=producer.current_txn_first_offset,
                    last_timestamp_ms=producer.timestamp,
                )
                for place in sorted(wanted)
                if store.topic(place[0]).has_partition(place[1])
                for log in (store.topic(place[0]).partition(place[1]),)
                for producer in log.open_transactions(now_ms)
            ]

    def abort(self, transactional_id: str) -> None:
        from cordwood.library import open_store
        from cordwood.log.transactions.transaction_entry import Granted, Outcome

        answered = threading.Event()
        outcomes: list[Outcome] = []

        def done(outcome: Outcome) -> None:
            outcomes.append(outcome)
            answered.set()

        with open_store(self._paths[0], data_dirs=self._paths[1:]) as store:
            store.transactions.abort(transactional_id, done)
            answered.wait()
            if isinstance(outcomes[0], Granted):
                answered.clear()
                store.transactions.settle(transactional_id, lambda _: answered.set())
                answered.wait()
        if not isinstance(outcomes[0], Granted):
            raise LogError(
                f"transactional id {transactional_id!r} cannot be aborted: "
                f"{outcomes[0].reason.value}"
            )

    def end(self, transaction: OpenTransaction) -> None:
        from cordwood.library import open_store
        from cordwood.log.transactions.marker_writer import WantedMarker
        from cordwood.quantities import ProducerId

        with open_store(self._paths[0], data_dirs=self._paths[1:]) as store:
            log = store.registry.log(*transaction.place)
            if log is None or not any(
                found.producer_id == transaction.producer_id
                for found in log.producers.open_transactions()
            ):
                return  # opening the store has ended it
            store.transactions.markers.write_one(
                WantedMarker(
                    place=transaction.place,
                    producer_id=ProducerId(transaction.producer_id),
                    epoch=transaction.producer_epoch,
                    is_commit=False,
                    version=0,
                    coordinator_epoch=max(transaction.coordinator_epoch, 0),
                )
            )
