"""Fetch sessions: the broker remembers what a consumer fetches, so requests hold only changes.

    session_id  epoch   meaning
    any         -1      everything is in the request; the session, if any, ends
    any         0       everything is in the request; a new session begins with it
    s           n > 0   changes to session s, whose next epoch is n

Within a session an answer holds only partitions with news: records, an error, or offsets that
moved. The broker refuses a session by answering session 0; the client then sends everything each
time, which is always correct.
"""

from collections.abc import Callable, Iterable
from random import SystemRandom
from typing import Final
from uuid import UUID

from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.fetch_request import (
    FULL_WITH_SESSION,
    FULL_WITHOUT_SESSION,
    NO_SESSION,
    FetchPartition,
    FetchRequest,
)
from cordwood.protocol.fetch_response import FetchedPart
from cordwood.value_class import dataclass, field

_EVICTABLE_AFTER_S: Final = 120.0  # as Kafka's
_EPOCH_MAX: Final = 0x7FFFFFFF
_RANDOM: Final = SystemRandom()

Key = tuple[str | UUID, int]


@dataclass(slots=True)
class _Told:
    """A partition of a session: how it is fetched, and the offsets that were sent last."""

    part: FetchPartition
    high_watermark: int = -2
    log_start: int = -2


@dataclass(slots=True, kw_only=True)
class FetchSession:
    """Belongs to the data loop."""

    session_id: int
    uses_topic_ids: bool
    epoch: int = 1  # of the next request
    used_s: float = 0.0
    partitions: dict[Key, _Told] = field(default_factory=dict)

    def update(
        self, parts: Iterable[FetchPartition], forgotten: Iterable[tuple[str | UUID, int]]
    ) -> None:
        for part in parts:
            key = (part.topic, part.partition)
            told = self.partitions.get(key)
            if told is None:
                self.partitions[key] = _Told(part)
            else:
                told.part = part
        for key in forgotten:
            self.partitions.pop(key, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUse:
    """A request together with its session, if it has one."""

    parts: list[FetchPartition]
    session: FetchSession | None = None
    is_incremental: bool = False
    error_code: int = 0

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.session_id

    def is_news(self, part: FetchedPart) -> bool:
        """Whether the answer must hold `part`."""
        if not self.is_incremental or self.session is None:
            return True
        if part.size or part.error_code or part.diverging is not None:
            return True
        if part.preferred_replica >= 0:
            return True
        told = self.session.partitions.get((part.topic, part.partition))
        return (
            told is None
            or told.high_watermark != part.high_watermark
            or told.log_start != part.log_start_offset
        )

    def answer_with(self, parts: list[FetchedPart]) -> list[FetchedPart]:
        """The `parts` that the answer must hold. They are remembered as sent.

        Partitions with records move to the end, so that the others come first next time.
        """
        if self.session is None:
            return parts
        partitions = self.session.partitions
        news = [part for part in parts if self.is_news(part)]
        for part in news:
            key = (part.topic, part.partition)
            told = partitions.get(key)
            if told is None:
                continue
            told.high_watermark = part.high_watermark
            told.log_start = part.log_start_offset
            if part.size:
                del partitions[key]
                partitions[key] = told
        return news


class FetchSessions:
    """All sessions of a broker, at most `slots`. Belongs to the data loop."""

    def __init__(self, slots: int, now_s: Callable[[], float]) -> None:
        self._slots = slots
        self._now_s = now_s
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def use(self, request: FetchRequest, *, by_topic_id: bool) -> SessionUse:
        """What a request asks for, including what its session remembers."""
        if request.session_epoch in {FULL_WITHOUT_SESSION, FULL_WITH_SESSION}:
            self._sessions.pop(request.session_id, None)
            if request.session_epoch == FULL_WITHOUT_SESSION:
                return SessionUse(parts=request.parts)
            session = self._begin(request.parts, by_topic_id=by_topic_id)
            return SessionUse(parts=request.parts, session=session)
        session = self._sessions.get(request.session_id)
        if session is None:
            return SessionUse(parts=[], error_code=ErrorCode.fetch_session_id_not_found)
        if session.epoch != request.session_epoch:
            return SessionUse(parts=[], error_code=ErrorCode.invalid_fetch_session_epoch)
        if session.uses_topic_ids != by_topic_id:
            return SessionUse(parts=[], error_code=ErrorCode.fetch_session_topic_id_error)
        session.update(request.parts, request.forgotten)
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        self._touch(session)
        parts = [told.part for told in session.partitions.values()]
        return SessionUse(parts=parts, session=session, is_incremental=True)

    def end(self, use: SessionUse) -> None:
        """Forget a session that began with a request whose answer does not hold its partitions."""
        self._sessions.pop(use.session_id, None)

    def _begin(self, parts: list[FetchPartition], *, by_topic_id: bool) -> FetchSession | None:
        if not parts or not self._make_room():
            return None
        session = FetchSession(session_id=self._new_id(), uses_topic_ids=by_topic_id)
        session.update(parts, ())
        self._touch(session)
        return session

    def _make_room(self) -> bool:
        if len(self._sessions) < self._slots:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or self._now_s() - oldest.used_s < _EVICTABLE_AFTER_S:
            return False
        del self._sessions[oldest.session_id]
        return True

    def _new_id(self) -> int:
        while True:  # until the number is not in use
            session_id = _RANDOM.randint(1, _EPOCH_MAX)
            if session_id not in self._sessions:
                return session_id

    def _touch(self, session: FetchSession) -> None:
        session.used_s = self._now_s()
        self._sessions.pop(session.session_id, None)
        self._sessions[session.session_id] = session
