"""Transactions of producers: ids and epochs, partitions, offsets of groups, the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

from cordwood.broker.cluster_view import ClusterView
from cordwood.broker.error_codes import ErrorCode, refusal, transaction_code
from cordwood.broker.net.requests.request import (
    Deferred,
    RequestContext,
    Response,
    Route,
    RunsOn,
    routes_on,
)
from cordwood.broker.security import access_table as needs
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.format.groups.group_fields import STRING_BYTES_MAX
from cordwood.log.transactions.transaction_entry import Granted, Outcome
from cordwood.log.transactions.transaction_metadata import (
    EPOCH_BUMPING_VERSION,
    ProducerIdentity,
)
from cordwood.log.transactions.transaction_requests import TransactionRequests
from cordwood.protocol.api_catalog import ApiKey
from cordwood.quantities import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerId

if TYPE_CHECKING:
    from cordwood.protocol.schemas import offset_messages
    from cordwood.protocol.schemas import transaction_messages as messages

_FIRST_EPOCH: Final = 0
# The first versions whose clients know PRODUCER_FENCED.
_FIRST_INIT_FENCED: Final = 4
_FIRST_FENCED: Final = 2
_FIRST_ADD_OF_BROKERS: Final = 4
_FIRST_END_WITH_EPOCH: Final = 5

_Place = tuple[str, int]


class TransactionsHandler:
    """The requests of transactional producers, and ids for idempotent ones.

    Called in the control loop, except `init_producer_id`, which sometimes waits for the disk.
    """

    def __init__(
        self,
        coordinator: TransactionRequests,
        view: ClusterView,
        *,
        offsets_place: Callable[[str], _Place],
        allocate: Callable[[], ProducerId],
        closed_topics: frozenset[str] = frozenset(),
    ) -> None:
        """Nobody may write to `closed_topics`, whatever the rules say.

        `offsets_place` gives the partition that has the offsets of a group. It creates their topic
        if need be, and may raise. `allocate` gives producer ids that nobody has.
        """
        self._closed_topics = closed_topics
        self._allocate = allocate
        self._view = view
        self._coordinator = coordinator
        self._offsets_place = offsets_place

    def routes(self) -> list[Route]:
        return [
            Route(
                api=ApiKey.INIT_PRODUCER_ID, handler=self.init_producer_id, runs_on=RunsOn.WORKER
            ),
            Route(
                api=ApiKey.ADD_OFFSETS_TO_TXN,
                handler=self.add_offsets_to_txn,
                runs_on=RunsOn.WORKER,
            ),
            *routes_on(
                RunsOn.CONTROL,
                {
                    ApiKey.ADD_PARTITIONS_TO_TXN: self.add_partitions_to_txn,
                    ApiKey.END_TXN: self.end_txn,
                },
            ),
        ]

    # --- InitProducerId ----------------------------------------------------------------------

    def init_producer_id(
        self, context: RequestContext, request: offset_messages.InitProducerIdRequest
    ) -> Response | Deferred:
        """An id and an epoch. Without a transactional id always a new id, with epoch 0.

        An idempotent producer that has an id gave up a sequence of batches. With another id its
        batches start a new sequence, and batches under the old id that still arrive cannot be
        mistaken for them.
        """
        has_id = request.producer_id != NO_PRODUCER_ID
        has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH
        transactional_id = request.transactional_id
        if has_id != has_epoch or (
            transactional_id is not None and not _is_valid(transactional_id)
        ):
            return _initialised(ErrorCode.invalid_request)
        if transactional_id is None:
            if not _may_be_idempotent(context):
                return _initialised(needs.INIT_PRODUCER_ID_TOPIC.code)
            return self._idempotent()
        if not context.may(needs.INIT_PRODUCER_ID_TRANSACTION, transactional_id):
            return _initialised(needs.INIT_PRODUCER_ID_TRANSACTION.code)
        expected = None
        if has_id:
            expected = _identity(request.producer_id, request.producer_epoch)
        knows_fencing = context.api_version >= _FIRST_INIT_FENCED
        reply = Deferred()

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Granted):
                reply.resolve(_initialised(ErrorCode.none, outcome.identity))
            else:
                code = transaction_code(outcome.reason, knows_fencing=knows_fencing)
                reply.resolve(_initialised(code))

        self._coordinator.init_producer(
            transactional_id, timeout_ms=request.transaction_timeout, expected=expected, done=done
        )
        return reply

    def _idempotent(self) -> offset_messages.InitProducerIdResponseDict:
        try:
            producer_id = self._allocate()
        except Exception as error:
            return _initialised(refusal(error).code)
        return _initialised(ErrorCode.none, _identity(producer_id, _FIRST_EPOCH))

    # --- AddPartitionsToTxn, AddOffsetsToTxn ---------------------------------------------------

    def add_partitions_to_txn(
        self, context: RequestContext, request: messages.AddPartitionsToTxnRequest
    ) -> Response | Deferred:
        if context.api_version >= _FIRST_ADD_OF_BROKERS:
            if not context.may(needs.ADD_PARTITIONS_TO_TXN_CLUSTER):
                return {"error_code": needs.ADD_PARTITIONS_TO_TXN_CLUSTER.code}
            return self._add_for_brokers(context, request)
        topics = _places(request.v3_and_below_topics)
        knows_fencing = context.api_version >= _FIRST_FENCED
        reply = Deferred()
        self._add(
            context,
            request.v3_and_below_transactional_id,
            _identity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
            topics,
            client_version=0,
            knows_fencing=knows_fencing,
            answer=lambda codes: reply.resolve(
                {"results_by_topic_v3_and_below": _by_topic(topics, codes)}
            ),
        )
        return reply

    def _add_for_brokers(
        self, context: RequestContext, request: messages.AddPartitionsToTxnRequest
    ) -> Response | Deferred:
        """Version 4 and later: several transactions, which brokers of a cluster ask for."""
        reply = Deferred()
        results: list[messages.AddPartitionsToTxnResponseResultsByTransactionDict | None] = [
            None for _ in request.transactions
        ]
        if not results:
            return {"results_by_transaction": []}

        def answer_at(
            index: int, transactional_id: str, topics: Sequence[_Place]
        ) -> Callable[[dict[_Place, ErrorCode]], object]:
            def answer(codes: dict[_Place, ErrorCode]) -> None:
                results[index] = {
                    "transactional_id": transactional_id,
                    "topic_results": _by_topic(topics, codes),
                }
                if all(result is not None for result in results):
                    reply.resolve({"results_by_transaction": results})

            return answer

        for index, transaction in enumerate(request.transactions):
            topics = _places(transaction.topics)
            self._add(
                context,
                transaction.transactional_id,
                _identity(transaction.producer_id, transaction.producer_epoch),
                topics,
                client_version=EPOCH_BUMPING_VERSION,
                verify_only=transaction.verify_only,
                knows_fencing=True,
                answer=answer_at(index, transaction.transactional_id, topics),
            )
        return reply

    def _add(
        self,
        context: RequestContext,
        transactional_id: str,
        producer: ProducerIdentity,
        places: Sequence[_Place],
        *,
        client_version: int,
        knows_fencing: bool,
        answer: Callable[[dict[_Place, ErrorCode]], object],
        verify_only: bool = False,
    ) -> None:
        if not _is_valid(transactional_id):
            answer(dict.fromkeys(places, ErrorCode.invalid_request))
            return
        is_of_client = context.api_version < _FIRST_ADD_OF_BROKERS
        need = needs.ADD_PARTITIONS_TO_TXN
        if is_of_client and not context.may(need, transactional_id):
            answer(dict.fromkeys(places, need.code))
            return
        refused = {
            place: code
            for place in places
            if (code := self._refusal(context, place, is_of_client=is_of_client)) is not None
        }
        if refused:
            rest = dict.fromkeys(places, ErrorCode.operation_not_attempted)
            answer({**rest, **refused})
            return

        def done(outcome: Outcome) -> None:
            code = ErrorCode.none
            if not isinstance(outcome, Granted):
                code = transaction_code(outcome.reason, knows_fencing=knows_fencing)
            elif outcome.lease is not None:
                outcome.lease.release()
            answer(dict.fromkeys(places, code))

        wanted: AbstractSet[_Place] = set(places)
        if verify_only:
            self._coordinator.begin_append(
                transactional_id,
                producer,
                wanted,
                client_version=client_version,
                done=done,
                verify_only=True,
                is_brief=True,
            )
        else:
            self._coordinator.add_partitions(
                transactional_id,
                producer,
                wanted,
                client_version=client_version,
                done=done,
                is_brief=not is_of_client,  # a broker asks about many transactions at once
            )

    def _refusal(
        self, context: RequestContext, place: _Place, *, is_of_client: bool
    ) -> ErrorCode | None:
        name, number = place
        need = needs.ADD_PARTITIONS_TO_TXN_TOPIC
        if is_of_client and (name in INTERNAL_TOPICS or not context.may(need, name)):
            return need.code
        if name in self._closed_topics:
            return ErrorCode.invalid_topic_exception
        topic = self._view.topic(name)
        if topic is None or not 0 <= number < topic.partition_count:
            return ErrorCode.unknown_topic_or_partition
        return None

    def add_offsets_to_txn(
        self, context: RequestContext, request: messages.AddOffsetsToTxnRequest
    ) -> Response | Deferred:
        """By a worker: the first one creates the offsets topic."""
        if not _is_valid(request.transactional_id):
            return {"error_code": ErrorCode.invalid_request}
        if not request.group_id:
            return {"error_code": ErrorCode.invalid_group_id}
        if not context.may(needs.ADD_OFFSETS_TO_TXN, request.transactional_id):
            return {"error_code": needs.ADD_OFFSETS_TO_TXN.code}
        if not context.may(needs.ADD_OFFSETS_TO_TXN_GROUP, request.group_id):
            return {"error_code": needs.ADD_OFFSETS_TO_TXN_GROUP.code}
        try:
            place = self._offsets_place(request.group_id)
        except Exception as error:
            return {"error_code": refusal(error).code}
        knows_fencing = context.api_version >= _FIRST_FENCED
        reply = Deferred()

        def done(outcome: Outcome) -> None:
            code = ErrorCode.none
            if not isinstance(outcome, Granted):
                code = transaction_code(outcome.reason, knows_fencing=knows_fencing)
            reply.resolve({"error_code": code})

        self._coordinator.add_partitions(
            request.transactional_id,
            _identity(request.producer_id, request.producer_epoch),
            {place},
            client_version=0,
            done=done,
        )
        return reply

    # --- EndTxn ------------------------------------------------------------------------------

    def end_txn(
        self, context: RequestContext, request: messages.EndTxnRequest
    ) -> Response | Deferred:
        if not _is_valid(request.transactional_id):
            return {"error_code": ErrorCode.invalid_request}
        if not context.may(needs.END_TXN, request.transactional_id):
            return {"error_code": needs.END_TXN.code}
        has_epoch = context.api_version >= _FIRST_END_WITH_EPOCH
        knows_fencing = context.api_version >= _FIRST_FENCED
        reply = Deferred()

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Granted):
                identity = outcome.identity
                reply.resolve(
                    {
                        "error_code": ErrorCode.none,
                        "producer_id": identity.producer_id,
                        "producer_epoch": identity.epoch,
                    }
                )
            else:
                code = transaction_code(outcome.reason, knows_fencing=knows_fencing)
                reply.resolve({"error_code": code})

        self._coordinator.end(
            request.transactional_id,
            _identity(request.producer_id, request.producer_epoch),
            is_commit=request.committed,
            client_version=EPOCH_BUMPING_VERSION if has_epoch else 0,
            done=done,
        )
        return reply


def _may_be_idempotent(context: RequestContext) -> bool:
    """Who may write to any topic may do it idempotently."""
    if context.may(needs.INIT_PRODUCER_ID_CLUSTER):
        return True
    need = needs.INIT_PRODUCER_ID_TOPIC
    if context.session.access.allows_anywhere(need.operation, need.resource):
        return True
    context.refused(need, "*")
    return False


def _is_valid(transactional_id: str) -> bool:
    """A string in a record has a 16-bit size in bytes."""
    return bool(transactional_id) and len(transactional_id.encode()) <= STRING_BYTES_MAX


def _identity(producer_id: int, epoch: int) -> ProducerIdentity:
    return ProducerIdentity(producer_id=ProducerId(producer_id), epoch=epoch)


def _initialised(
    code: ErrorCode, identity: ProducerIdentity | None = None
) -> offset_messages.InitProducerIdResponseDict:
    return {
        "error_code": code,
        "producer_id": NO_PRODUCER_ID if identity is None else identity.producer_id,
        "producer_epoch": NO_PRODUCER_EPOCH if identity is None else identity.epoch,
    }


def _places(
    topics: Iterable[
        messages.AddPartitionsToTxnRequestV3AndBelowTopics
        | messages.AddPartitionsToTxnRequestTopics
    ],
) -> list[_Place]:
    return [(topic.name, number) for topic in topics for number in topic.partitions]


def _by_topic(
    places: Sequence[_Place], codes: dict[_Place, ErrorCode]
) -> list[messages.AddPartitionsToTxnResponseResultsByTopicV3AndBelowDict]:
    by_topic: dict[str, list[int]] = {}
    for name, number in places:
        by_topic.setdefault(name, []).append(number)
    return [
        {
            "name": name,
            "results_by_partition": [
                {"partition_index": number, "partition_error_code": codes[name, number]}
                for number in numbers
            ],
        }
        for name, numbers in by_topic.items()
    ]
