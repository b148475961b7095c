"""The keeper of this node's processes, behind the port `ClusterControl`.

A thread reads the news of the keeper; another asks it. Both hand over to the control loop. The
keeper and its processes live and end together, so there is no session that could expire.
"""

import contextlib
import errno
import json
import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from uuid import UUID

from cordwood.broker.cluster.control.control_requests import ControlRequest
from cordwood.broker.cluster.control.keeper_link import (
    KEEPER,
    FrameKind,
    KeeperCalls,
    decode_records,
    receive_frame,
    send_frame,
)
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.cluster.cluster_control import IsrAnswer, IsrChange, IsrOutcome
from cordwood.cluster.image.metadata_image import NO_METADATA, MetadataImage
from cordwood.cluster.local.process_cluster import applied
from cordwood.errors import BrokerUnreachableError, CordwoodError
from cordwood.protocol.api_catalog import KNOWN_APIS, ApiKey
from cordwood.protocol.message_codec import Fields
from cordwood.protocol.messages import decode_response, encode_request
from cordwood.protocol.wire_values import INT16
from cordwood.quantities import Offset

if TYPE_CHECKING:
    from cordwood.protocol.schemas import control_messages as messages

logger = logging.getLogger(__name__)

_REQUESTS_MAX: Final = 1_000
_FRAME_HEAD: Final = 8  # size and correlation id of an answer
_PRODUCER_IDS_S: Final = 30.0


class KeeperEvents(NamedTuple):
    """Whom the control calls. The first three come in the control loop, the others in any thread.

    changed   there is a new image
    secured   users, access rules or quotas have changed
    pinged    the keeper asks whether this process works; calls the argument if it does
    stop      the keeper asks to end
    lost      the keeper is gone: end at once
    """

    changed: Callable[[], None]
    secured: Callable[[bytes], None]
    pinged: Callable[[Callable[[], None]], None]
    stop: Callable[[], None]
    lost: Callable[[], None]


class KeeperNews:
    """The connection over which the keeper tells. Owned by the process; any thread may call it.

    All methods raise `OSError` if the keeper is gone.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.has_become_ready = threading.Event()
        self._sending = threading.Lock()

    def progresses(self) -> None:
        """The start has come further."""
        self._send(FrameKind.WORKING)

    def is_open(self) -> None:
        """The store is open: from here on the keeper sends images."""
        self._send(FrameKind.OPENED)

    def is_ready(self) -> None:
        """What the first image assigns is open."""
        self.has_become_ready.set()
        self._send(FrameKind.READY)

    def works(self) -> None:
        """The loops turn."""
        self._send(FrameKind.PONG)

    def _send(self, kind: FrameKind) -> None:
        with self._sending:
            send_frame(self.connection, kind)


def begin_partition(calls: KeeperCalls, topic: str, topic_id: UUID, partition: int) -> None:
    """Have the keeper note that a partition begins. Durable on return; raises `OSError`."""
    body = json.dumps([topic, str(topic_id), partition]).encode()
    try:
        calls.ask(FrameKind.BEGIN, body)
    except BrokerUnreachableError as error:
        number, _, text = error.reason.partition(" ")
        code = int(number) if number.isdigit() else errno.EIO
        raise OSError(code, f"{KEEPER}: {text or error.reason}") from error


class LocalControl:
    """A `ClusterControl`. Belongs to the thread of `loop`; any thread may read its values."""

    def __init__(
        self,
        loop: EventLoop,
        *,
        epoch: int,
        news: KeeperNews,
        calls: KeeperCalls,
        events: KeeperEvents,
    ) -> None:
        self.image: MetadataImage = NO_METADATA
        self.broker_epoch = epoch
        self.is_fenced_by_silence = False
        self._loop = loop
        self._news = news
        self._events = events
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="cordwood-keeper")
        self._calls = calls
        self._waiting = 0
        self._late: list[tuple[Offset, Callable[[], None]]] = []
        self._is_stopped = False
        self.relay = self  # requests of clients take the same way

    def start(self) -> None:
        """Listen to the keeper."""
        threading.Thread(target=self._listen, name="cordwood-news", daemon=True).start()
        self._news.is_open()

    def stop(self) -> None:
        """Ask nothing any more. Safe to repeat."""
        self._is_stopped = True
        self._asking.shutdown(wait=False, cancel_futures=True)

    # --- news --------------------------------------------------------------------------------

    def _listen(self) -> None:
        while True:
            try:
                frame = receive_frame(self._news.connection)
            except OSError:
                frame = None
            if frame is None:
                self._events.lost()
                return
            if frame.kind is FrameKind.STOP:
                self._events.stop()
            elif frame.kind is FrameKind.RECORDS:
                self._loop.call_soon(partial(self._apply, frame.body))
            elif frame.kind is FrameKind.SECURITY:
                self._loop.call_soon(partial(self._events.secured, frame.body))
            elif frame.kind is FrameKind.PING:
                self._take_ping()

    def _take_ping(self) -> None:
        if self._is_stopped:  # the loops end; the keeper waits for the process in another way
            self._pong()
        else:
            self._loop.call_soon(partial(self._events.pinged, self._pong))

    def _pong(self) -> None:
        with contextlib.suppress(OSError):  # the keeper is gone: `_listen` notices
            self._news.works()

    def _apply(self, body: bytes) -> None:
        end, records = decode_records(body)
        self.image = applied(self.image, records, end)
        self._events.changed()
        due = [done for at, done in self._late if at <= end]
        self._late = [(at, done) for at, done in self._late if at > end]
        for done in due:
            done()

    # --- asking ------------------------------------------------------------------------------

    def send(self, request: ControlRequest) -> None:
        """Ask the keeper. The answer is given once the image has what the keeper decided."""
        if self._is_stopped or self._waiting >= _REQUESTS_MAX:
            reason = "the broker stops" if self._is_stopped else f"{_REQUESTS_MAX} requests wait"
            self._loop.call_soon(
                partial(request.when_done, BrokerUnreachableError(KEEPER, reason), -1)
            )
            return
        self._waiting += 1
        self._asking.submit(self._ask, request)

    def _ask(self, request: ControlRequest) -> None:
        answer: Fields | CordwoodError
        api, version, end = request.api, request.version_max, Offset(0)
        try:
            body = INT16.pack(api) + INT16.pack(version) + request.encode(version)
            end, frame = self._calls.ask(FrameKind.REQUEST, body)
            head = _FRAME_HEAD + KNOWN_APIS[api].is_flexible(version)
            answer = decode_response(api, version, memoryview(frame)[head:])
        except CordwoodError as error:
            answer = error
        self._loop.call_soon(partial(self._answered, request, answer, end))

    def _answered(
        self, request: ControlRequest, answer: Fields | CordwoodError, end: Offset
    ) -> None:
        self._waiting -= 1
        done = partial(request.when_done, answer, request.version_max)
        if end <= self.image.end:
            done()
        else:
            self._late.append((end, done))

    def allocate_producer_ids(
        self, when_done: Callable[["messages.AllocateProducerIdsResponse | CordwoodError"], None]
    ) -> None:
        """Ask for a block of producer ids."""

        def answered(answer: Fields | CordwoodError, _version: int) -> None:
            when_done(cast("messages.AllocateProducerIdsResponse | CordwoodError", answer))

        asked = {"broker_id": 0, "broker_epoch": self.broker_epoch}
        api = ApiKey.ALLOCATE_PRODUCER_IDS
        self.send(
            ControlRequest(
                api=api,
                version_min=0,
                version_max=0,
                encode=lambda version: encode_request(api, version, asked),
                when_done=answered,
                timeout_s=_PRODUCER_IDS_S,
            )
        )

    def change_isr(self, change: IsrChange, when_done: Callable[[IsrOutcome], None]) -> None:
        """Nobody asks: every partition has one replica."""
        self._loop.call_soon(partial(when_done, IsrOutcome(answer=IsrAnswer.REFUSED)))
