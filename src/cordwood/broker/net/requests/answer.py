"""The answer to one request, from the header of the request until the answer is sent."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Final, Protocol

from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.requests.request_metrics import RequestMetrics, ThreadCounts
from cordwood.broker.net.requests.session import Session
from cordwood.broker.net.sockets.outbox import Piece
from cordwood.errors import UnsupportedFormatError
from cordwood.protocol.api_catalog import KNOWN_APIS, ApiKey
from cordwood.protocol.request_header import (
    RequestHeader,
    decode_request_header,
    skip_header_tags,
)

_PRODUCE: Final = int(ApiKey.PRODUCE)
_IS_FLEXIBLE: Final[Mapping[tuple[int, int], bool]] = {
    (api.key, version): api.is_flexible(version)
    for api in KNOWN_APIS.values()
    for version in range(api.min_version, api.max_version + 1)
}


class Connection(Protocol):
    """A client's connection as request handlers see it. Belongs to the thread of its loop.

    `answers` are those that were not sent yet, in the order of their requests. `counts` are those
    of the loop's thread.
    """

    counts: ThreadCounts
    loop: EventLoop
    session: Session
    answers: deque["Answer"]
    muted_until_s: float  # 0: not muted

    @property
    def throttle_ms(self) -> int:
        """How long the client is muted from now on; 0: it is not."""
        ...

    def mute(self, pause_s: float) -> None:
        """Start no request of the client for so long. The answers that it is owed are sent."""
        ...

    def send_ready(self) -> None:
        """Send the answers at the head of the queue that are ready."""
        ...

    def send_alone(self, answer: "Answer", frame: bytes) -> int:
        """Send `frame` for the only answer, if nothing is to be done before or after it.

        The number of bytes that were sent, which the caller counts. -1: nothing was done. Then
        give the answer, and call `send_ready`.
        """
        ...

    def close(self, reason: str) -> None: ...


class Answer:
    """One place in a connection's queue: answers leave in the order of their requests.

    A new answer takes the next place, so it is made in the connection's loop. `give` and
    `abandon` may be called from any thread, once.
    """

    __slots__ = (
        "connection",
        "header",
        "is_alone",
        "is_ready",
        "pause_s",
        "pieces",
        "started_s",
        "when_left",
    )

    def __init__(self, connection: Connection, header: RequestHeader) -> None:
        self.connection = connection
        self.header = header
        self.started_s = connection.loop.turn_s
        self.is_ready = False
        self.is_alone = False  # the connection starts no request before this one is answered
        self.pause_s = 0.0  # mute the client for so long when this is answered
        self.pieces: Sequence[Piece] = ()
        # Called once, if the client leaves before the answer is ready: there is no use in waiting.
        self.when_left: Callable[[], None] | None = None
        connection.answers.append(self)

    @property
    def api_key(self) -> int:
        return self.header.api_key

    def give(self, pieces: Sequence[Piece]) -> None:
        """Send `pieces` after all earlier answers. No pieces: the client expects no answer."""
        loop = self.connection.loop
        if loop.is_current:
            self.give_here(pieces)
        else:
            loop.call_soon(lambda: self.give_here(pieces))

    def give_here(self, pieces: Sequence[Piece]) -> None:
        """As `give`, for a caller that runs in the connection's loop."""
        self.pieces = pieces
        self.is_ready = True
        if self.pause_s:
            self.connection.mute(self.pause_s)
        self.connection.send_ready()

    def client_left(self) -> None:
        """The client sends no more, or is gone. It may still read the answer."""
        when_left, self.when_left = self.when_left, None
        if when_left is not None and not self.is_ready:
            when_left()

    def abandon(self, reason: str) -> None:
        """There will be no answer: close the connection."""
        connection = self.connection
        connection.loop.call_soon(lambda: connection.close(reason))


class SoleAnswer(Answer):
    """The answer to a produce on the short way: it needs little, and one is made for each record.

    Nothing waits on behalf of its client, and none but the connection's loop answers it.
    """

    __slots__ = ("acks", "correlation_id", "version")

    api_key = _PRODUCE
    count = 1
    is_alone = False
    pause_s = 0.0
    when_left = None

    def __init__(
        self, connection: Connection, version: int, correlation_id: int, acks: int
    ) -> None:
        self.connection = connection
        self.version = version
        self.correlation_id = correlation_id
        self.acks = acks
        self.started_s = connection.loop.turn_s
        self.is_ready = False
        connection.answers.append(self)

    @property
    def header(self) -> RequestHeader:  # type: ignore[override]  # made when somebody asks
        return RequestHeader(_PRODUCE, self.version, self.correlation_id, None)

    def client_left(self) -> None:
        """Nothing is waited for but the disk."""


def tell_that_client_left(answers: Iterable[Answer]) -> None:
    """Do not wait for anything on behalf of a client that has left."""
    for answer in list(answers):
        answer.client_left()


def take_ready(answers: deque[Answer], metrics: RequestMetrics) -> Sequence[Piece]:
    """Remove the answers at the head of the queue that are ready, at least one; their pieces."""
    answer = answers.popleft()
    now_s = monotonic()
    if not answers or not answers[0].is_ready:
        metrics.observe(answer.api_key, now_s - answer.started_s)
        return answer.pieces
    pieces = list(answer.pieces)
    latencies_s = [now_s - answer.started_s]
    while answers and answers[0].is_ready:
        answer = answers.popleft()
        pieces += answer.pieces
        latencies_s.append(now_s - answer.started_s)
    metrics.observe_all(_PRODUCE, latencies_s)  # only these are pipelined
    return pieces


def begin_answer(
    connection: Connection, data: memoryview, begin: int, end: int
) -> tuple[Answer, memoryview]:
    """The answer that the frame ``data[begin:end]`` will get, and the body of the request.

    Raises `FormatError` for a header that cannot be read or a version that is not served.
    """
    frame = data[begin:end]
    header, at = decode_request_header(frame)
    is_flexible = _IS_FLEXIBLE.get((header.api_key, header.api_version))
    if is_flexible is None:
        what = f"version {header.api_version} of API {header.api_key}"
        raise UnsupportedFormatError("request", what)
    answer = Answer(connection, header)
    return answer, frame[skip_header_tags(frame, at) if is_flexible else at :]
