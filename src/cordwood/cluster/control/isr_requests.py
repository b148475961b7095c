"""Changes of ISRs, gathered into requests: at most one request is out at any time.

A controller handles requests one after the other, and a change that is refused because an earlier
one was made first is a change in vain. So changes wait while a request is out, and then leave
together. A second change of the same partition replaces the one that waits.
"""

from collections.abc import Callable
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from cordwood.cluster.cluster_control import IsrAnswer, IsrChange, IsrOutcome
from cordwood.cluster.image.partition_image import LeaderRecovery
from cordwood.protocol.error_code import ErrorCode

if TYPE_CHECKING:
    from cordwood.protocol.schemas import control_messages as messages

CHANGES_PER_REQUEST_MAX: Final = 5_000

_Place = tuple[UUID, int]
_RETRY: Final = IsrOutcome(answer=IsrAnswer.RETRY)


class IsrCall(NamedTuple):
    change: IsrChange
    when_done: Callable[[IsrOutcome], None]


class IsrRequests:
    """The changes that one broker asks for. For one thread. Pure but for the callbacks."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._waiting: dict[_Place, IsrCall] = {}
        self._out: dict[_Place, IsrCall] = {}

    @property
    def has_work(self) -> bool:
        """Whether `next_request` would return one."""
        return bool(self._waiting) and not self._out

    def add(self, call: IsrCall) -> None:
        place = (call.change.topic_id, call.change.partition)
        replaced = self._waiting.pop(place, None)
        self._waiting[place] = call
        if replaced is not None:
            replaced.when_done(_RETRY)

    def next_request(self, broker_epoch: int) -> "messages.AlterPartitionRequestDict":
        """The request with what waits. It is out until `answered` or `failed`."""
        assert self.has_work, "one request at a time"
        places = sorted(self._waiting, key=lambda place: (place[0].int, place[1]))
        self._out = {place: self._waiting.pop(place) for place in places[:CHANGES_PER_REQUEST_MAX]}
        return {
            "broker_id": self._node_id,
            "broker_epoch": broker_epoch,
            "topics": [
                {
                    "topic_id": topic_id,
                    "partitions": [_partition(self._out[place].change) for place in places_],
                }
                for topic_id, places_ in groupby(self._out, key=lambda place: place[0])
            ],
        }

    def answered(self, answer: "messages.AlterPartitionResponse") -> None:
        """Tell everybody who is part of the request what became of the change."""
        if answer.error_code:
            self._finish(dict.fromkeys(self._out, _refusal(answer.error_code)))
            return
        found: dict[_Place, IsrOutcome] = {}
        for topic in answer.topics:
            for part in topic.partitions:
                found[topic.topic_id, part.partition_index] = (
                    _refusal(part.error_code)
                    if part.error_code
                    else IsrOutcome(
                        answer=IsrAnswer.MADE,
                        in_sync=tuple(part.isr),
                        partition_epoch=part.partition_epoch,
                        recovery=LeaderRecovery(part.leader_recovery_state),
                    )
                )
        self._finish(found)

    def failed(self) -> None:
        """Nobody answered: nothing is known."""
        self._finish({})

    def _finish(self, outcomes: dict[_Place, IsrOutcome]) -> None:
        out, self._out = self._out, {}
        for place, call in out.items():
            call.when_done(outcomes.get(place, _RETRY))


def _partition(change: IsrChange) -> "messages.AlterPartitionRequestPartitionsDict":
    return {
        "partition_index": change.partition,
        "leader_epoch": change.leader_epoch,
        "new_isr": [each.node_id for each in change.in_sync],
        "new_isr_with_epochs": [
            {"broker_id": each.node_id, "broker_epoch": each.broker_epoch}
            for each in change.in_sync
        ],
        "leader_recovery_state": change.recovery,
        "partition_epoch": change.partition_epoch,
    }


def _refusal(code: int) -> IsrOutcome:
    if code in _GIVEN_UP:
        return IsrOutcome(answer=IsrAnswer.REFUSED)
    return IsrOutcome(answer=IsrAnswer.OVERTAKEN if code in _OVERTAKEN else IsrAnswer.RETRY)


# A replica may not join now, or the change was not tried because of another one: the leader goes
# back to the ISR that it has and may propose another.
_GIVEN_UP: Final = frozenset({ErrorCode.ineligible_replica, ErrorCode.operation_not_attempted})
# The controllers know of something newer: only metadata can resolve it.
_OVERTAKEN: Final = frozenset(
    {
        ErrorCode.invalid_update_version,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.not_leader_or_follower,
        ErrorCode.new_leader_elected,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.invalid_request,
        ErrorCode.stale_broker_epoch,
    }
)
