"""Requests to the active controller that are repeated until one answers or their time is over.

Every control request may be repeated: the controllers refuse what was made before, by epochs and
incarnations. A request whose answer was lost because the controller died is sent to the next one.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from cordwood.broker.cluster.control.control_quorum import Quorum, QuorumLink
from cordwood.broker.net.loop.event_loop import EventLoop, Timer
from cordwood.broker.net.outbound.outbound_call import OutboundAnswer, OutboundCall, OutboundResult
from cordwood.errors import BrokerUnreachableError, CordwoodError, FormatError
from cordwood.protocol.api_catalog import KNOWN_APIS, ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.message_codec import Fields
from cordwood.protocol.messages import decode_response
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)

REQUESTS_MAX: Final = 1_000
_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRequest:
    """One request. `when_done` gets the decoded answer and its version, or an error, once.

    `repeats_unknown`: repeat it even if it may have been carried out already. If not, an error is
    given as soon as the connection fails after the request was sent.
    """

    api: ApiKey
    version_min: int
    version_max: int
    encode: Callable[[int], bytes]
    when_done: Callable[["Fields | CordwoodError", int], None]
    timeout_s: float
    attempt_s: float = 10.0
    repeats_unknown: bool = True


@dataclass(slots=True)
class _Waiting:
    request: ControlRequest
    deadline_s: float
    was_sent: bool = False


class ControlRequests:
    """A queue of requests over one link. Belongs to the thread of the control loop."""

    def __init__(self, loop: EventLoop, quorum: Quorum, link: QuorumLink) -> None:
        self._loop = loop
        self._quorum = quorum
        self._link = link
        self._waiting: deque[_Waiting] = deque()
        self._out = 0
        self._timer: Timer | None = None
        self._is_stopped = False

    def send(self, request: ControlRequest) -> None:
        if self._is_stopped or len(self._waiting) + self._out >= REQUESTS_MAX:
            reason = "the broker stops" if self._is_stopped else f"{REQUESTS_MAX} requests wait"
            self._give_up(request, reason)
            return
        self._try(_Waiting(request, self._loop.now_s() + request.timeout_s))

    def leader_changed(self) -> None:
        """Another controller leads: what waits is sent to it. Nothing more comes from the old."""
        if not self._is_stopped:
            self._link.follow_leader()
            self._retry()

    def stop(self) -> None:
        """Forget everything; nobody is told."""
        self._is_stopped = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._link.close()

    def _try(self, waiting: _Waiting) -> None:
        left_s = waiting.deadline_s - self._loop.now_s()
        if left_s <= 0:
            self._give_up(waiting.request, "no controller answered in time")
            return
        address = self._quorum.leader()
        if address is None:
            self._wait(waiting)
            return
        request = waiting.request

        def encode(version: int) -> bytes:
            waiting.was_sent = True
            return request.encode(version)

        self._out += 1
        self._link.to(address).send(
            OutboundCall(
                api=request.api,
                version_min=request.version_min,
                version_max=request.version_max,
                encode=encode,
                when_done=partial(self._answered, waiting),
                timeout_s=min(left_s, request.attempt_s),
            )
        )

    def _answered(self, waiting: _Waiting, result: OutboundResult) -> None:
        self._out -= 1
        if self._is_stopped:
            return
        request = waiting.request
        if not isinstance(result, OutboundAnswer):
            if waiting.was_sent and not request.repeats_unknown:
                request.when_done(result, -1)
            else:
                self._wait(waiting)
            return
        try:
            answer = decode_response(request.api, result.version, result.body)
        except FormatError as error:
            request.when_done(error, result.version)
            return
        if mentions(answer, ErrorCode.not_controller):
            waiting.was_sent = False  # it was not carried out
            self._wait(waiting)
            return
        request.when_done(answer, result.version)

    def _wait(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        if self._timer is None:
            self._timer = self._loop.call_later(_PAUSE_S, self._retry)

    def _retry(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            self._try(each)

    def _give_up(self, request: ControlRequest, reason: str) -> None:
        error = BrokerUnreachableError(
            "the active controller", f"{reason} ({KNOWN_APIS[request.api].name})"
        )
        self._loop.call_soon(partial(request.when_done, error, -1))


def mentions(answer: object, code: ErrorCode) -> bool:
    """Whether any error code in an answer is `code`."""
    if isinstance(answer, Fields):
        return any(
            (name == "error_code" and value == code) or mentions(value, code)
            for name, value in zip(answer.names, answer, strict=True)
        )
    if isinstance(answer, tuple):
        return any(isinstance(each, Fields) and mentions(each, code) for each in answer)
    return False
