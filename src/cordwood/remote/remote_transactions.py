"""Transactions of a broker: listing, describing and aborting them, and what is open in partitions.

An id is asked about at every broker: only its coordinator answers. In the same way a partition is
asked about at every broker, and its leader answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from cordwood.errors import BrokerRefusedError, LogError
from cordwood.protocol.error_code import ErrorCode
from cordwood.remote import api_calls
from cordwood.remote.refusals import check, refusal
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.value_class import dataclass

Place = tuple[str, int]

_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.transactional_id_not_found,
    }
)
_FENCE_TIMEOUT_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTransaction:
    """The newest transaction of an id. What a listing does not tell is None."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int | None = None
    timeout_ms: int | None = None
    start_ms: int | None = None
    partitions: tuple[Place, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that is open in a partition, since `start_offset`."""

    place: Place
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


class RemoteTransactions:
    """Reads and ends transactions. For one thread."""

    def __init__(self, cluster: RemoteCluster) -> None:
        self._cluster = cluster

    def listed(self) -> list[ListedTransaction]:
        """The transactional ids of all brokers, in order."""
        return self._cluster.retried(self._listed)  # a coordinator may be loading

    def _listed(self) -> list[ListedTransaction]:
        found: dict[str, ListedTransaction] = {}
        for connection in self._cluster.everyone():
            answer = connection.call(api_calls.LIST_TRANSACTIONS({}))
            check(answer.error_code, "list transactions")
            for state in answer.transaction_states:
                found[state.transactional_id] = ListedTransaction(
                    transactional_id=state.transactional_id,
                    state=state.transaction_state,
                    producer_id=state.producer_id,
                )
        return [found[id_] for id_ in sorted(found)]

    def described(self, transactional_ids: Sequence[str]) -> list[ListedTransaction]:
        """These ids, as far as they exist."""
        if not transactional_ids:
            return []
        return self._cluster.retried(lambda: self._described(transactional_ids))

    def _described(self, transactional_ids: Sequence[str]) -> list[ListedTransaction]:
        found: dict[str, ListedTransaction] = {}
        for connection in self._cluster.everyone():
            answer = connection.call(
                api_calls.DESCRIBE_TRANSACTIONS({"transactional_ids": list(transactional_ids)})
            )
            for state in answer.transaction_states:
                id_ = state.transactional_id
                if state.error_code in _ELSEWHERE:
                    continue
                check(state.error_code, f"describe transactional id {id_}")
                found[id_] = ListedTransaction(
                    transactional_id=id_,
                    state=state.transaction_state,
                    producer_id=state.producer_id,
                    producer_epoch=state.producer_epoch,
                    timeout_ms=state.transaction_timeout,
                    start_ms=None
                    if state.transaction_start_time < 0
                    else state.transaction_start_time,
                    partitions=tuple(
                        (topic.topic, number)
                        for topic in state.topics
                        for number in topic.partitions
                    ),
                )
        return [found[id_] for id_ in transactional_ids if id_ in found]

    def open_in(self, places: Iterable[Place]) -> list[OpenTransaction]:
        """The transactions that are open in these partitions."""
        by_topic: dict[str, list[int]] = {}
        for topic, number in places:
            by_topic.setdefault(topic, []).append(number)
        if not by_topic:
            return []
        found: dict[tuple[Place, int], OpenTransaction] = {}
        for connection in self._cluster.everyone():
            answer = connection.call(
                api_calls.DESCRIBE_PRODUCERS(
                    {
                        "topics": [
                            {"name": topic, "partition_indexes": numbers}
                            for topic, numbers in by_topic.items()
                        ]
                    }
                )
            )
            for described in answer.topics:
                for partition in described.partitions:
                    place = (described.name, partition.partition_index)
                    if partition.error_code in _ELSEWHERE:
                        continue
                    check(partition.error_code, "describe the producers of {}-{}".format(*place))
                    for producer in partition.active_producers:
                        if producer.current_txn_start_offset >= 0:
                            found[place, producer.producer_id] = OpenTransaction(
                                place=place,
                                producer_id=producer.producer_id,
                                producer_epoch=producer.producer_epoch,
                                coordinator_epoch=producer.coordinator_epoch,
                                start_offset=producer.current_txn_start_offset,
                                last_timestamp_ms=producer.last_timestamp,
                            )
        return [found[key] for key in sorted(found)]

    def abort(self, transactional_id: str) -> None:
        """Fence the producer of an id; its transaction is aborted."""
        found = self.described([transactional_id])
        if not found:
            raise LogError(f"unknown transactional id {transactional_id!r}")
        timeout_ms = found[0].timeout_ms or _FENCE_TIMEOUT_MS

        def fence() -> None:
            refused: BrokerRefusedError | None = None
            for connection in self._cluster.everyone():
                answer = connection.call(
                    api_calls.INIT_PRODUCER_ID(
                        {
                            "transactional_id": transactional_id,
                            "transaction_timeout": timeout_ms,
                        }
                    ),
                    at_most=4,
                )
                if answer.error_code != ErrorCode.not_coordinator:
                    check(answer.error_code, f"abort the transaction of {transactional_id}")
                    return
                refused = BrokerRefusedError(
                    "abort", ErrorCode.not_coordinator.name, "no broker coordinates the id"
                )
            if refused is not None:
                raise refused

        self._cluster.retried(fence)

    def end(self, transaction: OpenTransaction) -> None:
        """Abort an open transaction in one partition, by a marker: its coordinator is gone."""
        topic, number = transaction.place
        what = f"abort the transaction of producer {transaction.producer_id} in {topic}-{number}"
        code = ErrorCode.not_leader_or_follower
        for connection in self._cluster.everyone():
            answer = connection.call(
                api_calls.WRITE_TXN_MARKERS(
                    {
                        "markers": [
                            {
                                "producer_id": transaction.producer_id,
                                "producer_epoch": transaction.producer_epoch,
                                "transaction_result": False,
                                "topics": [{"name": topic, "partition_indexes": [number]}],
                                "coordinator_epoch": max(transaction.coordinator_epoch, 0),
                            }
                        ]
                    }
                )
            )
            code = ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)
            if code not in _ELSEWHERE:
                break
        if code is not ErrorCode.none:
            raise refusal(code, what)
