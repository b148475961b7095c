"""The fetch session of a follower with one leader: requests hold only what changed. Pure.

epoch 0     everything is in the request, and a session begins
epoch n     changes to the session, which the leader remembers
epoch -1    the leader refused a session: everything is in each request
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from cordwood.cluster.replication.replica_fetch import FetchPosition, PartitionPlace, ReplicaFetch
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.fetch_request import FULL_WITH_SESSION, FULL_WITHOUT_SESSION, NO_SESSION
from cordwood.protocol.replica_fetch import ReplicaFetchPart, encode_replica_fetch
from cordwood.value_class import dataclass

SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)
_EPOCH_MAX: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """The body of a request, and whether it holds everything."""

    body: bytes
    is_full: bool


class FollowerSession:
    """What the leader remembers of one follower. Belongs to the transport."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = FULL_WITH_SESSION
        self._known: dict[PartitionPlace, FetchPosition] = {}

    def restart(self) -> None:
        """The next request holds everything: the connection is new, or the leader forgot."""
        self._session_id, self._epoch = NO_SESSION, FULL_WITH_SESSION
        self._known = {}

    def encode(self, fetch: ReplicaFetch, version: int) -> SessionRequest:
        """The request for `fetch`; the leader has to answer it before the next one."""
        wanted = {position.place: position for position in fetch.positions}
        is_full = self._epoch in (FULL_WITH_SESSION, FULL_WITHOUT_SESSION)
        if is_full:
            sent: Sequence[FetchPosition] = fetch.positions
            forgotten: list[PartitionPlace] = []
        else:
            sent = [p for place, p in wanted.items() if self._known.get(place) != p]
            forgotten = [place for place in self._known if place not in wanted]
        self._known = wanted
        body = encode_replica_fetch(
            version,
            [_part(position, fetch.partition_bytes_max) for position in _by_topic(sent)],
            replica_id=fetch.replica,
            replica_epoch=fetch.broker_epoch,
            max_wait_ms=fetch.wait_max_ms,
            min_bytes=fetch.bytes_min,
            max_bytes=fetch.bytes_max,
            session_id=self._session_id,
            session_epoch=self._epoch,
            forgotten=sorted(forgotten, key=_topic_order),
        )
        return SessionRequest(body=body, is_full=is_full)

    def answered(self, session_id: int) -> None:
        """The leader answered without an error, and named the session; 0: it keeps none."""
        if session_id == NO_SESSION:
            self.restart()
        elif session_id != self._session_id:
            self._session_id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch >= _EPOCH_MAX else self._epoch + 1


def _part(position: FetchPosition, bytes_max: int) -> ReplicaFetchPart:
    return ReplicaFetchPart(
        topic_id=position.place.topic_id,
        partition=position.place.partition,
        offset=position.offset,
        max_bytes=bytes_max if position.bytes_max is None else position.bytes_max,
        leader_epoch=position.leader_epoch,
        last_fetched_epoch=position.last_epoch,
        log_start_offset=position.log_start,
        high_watermark=position.high_watermark,
    )


def _by_topic(positions: Sequence[FetchPosition]) -> list[FetchPosition]:
    """Topics together: they share an entry of the request. Else the order stays."""
    order: dict[UUID, int] = {}
    for position in positions:
        order.setdefault(position.place.topic_id, len(order))
    return sorted(positions, key=lambda position: order[position.place.topic_id])


def _topic_order(place: tuple[UUID, int]) -> tuple[bytes, int]:
    return place[0].bytes, place[1]
