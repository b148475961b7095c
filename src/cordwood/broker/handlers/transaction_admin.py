"""Looking at transactions and producers, and ending a transaction by force."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from cordwood.broker.error_codes import ErrorCode, refusal, transaction_code
from cordwood.broker.net.requests.request import (
    Deferred,
    RequestContext,
    Response,
    Route,
    RunsOn,
    routes_on,
)
from cordwood.broker.patterns.topic_pattern import TopicPattern
from cordwood.broker.patterns.topic_pattern_syntax import InvalidPatternError
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.broker.security import access_table as needs
from cordwood.clock import Clock
from cordwood.format.transaction_records import TransactionState
from cordwood.log.transactions.marker_writer import MarkerWriter, WantedMarker
from cordwood.log.transactions.transaction_metadata import TransactionMetadata
from cordwood.log.transactions.transaction_requests import CoordinatedTransactions
from cordwood.protocol.api_catalog import ApiKey
from cordwood.quantities import ProducerId

if TYPE_CHECKING:
    from cordwood.protocol.schemas import transaction_messages as messages

_STATES: Final = {
    state.kafka_name: state for state in TransactionState if state is not TransactionState.DEAD
}


# Writes markers to partitions that are led here, and calls back with a code for each, once they
# count. For a thread that may wait for the disk.
WritesMarkers = Callable[[Sequence[WantedMarker], Callable[[Sequence[ErrorCode]], object]], None]


def write_alone(writer: MarkerWriter, find_log: Callable[[str, int], object]) -> WritesMarkers:
    """Writes the markers of a broker that is alone, one after the other."""

    def write_one(marker: WantedMarker) -> ErrorCode:
        try:
            if find_log(*marker.place) is None:
                return ErrorCode.unknown_topic_or_partition
            writer.write_one(marker)
        except Exception as error:
            return refusal(error).code
        return ErrorCode.none

    def write(
        markers: Sequence[WantedMarker], done: Callable[[Sequence[ErrorCode]], object]
    ) -> None:
        done([write_one(marker) for marker in markers])

    return write


_ANY_EPOCH: Final = -1


class TransactionAdminHandler:
    """Answers tools such as ``kafka-transactions.sh``. Called by workers."""

    def __init__(
        self,
        transactions: CoordinatedTransactions,
        table: PartitionTable,
        clock: Clock,
        write_markers: WritesMarkers,
    ) -> None:
        self._transactions = transactions
        self._table = table
        self._clock = clock
        self._write_markers = write_markers

    def routes(self) -> list[Route]:
        return routes_on(
            RunsOn.WORKER,
            {
                ApiKey.WRITE_TXN_MARKERS: self.write_txn_markers,
                ApiKey.DESCRIBE_PRODUCERS: self.describe_producers,
                ApiKey.DESCRIBE_TRANSACTIONS: self.describe_transactions,
                ApiKey.LIST_TRANSACTIONS: self.list_transactions,
            },
        )

    # --- WriteTxnMarkers -----------------------------------------------------------------------

    def write_txn_markers(
        self, context: RequestContext, request: messages.WriteTxnMarkersRequest
    ) -> Response | Deferred:
        """End transactions in single partitions: for their coordinator, or for an operator."""
        is_allowed = context.may(needs.WRITE_TXN_MARKERS_ALTER) or context.may(
            needs.WRITE_TXN_MARKERS
        )
        if not is_allowed:
            return _marked(request, itertools.repeat(needs.WRITE_TXN_MARKERS.code))
        reply = Deferred()
        self._write_markers(
            [
                WantedMarker(
                    place=(topic.name, number),
                    producer_id=ProducerId(marker.producer_id),
                    epoch=marker.producer_epoch,
                    is_commit=marker.transaction_result,
                    version=marker.transaction_version,
                    coordinator_epoch=marker.coordinator_epoch,
                )
                for marker in request.markers
                for topic in marker.topics
                for number in topic.partition_indexes
            ],
            lambda codes: reply.resolve(_marked(request, codes)),
        )
        return reply

    # --- DescribeProducers ---------------------------------------------------------------------

    def describe_producers(
        self, context: RequestContext, request: messages.DescribeProducersRequest
    ) -> Response:
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        self._producers(context, topic.name, number)
                        for number in topic.partition_indexes
                    ],
                }
                for topic in request.topics
            ]
        }

    def _producers(
        self, context: RequestContext, topic: str, number: int
    ) -> messages.DescribeProducersResponsePartitionsDict:
        if not context.may(needs.DESCRIBE_PRODUCERS_TOPIC, topic):
            return {"partition_index": number, "error_code": needs.DESCRIBE_PRODUCERS_TOPIC.code}
        try:
            log = self._table.log(topic, number)
            if log is None:
                absent = self._table.why_absent(topic, number)
                return {"partition_index": number, "error_code": absent}
            elsewhere = self._table.leader_refusal(log, _ANY_EPOCH)
            if elsewhere is not None:
                return {"partition_index": number, "error_code": elsewhere}
            producers = log.producers.listed()
        except Exception as error:
            code, message = refusal(error)
            return {"partition_index": number, "error_code": code, "error_message": message}
        return {
            "partition_index": number,
            "error_code": ErrorCode.none,
            "active_producers": [
                {
                    "producer_id": producer.producer_id,
                    "producer_epoch": producer.producer_epoch,
                    "last_sequence": producer.last_sequence,
                    "last_timestamp": producer.timestamp,
                    "coordinator_epoch": producer.coordinator_epoch,
                    "current_txn_start_offset": producer.current_txn_first_offset,
                }
                for producer in producers
            ],
        }

    # --- DescribeTransactions, ListTransactions --------------------------------------------------

    def describe_transactions(
        self, context: RequestContext, request: messages.DescribeTransactionsRequest
    ) -> Response:
        return {
            "transaction_states": [
                self._described(context, transactional_id)
                for transactional_id in request.transactional_ids
            ]
        }

    def _described(
        self, context: RequestContext, transactional_id: str
    ) -> messages.DescribeTransactionsResponseTransactionStatesDict:
        if not transactional_id:
            return {"transactional_id": "", "error_code": ErrorCode.invalid_request}
        if not context.may(needs.DESCRIBE_TRANSACTIONS, transactional_id):
            return {
                "transactional_id": transactional_id,
                "error_code": needs.DESCRIBE_TRANSACTIONS.code,
            }
        reason = self._transactions.refusal(transactional_id)
        if reason is not None:
            return {
                "transactional_id": transactional_id,
                "error_code": transaction_code(reason),
            }
        found = self._transactions.find(transactional_id)
        if found is None:
            return {
                "transactional_id": transactional_id,
                "error_code": ErrorCode.transactional_id_not_found,
            }
        by_topic: dict[str, list[int]] = {}
        for topic, number in sorted(found.partitions):
            if not context.may(needs.DESCRIBE_TRANSACTIONS_TOPIC, topic):
                continue
            by_topic.setdefault(topic, []).append(number)
        return {
            "error_code": ErrorCode.none,
            "transactional_id": transactional_id,
            "transaction_state": found.state.kafka_name,
            "transaction_timeout": found.timeout_ms,
            "transaction_start_time": found.start_ms,
            "producer_id": found.producer_id,
            "producer_epoch": found.epoch,
            "topics": [
                {"topic": topic, "partitions": numbers} for topic, numbers in by_topic.items()
            ],
        }

    def list_transactions(
        self, context: RequestContext, request: messages.ListTransactionsRequest
    ) -> Response:
        if self._transactions.is_loading:
            return {"error_code": ErrorCode.coordinator_load_in_progress}
        wanted = {_STATES[name] for name in request.state_filters if name in _STATES}
        unknown = [name for name in request.state_filters if name not in _STATES]
        pattern = request.transactional_id_pattern
        now_ms = self._clock.now_ms()

        def is_wanted(found: TransactionMetadata) -> bool:
            if request.state_filters and found.state not in wanted:
                return False
            if request.producer_id_filters and found.producer_id not in request.producer_id_filters:
                return False
            is_brief = found.start_ms < 0 or now_ms - found.start_ms <= request.duration_filter
            if request.duration_filter >= 0 and is_brief:
                return False
            return context.may(needs.LIST_TRANSACTIONS, found.transactional_id)

        found = [metadata for metadata in self._transactions.all() if is_wanted(metadata)]
        if pattern:
            try:
                matcher = TopicPattern(pattern)
                found = [m for m in found if matcher.matches(m.transactional_id)]
            except InvalidPatternError:
                return {"error_code": ErrorCode.invalid_regular_expression}
        return {
            "error_code": ErrorCode.none,
            "unknown_state_filters": unknown,
            "transaction_states": [
                {
                    "transactional_id": metadata.transactional_id,
                    "producer_id": metadata.producer_id,
                    "transaction_state": metadata.state.kafka_name,
                }
                for metadata in found
            ],
        }


def _marked(
    request: messages.WriteTxnMarkersRequest, codes: Iterable[ErrorCode]
) -> messages.WriteTxnMarkersResponseDict:
    """The answer: a code for each partition, in the order of the request."""
    following = iter(codes)
    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {"partition_index": number, "error_code": next(following)}
                            for number in topic.partition_indexes
                        ],
                    }
                    for topic in marker.topics
                ],
            }
            for marker in request.markers
        ]
    }
