"""TxnOffsetCommit: offsets of a group that count once a transaction does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from cordwood.broker.cluster_view import ClusterView
from cordwood.broker.error_codes import transaction_code
from cordwood.broker.groups.classic.classic_group import ClassicGroup
from cordwood.broker.groups.coordinator import GroupCoordinator
from cordwood.broker.net.requests.request import Deferred, RequestContext, Response, Route, RunsOn
from cordwood.broker.security import access_table as needs
from cordwood.format.groups.group_fields import STRING_BYTES_MAX
from cordwood.log.rules.producer_state import VerificationGuard
from cordwood.log.topics.committed_offsets import CommittedOffset, TopicPartition
from cordwood.log.transactions.transaction_entry import Granted, Outcome
from cordwood.log.transactions.transaction_metadata import (
    EPOCH_BUMPING_VERSION,
    ProducerIdentity,
)
from cordwood.log.transactions.transaction_requests import TransactionRequests
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import LeaderEpoch, Offset, ProducerId

if TYPE_CHECKING:
    from cordwood.protocol.schemas import transaction_messages as messages

_FIRST_WITH_LOADING: Final = 2  # earlier clients do not know that a coordinator may be loading
_FIRST_ABORTABLE: Final = 4
_FIRST_ADDING: Final = 5  # from here on the request adds the offsets to the transaction

Place = tuple[str, int]
_Codes = dict[TopicPartition, ErrorCode]


OffsetsBegun = Callable[[Outcome, VerificationGuard | None], None]


class OffsetsAdmission(Protocol):
    """Asks the coordinator of a transaction whether offsets of a group may be committed in it."""

    def begin(
        self,
        group_id: str,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        client_version: int,
        done: OffsetsBegun,
    ) -> None:
        """`done` gets the answer, by any thread, and the guard of the log, in a cluster."""
        ...


class SoleAdmission:
    """The coordinator is in the same process: it holds a lease until the offsets are written."""

    def __init__(self, transactions: TransactionRequests, place: Callable[[str], Place]) -> None:
        """`place` gives the partition that has the offsets of a group."""
        self._transactions = transactions
        self._place = place

    def begin(
        self,
        group_id: str,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        client_version: int,
        done: OffsetsBegun,
    ) -> None:
        self._transactions.begin_append(
            transactional_id,
            producer,
            {self._place(group_id)},
            client_version=client_version,
            done=lambda outcome: done(outcome, None),
        )


class TransactionOffsetsHandler:
    """Commits offsets in transactions. Called in the control loop."""

    def __init__(
        self, *, coordinator: GroupCoordinator, view: ClusterView, admission: OffsetsAdmission
    ) -> None:
        self._groups = coordinator
        self._view = view
        self._admission = admission

    def routes(self) -> list[Route]:
        return [
            Route(
                api=ApiKey.TXN_OFFSET_COMMIT,
                handler=self.txn_offset_commit,
                runs_on=RunsOn.CONTROL,
            )
        ]

    def txn_offset_commit(
        self, context: RequestContext, request: messages.TxnOffsetCommitRequest
    ) -> Response | Deferred:
        code = self._check(context, request)
        if code is not ErrorCode.none:
            return _answer(request, {}, _known(code, context.api_version))
        codes: _Codes = {}
        wanted = self._committable(context, request, codes)
        if not wanted:
            return _answer(request, codes, ErrorCode.none)
        reply = Deferred()
        producer = ProducerIdentity(
            producer_id=ProducerId(request.producer_id), epoch=request.producer_epoch
        )

        def begun(outcome: Outcome, guard: VerificationGuard | None) -> None:
            """Any thread."""
            if isinstance(outcome, Granted):
                self._groups.scheduler.call_soon(lambda: commit(outcome, guard))
            else:
                refused = _verification_code(outcome, context.api_version)
                reply.resolve(_answer(request, codes, refused))

        def commit(granted: Granted, guard: VerificationGuard | None) -> None:
            def appended(code: ErrorCode) -> None:
                if granted.lease is not None:
                    granted.lease.release()
                reply.resolve(_answer(request, codes, _known(code, context.api_version)))

            self._groups.keeper.commit(request.group_id, wanted, appended, producer, guard)

        adds = context.api_version >= _FIRST_ADDING
        self._admission.begin(
            request.group_id,
            request.transactional_id,
            producer,
            client_version=EPOCH_BUMPING_VERSION if adds else 0,
            done=begun,
        )
        return reply

    def _check(
        self, context: RequestContext, request: messages.TxnOffsetCommitRequest
    ) -> ErrorCode:
        if not request.transactional_id:
            return ErrorCode.invalid_request
        if not context.may(needs.TXN_OFFSET_COMMIT, request.transactional_id):
            return needs.TXN_OFFSET_COMMIT.code
        if not context.may(needs.TXN_OFFSET_COMMIT_GROUP, request.group_id):
            return needs.TXN_OFFSET_COMMIT_GROUP.code
        refusal = self._groups.refusal(request.group_id)
        if refusal is not None:
            return refusal
        group = self._groups.find(request.group_id)
        epoch = request.generation_id
        if group is None:
            return ErrorCode.none if epoch < 0 else ErrorCode.illegal_generation
        if isinstance(group, ClassicGroup):
            return group.validate_pending_commit(
                request.member_id, epoch, request.group_instance_id
            )
        if epoch < 0 and not request.member_id:
            return ErrorCode.none
        code = group.validate_commit(request.member_id, epoch)
        # An epoch of the past may be right for some partitions: they are checked one by one.
        return ErrorCode.none if code is ErrorCode.stale_member_epoch else code

    def _check_place(
        self,
        context: RequestContext,
        request: messages.TxnOffsetCommitRequest,
        name: str,
        number: int,
    ) -> ErrorCode:
        if not context.may(needs.TXN_OFFSET_COMMIT_TOPIC, name):
            return needs.TXN_OFFSET_COMMIT_TOPIC.code
        topic = self._view.topic(name)
        if topic is None or not 0 <= number < topic.partition_count:
            return ErrorCode.unknown_topic_or_partition
        group = self._groups.groups.get(request.group_id)
        if group is None or isinstance(group, ClassicGroup):
            return ErrorCode.none
        if request.generation_id < 0 and not request.member_id:
            return ErrorCode.none
        code = group.validate_partition_commit(
            request.member_id, request.generation_id, name, number
        )
        return ErrorCode.illegal_generation if code is ErrorCode.stale_member_epoch else code

    def _committable(
        self, context: RequestContext, request: messages.TxnOffsetCommitRequest, codes: _Codes
    ) -> dict[TopicPartition, CommittedOffset]:
        """The offsets that can be committed. The errors of all others go to `codes`."""
        now_ms = self._groups.clock.now_ms()
        metadata_max = min(self._groups.config.offset_metadata_max_bytes, STRING_BYTES_MAX)
        wanted: dict[TopicPartition, CommittedOffset] = {}
        for topic in request.topics:
            known = self._view.topic(topic.name)
            for partition in topic.partitions:
                place = (topic.name, partition.partition_index)
                metadata = partition.committed_metadata or ""
                code = self._check_place(context, request, *place)
                if code is ErrorCode.none and len(metadata.encode()) > metadata_max:
                    code = ErrorCode.offset_metadata_too_large
                if code is not ErrorCode.none:
                    codes[place] = code
                    continue
                wanted[place] = CommittedOffset(
                    offset=Offset(partition.committed_offset),
                    leader_epoch=LeaderEpoch(partition.committed_leader_epoch),
                    metadata=metadata,
                    committed_ms=now_ms,
                    topic_id=None if known is None else known.topic_id,
                )
        return wanted


def _verification_code(outcome: Outcome, version: int) -> ErrorCode:
    """How a refusal of the transaction's coordinator is called in this API."""
    assert not isinstance(outcome, Granted)
    code = transaction_code(outcome.reason, knows_fencing=False)
    if code is ErrorCode.transaction_abortable and version < _FIRST_ABORTABLE:
        return ErrorCode.invalid_txn_state
    if code is ErrorCode.concurrent_transactions and version < _FIRST_ADDING:
        return ErrorCode.coordinator_load_in_progress  # clients of this age retry this one
    return _known(code, version)


def _known(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.coordinator_load_in_progress and version < _FIRST_WITH_LOADING:
        return ErrorCode.coordinator_not_available
    return code


def _answer(
    request: messages.TxnOffsetCommitRequest, codes: _Codes, code: ErrorCode
) -> messages.TxnOffsetCommitResponseDict:
    """`codes` has the partitions that were refused; `code` is the result of all others."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": partition.partition_index,
                        "error_code": codes.get((topic.name, partition.partition_index), code),
                    }
                    for partition in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }
