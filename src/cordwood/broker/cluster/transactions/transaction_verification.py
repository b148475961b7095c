"""Asks the coordinator of a transaction, on whichever broker it is, whether an append may begin it.

    version 2    the question adds the partitions to the transaction
    version 1    the partitions must have been added before: the question only looks (KIP-890)

The coordinator of this broker is asked directly, and a question waits there for a transaction that
is being completed. Others are asked by AddPartitionsToTxn: one request at a time to each broker,
with all questions that wait for it. They answer at once. Where Kafka's brokers then tell the
producer to try again, the question is asked again here, for a few seconds: the producer only waits.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from cordwood.broker.cluster.transactions.coordinator_lookup import CoordinatorLookup
from cordwood.broker.cluster.transactions.marker_sender import SendsRequests
from cordwood.broker.cluster.transactions.partition_codes import (
    PartitionCodes,
    by_topic,
    code_of,
    read_codes,
)
from cordwood.broker.net.loop.scheduler import Scheduler
from cordwood.broker.net.outbound.outbound_call import OutboundCall, OutboundResult
from cordwood.errors import CordwoodError
from cordwood.format.transaction_records import TopicPartition
from cordwood.log.transactions.transaction_entry import Done, Granted, Outcome
from cordwood.log.transactions.transaction_machine import Refusal, Refused
from cordwood.log.transactions.transaction_metadata import (
    EPOCH_BUMPING_VERSION,
    ProducerIdentity,
)
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import encode_request

if TYPE_CHECKING:
    from cordwood.protocol.schemas import transaction_messages as messages

logger = logging.getLogger(__name__)

_VERSION_MIN: Final = 4
_VERSION_MAX: Final = 5
_ANSWER_S: Final = 10.0
_WAIT_S: Final = 10.0  # clients wait for a produce for 30 s
_REQUEST_TRANSACTIONS_MAX: Final = 1000
_WAITING_MAX: Final = 100_000  # questions; each belongs to a request that is in memory anyway
_CONCURRENT_PAUSE_S: Final = 0.02  # markers take about as long
_PAUSE_MIN_S: Final = 0.02
_PAUSE_MAX_S: Final = 0.5

_REFUSALS: Final = {
    ErrorCode.concurrent_transactions: Refusal.CONCURRENT_TRANSACTIONS,
    ErrorCode.producer_fenced: Refusal.PRODUCER_FENCED,
    ErrorCode.invalid_producer_epoch: Refusal.PRODUCER_FENCED,
    ErrorCode.invalid_producer_id_mapping: Refusal.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.invalid_txn_state: Refusal.INVALID_TXN_STATE,
    ErrorCode.transaction_abortable: Refusal.TRANSACTION_ABORTABLE,
    ErrorCode.coordinator_load_in_progress: Refusal.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.not_coordinator: Refusal.NOT_COORDINATOR,
    ErrorCode.policy_violation: Refusal.TOO_MANY_PARTITIONS,
    # The brokers do not trust each other: no second try helps.
    ErrorCode.cluster_authorization_failed: Refusal.INVALID_TXN_STATE,
}
_RETRIED: Final = frozenset(
    {
        Refusal.CONCURRENT_TRANSACTIONS,
        Refusal.COORDINATOR_LOAD_IN_PROGRESS,
        Refusal.COORDINATOR_NOT_AVAILABLE,
        Refusal.NOT_COORDINATOR,
    }
)


class LocalCoordinator(Protocol):
    """The coordinator of this broker. Any thread may ask."""

    def begin_append(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: AbstractSet[TopicPartition],
        *,
        client_version: int,
        done: Done,
    ) -> None: ...


class _Question:
    """One question on its way. Belongs to the loop, after the first try."""

    __slots__ = (
        "client_version",
        "deadline_s",
        "done",
        "partitions",
        "producer",
        "transactional_id",
        "tries",
    )

    def __init__(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: frozenset[TopicPartition],
        client_version: int,
        done: Done,
        deadline_s: float,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer = producer
        self.partitions = partitions
        self.client_version = client_version
        self.done = done
        self.deadline_s = deadline_s
        self.tries = 0

    @property
    def is_verification(self) -> bool:
        return self.client_version < EPOCH_BUMPING_VERSION

    def is_like(self, other: "_Question") -> bool:
        """Whether both can be asked as one."""
        return self.producer == other.producer and self.is_verification is other.is_verification


class TransactionVerification:
    """Any thread may call `begin_append`; everything else belongs to the loop."""

    def __init__(
        self,
        loop: Scheduler,
        lookup: CoordinatorLookup,
        peers: SendsRequests,
        *,
        node_id: int,
        local: LocalCoordinator,
        is_verifying: Callable[[], bool],
    ) -> None:
        """`is_verifying` is the setting ``transaction.partition.verification.enable``."""
        self._loop = loop
        self._lookup = lookup
        self._peers = peers
        self._node_id = node_id
        self._local = local
        self._is_verifying = is_verifying
        self._waiting: dict[int, list[_Question]] = {}
        self._under_way: set[int] = set()
        self._unreached: set[int] = set()
        self._count = 0

    def begin_append(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: AbstractSet[TopicPartition],
        *,
        client_version: int,
        done: Done,
    ) -> None:
        """Allow an append to partitions. `done` is called once, by any thread.

        The caller has taken the guards of the logs before: see `VerificationGuard`.
        """
        if client_version < EPOCH_BUMPING_VERSION and not self._is_verifying():
            done(Granted(identity=producer))
            return
        question = _Question(
            transactional_id,
            producer,
            frozenset(partitions),
            client_version,
            done,
            self._loop.now_s() + _WAIT_S,
        )
        if self._lookup.coordinator_of(transactional_id) == self._node_id:
            self._ask_here(question)
        else:
            self._loop.call_soon(partial(self._ask, question))

    # --- asking ------------------------------------------------------------------------------

    def _ask(self, question: _Question) -> None:
        node_id = self._lookup.coordinator_of(question.transactional_id)
        if node_id is None:
            self._answer(question, Refused(Refusal.COORDINATOR_NOT_AVAILABLE))
        elif node_id == self._node_id:
            self._ask_here(question)
        elif self._count >= _WAITING_MAX:
            question.done(Refused(Refusal.COORDINATOR_NOT_AVAILABLE))
        else:
            self._count += 1
            self._waiting.setdefault(node_id, []).append(question)
            self._flush(node_id)

    def _ask_here(self, question: _Question) -> None:
        """In any thread."""

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Refused) and outcome.reason in _RETRIED:
                self._loop.call_soon(partial(self._answer, question, outcome))
            else:
                question.done(outcome)

        self._local.begin_append(
            question.transactional_id,
            question.producer,
            question.partitions,
            client_version=question.client_version,
            done=done,
        )

    def _flush(self, node_id: int) -> None:
        if node_id in self._under_way:
            return
        asked: dict[str, list[_Question]] = {}
        left: list[_Question] = []
        for question in self._waiting.pop(node_id, ()):
            together = asked.get(question.transactional_id)
            if together is None and len(asked) < _REQUEST_TRANSACTIONS_MAX:
                asked[question.transactional_id] = [question]
            elif together is not None and together[0].is_like(question):
                together.append(question)
            else:
                left.append(question)
        if left:
            self._waiting[node_id] = left
        if not asked:
            return
        self._under_way.add(node_id)
        self._peers.send(
            node_id,
            OutboundCall(
                api=ApiKey.ADD_PARTITIONS_TO_TXN,
                version_min=_VERSION_MIN,
                version_max=_VERSION_MAX,
                encode=lambda version: _encode(asked.values(), version),
                when_done=lambda result: self._answered(node_id, asked, result),
                timeout_s=_ANSWER_S,
            ),
        )

    # --- answers -----------------------------------------------------------------------------

    def _answered(
        self, node_id: int, asked: dict[str, list[_Question]], result: OutboundResult
    ) -> None:
        self._under_way.discard(node_id)
        self._note_reached(node_id, result)
        codes = read_codes(
            result, node_id=node_id, api=ApiKey.ADD_PARTITIONS_TO_TXN, codes_of=_codes_of
        )
        if isinstance(codes, ErrorCode) and codes is not ErrorCode.network_exception:
            logger.warning(
                "broker %d refuses questions about transactions: %s", node_id, codes.name
            )
        for transactional_id, questions in asked.items():
            for question in questions:
                self._count -= 1
                code = _code_of_all(codes, transactional_id, question.partitions)
                if code is ErrorCode.none:
                    question.done(Granted(identity=question.producer))
                else:
                    reason = _REFUSALS.get(code, Refusal.COORDINATOR_NOT_AVAILABLE)
                    self._answer(question, Refused(reason))
        self._flush(node_id)

    def _note_reached(self, node_id: int, result: OutboundResult) -> None:
        """Log that a broker was not reached once, until it is."""
        if not isinstance(result, CordwoodError):
            self._unreached.discard(node_id)
        elif node_id not in self._unreached:
            self._unreached.add(node_id)
            logger.info("broker %d was not reached about transactions: %s", node_id, result)

    def _answer(self, question: _Question, refused: Refused) -> None:
        """Refuse, or ask again after a pause."""
        is_late = self._loop.now_s() >= question.deadline_s
        if refused.reason not in _RETRIED or is_late:
            question.done(refused)
            return
        if refused.reason is Refusal.CONCURRENT_TRANSACTIONS:
            pause_s = _CONCURRENT_PAUSE_S
        else:
            pause_s = min(_PAUSE_MIN_S * 2 ** min(question.tries, 10), _PAUSE_MAX_S)
            question.tries += 1
        self._loop.call_later(pause_s, partial(self._ask, question))


def _encode(asked: Iterable[Sequence[_Question]], version: int) -> bytes:
    transactions: list[dict[str, Any]] = []
    for questions in asked:
        first = questions[0]
        places = sorted({place for question in questions for place in question.partitions})
        transactions.append(
            {
                "transactional_id": first.transactional_id,
                "producer_id": first.producer.producer_id,
                "producer_epoch": first.producer.epoch,
                "verify_only": first.is_verification,
                "topics": [
                    {"name": name, "partitions": numbers}
                    for name, numbers in by_topic(places).items()
                ],
            }
        )
    request = {"transactions": transactions}
    return encode_request(ApiKey.ADD_PARTITIONS_TO_TXN, version, request)


def _codes_of(answer: "messages.AddPartitionsToTxnResponse") -> PartitionCodes | ErrorCode:
    if answer.error_code:
        return ErrorCode(answer.error_code)
    return {
        (transaction.transactional_id, topic.name, partition.partition_index): ErrorCode(
            partition.partition_error_code
        )
        for transaction in answer.results_by_transaction
        for topic in transaction.topic_results
        for partition in topic.results_by_partition
    }


def _code_of_all(
    codes: PartitionCodes | ErrorCode, transactional_id: str, partitions: Iterable[TopicPartition]
) -> ErrorCode:
    """The code of a question: that of the partition that the coordinator objects to."""
    found = {code_of(codes, transactional_id, place) for place in partitions} - {ErrorCode.none}
    return min(found - {ErrorCode.operation_not_attempted} or found, default=ErrorCode.none)
