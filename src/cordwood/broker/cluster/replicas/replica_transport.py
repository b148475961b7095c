"""Requests of followers to the brokers that lead, over one connection to each.

Belongs to the data loop. What is not answered is told as None: the follower tries again later.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, cast

from cordwood.broker.cluster.replicas.fetch_session import SESSION_ERRORS, FollowerSession
from cordwood.broker.net.outbound.outbound_call import OutboundCall, OutboundResult
from cordwood.cluster.replication.replica_fetch import (
    BoundsQuery,
    FetchedPartition,
    LogBounds,
    PartitionPlace,
    ReplicaFetch,
)
from cordwood.cluster.replication.replica_rebuild import CopyQuery
from cordwood.errors import CordwoodError, FormatError
from cordwood.log.reading.time_lookup import EARLIEST, LATEST
from cordwood.log.rules.leader_epochs import EpochEnd
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import decode_response, encode_request
from cordwood.protocol.replica_fetch import (
    VERSION_MAX,
    VERSION_MIN,
    ReplicaFetchAnswer,
    ReplicaFetched,
    ReplicaFetchPart,
    decode_replica_fetch,
    encode_replica_fetch,
)
from cordwood.quantities import LeaderEpoch, Offset

if TYPE_CHECKING:
    from cordwood.protocol.schemas import offset_messages

logger = logging.getLogger(__name__)

_LIST_OFFSETS_MIN: Final = 4
_LIST_OFFSETS_MAX: Final = 7
_ANSWER_S: Final = 10.0  # beyond the time that the leader may wait
_CONSUMER: Final = -1
_COPY_WAIT_MS: Final = 100
_TOLD_MAX: Final = 8
_CODES: Final = frozenset(ErrorCode)


class Peers(Protocol):
    """Connections to the other brokers. Belongs to the data loop."""

    def send(self, node_id: int, call: OutboundCall) -> None:
        """Send a request to a broker; a connection is opened if there is none."""
        ...


class PeerTransport:
    """A `ReplicaTransport`. `topic_name` gives the name of a topic of the image."""

    def __init__(
        self, peers: Peers, *, node_id: int, topic_name: Callable[[PartitionPlace], str | None]
    ) -> None:
        self._peers = peers
        self._node_id = node_id
        self._topic_name = topic_name
        self._sessions: dict[int, FollowerSession] = {}
        self._errors: dict[PartitionPlace, int] = {}  # what leaders answered last
        self._unreached: dict[int, set[str]] = {}  # why, since a leader answered

    def fetch(
        self,
        leader: int,
        fetch: ReplicaFetch,
        when_done: Callable[[Sequence[FetchedPartition] | None], None],
    ) -> None:
        session = self._sessions.setdefault(leader, FollowerSession())
        was_full = True

        def encode(version: int) -> bytes:
            nonlocal was_full
            request = session.encode(fetch, version)
            was_full = request.is_full
            return request.body

        def answered(result: OutboundResult) -> None:
            answer = self._decoded(leader, result)
            if answer is None:
                session.restart()
                when_done(None)
            elif answer.error_code in SESSION_ERRORS and not was_full:
                session.restart()
                self.fetch(leader, fetch, when_done)
            elif answer.error_code:
                session.restart()
                when_done(None)
            else:
                session.answered(answer.session_id)
                for part in answer.parts:
                    self._note(leader, part)
                when_done([_fetched(part) for part in answer.parts])

        self._peers.send(
            leader,
            OutboundCall(
                api=ApiKey.FETCH,
                version_min=VERSION_MIN,
                version_max=VERSION_MAX,
                encode=encode,
                when_done=answered,
                timeout_s=fetch.wait_max_ms / 1000 + _ANSWER_S,
            ),
        )

    def copy(
        self, leader: int, query: CopyQuery, when_done: Callable[[FetchedPartition | None], None]
    ) -> None:
        """Ask as a consumer does: committed batches only, and without a session."""
        part = ReplicaFetchPart(
            query.place.topic_id,
            query.place.partition,
            query.offset,
            query.bytes_max,
            query.leader_epoch,
        )

        def answered(result: OutboundResult) -> None:
            answer = self._decoded(leader, result)
            if answer is None or answer.error_code or len(answer.parts) != 1:
                when_done(None)
            else:
                when_done(_fetched(answer.parts[0]))

        self._peers.send(
            leader,
            OutboundCall(
                api=ApiKey.FETCH,
                version_min=VERSION_MIN,
                version_max=VERSION_MAX,
                encode=lambda version: encode_replica_fetch(
                    version,
                    [part],
                    replica_id=_CONSUMER,
                    replica_epoch=_CONSUMER,
                    max_wait_ms=_COPY_WAIT_MS,
                    min_bytes=1,
                    max_bytes=query.bytes_max,
                ),
                when_done=answered,
                timeout_s=_COPY_WAIT_MS / 1000 + _ANSWER_S,
            ),
        )

    def _note(self, leader: int, part: ReplicaFetched) -> None:
        """Log when a leader begins to refuse a partition, not each time it does."""
        place, code = PartitionPlace(part.topic_id, part.partition), part.error_code
        if code == self._errors.get(place, 0):
            return
        if code:
            self._errors[place] = code
            name = self._topic_name(place) or part.topic_id
            reason = ErrorCode(code).name if code in _CODES else str(code)
            logger.info("broker %d refuses fetches of %s-%d: %s", leader, name, place[1], reason)
        else:
            del self._errors[place]

    def _decoded(self, leader: int, result: OutboundResult) -> ReplicaFetchAnswer | None:
        if isinstance(result, CordwoodError):
            self._tell_once(leader, str(result))
            return None
        self._unreached.pop(leader, None)
        try:
            return decode_replica_fetch(*result)
        except FormatError as error:
            logger.warning("broker %d answered a fetch with garbage: %s", leader, error)
            return None

    def _tell_once(self, leader: int, reason: str) -> None:
        """Log each reason once until the leader answers: a follower tries again every second."""
        told = self._unreached.setdefault(leader, set())
        if reason not in told and len(told) < _TOLD_MAX:
            told.add(reason)
            logger.warning("broker %d was not reached to fetch from it: %s", leader, reason)

    def bounds(
        self, leader: int, query: BoundsQuery, when_done: Callable[[LogBounds | None], None]
    ) -> None:
        """Two questions, one after the other: a request names a partition once."""

        def started(start: Offset | None) -> None:
            if start is None:
                when_done(None)
            else:
                self._ask_offset(
                    leader,
                    query,
                    LATEST,
                    lambda end: when_done(None if end is None else LogBounds(start, end)),
                )

        self._ask_offset(leader, query, EARLIEST, started)

    def _ask_offset(
        self,
        leader: int,
        query: BoundsQuery,
        time: int,
        when_done: Callable[[Offset | None], None],
    ) -> None:
        name = self._topic_name(query.place)
        if name is None:
            when_done(None)
            return
        request = {
            "replica_id": self._node_id,
            "isolation_level": 0,
            "topics": [
                {
                    "name": name,
                    "partitions": [
                        {
                            "partition_index": query.place.partition,
                            "current_leader_epoch": query.leader_epoch,
                            "timestamp": time,
                        }
                    ],
                }
            ],
        }
        self._peers.send(
            leader,
            OutboundCall(
                api=ApiKey.LIST_OFFSETS,
                version_min=_LIST_OFFSETS_MIN,
                version_max=_LIST_OFFSETS_MAX,
                encode=lambda version: encode_request(ApiKey.LIST_OFFSETS, version, request),
                when_done=lambda result: when_done(_listed(result)),
                timeout_s=_ANSWER_S,
            ),
        )


def _fetched(part: ReplicaFetched) -> FetchedPartition:
    diverging = part.diverging
    return FetchedPartition(
        place=PartitionPlace(part.topic_id, part.partition),
        error=part.error_code,
        high_watermark=Offset(part.high_watermark),
        log_start=Offset(part.log_start_offset),
        diverging=None
        if diverging is None
        else EpochEnd(LeaderEpoch(diverging.epoch), Offset(diverging.end_offset)),
        data=part.records,
    )


def _listed(result: OutboundResult) -> Offset | None:
    if isinstance(result, CordwoodError):
        return None
    try:
        answer = cast(
            "offset_messages.ListOffsetsResponse",
            decode_response(ApiKey.LIST_OFFSETS, *result),
        )
        [topic] = answer.topics
        [found] = topic.partitions
    except (FormatError, ValueError) as error:
        logger.warning("a broker answered ListOffsets with garbage: %s", error)
        return None
    return Offset(found.offset) if not found.error_code and found.offset >= 0 else None
