"""Registers this broker and sends its heartbeats, over a link that nothing else uses.

A heartbeat must not wait behind a request that takes long: silence costs a broker its leaders.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from cordwood.broker.cluster.control.control_quorum import Quorum, QuorumLink
from cordwood.broker.net.loop.event_loop import EventLoop, Timer
from cordwood.broker.net.outbound.outbound_call import OutboundAnswer, OutboundCall, OutboundResult
from cordwood.cluster.control.broker_lifecycle import (
    REGISTRATION_PAUSE_S,
    BrokerLifecycle,
    Heard,
    Phase,
    SessionTimes,
)
from cordwood.cluster.control.membership import NO_EPOCH
from cordwood.cluster.image.metadata_image import MetadataImage
from cordwood.errors import ClusterError, CordwoodError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import decode_response, encode_request

if TYPE_CHECKING:
    from cordwood.protocol.schemas import control_messages as messages

logger = logging.getLogger(__name__)

_PAUSE_S: Final = 0.1
_REGISTRATION_VERSIONS: Final = (4, 4)  # features whose oldest level is 0 need 4
_HEARTBEAT_VERSIONS: Final = (1, 2)


class Heartbeats:
    """One request at a time, until the broker has left. Belongs to the thread of the control loop.

    when_registered  the broker has an epoch
    when_phase       it was fenced, unfenced, or has left
    when_failed      the controllers will not have it; called at most once
    """

    def __init__(
        self,
        loop: EventLoop,
        quorum: Quorum,
        link: QuorumLink,
        lifecycle: BrokerLifecycle,
        times: SessionTimes,
        *,
        image: Callable[[], MetadataImage],
        when_registered: Callable[[int], None],
        when_phase: Callable[[Phase], None],
        when_failed: Callable[[CordwoodError], None],
    ) -> None:
        self._loop = loop
        self._quorum = quorum
        self._link = link
        self._lifecycle = lifecycle
        self._attempt_s = max(times.session_s / 3, 0.5)
        self._session_s = times.session_s
        self._registration_s = times.registration_s
        self._image = image
        self._when_registered = when_registered
        self._when_phase = when_phase
        self._when_failed = when_failed
        self._timer: Timer | None = None
        self._registration: Timer | None = None  # until the broker has registered
        self._is_out = False
        self._is_stopped = False
        self._told: str | None = None

    def start(self) -> None:
        self._registration = self._loop.call_later(self._registration_s, self._give_up)
        self._send()

    def _give_up(self) -> None:
        """It could not register for long: whoever started it must look, as with Kafka."""
        self._registration = None
        if self._is_stopped or self._lifecycle.epoch != NO_EPOCH:
            return
        self.stop()
        reason = self._told or "none of them leads, or none is reached; the log says which and why"
        self._when_failed(
            ClusterError(
                f"the controllers did not register this broker in {self._registration_s:g} s "
                f"(initial.broker.registration.timeout.ms): {reason}"
            )
        )

    def hurry(self) -> None:
        """Something changed: send the next heartbeat now, not after the pause."""
        if not self._is_out and not self._is_stopped:
            self._send()

    def leader_changed(self) -> None:
        """Another controller leads: speak to that one now."""
        self._link.follow_leader()
        self.hurry()

    def stop(self) -> None:
        self._is_stopped = True
        for timer in (self._timer, self._registration):
            if timer is not None:
                timer.cancel()
        self._link.close()

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_stopped or self._is_out or self._lifecycle.phase is Phase.LEFT:
            return
        address = self._quorum.leader()
        if address is None:
            self._send_later(_PAUSE_S)
            return
        is_registered = self._lifecycle.epoch != NO_EPOCH
        api = ApiKey.BROKER_HEARTBEAT if is_registered else ApiKey.BROKER_REGISTRATION
        versions = _HEARTBEAT_VERSIONS if is_registered else _REGISTRATION_VERSIONS
        sent_s = self._loop.now_s()

        def encode(version: int) -> bytes:
            nonlocal sent_s
            sent_s = self._loop.now_s()
            request = (
                self._lifecycle.heartbeat(self._image())
                if is_registered
                else self._lifecycle.registration()
            )
            return encode_request(api, version, request)

        def answered(result: OutboundResult) -> None:
            self._is_out = False
            if not self._is_stopped:
                self._send_later(_PAUSE_S)  # the next one comes whatever goes wrong with this one
                self._answered(api, result, sent_s)

        self._is_out = True
        self._link.to(address).send(
            OutboundCall(
                api=api,
                version_min=versions[0],
                version_max=versions[1],
                encode=encode,
                when_done=answered,
                timeout_s=self._attempt_s,
            )
        )

    def _answered(self, api: ApiKey, result: OutboundResult, sent_s: float) -> None:
        if not isinstance(result, OutboundAnswer):
            self._tell(str(result))
            self._send_later(_PAUSE_S)
            return
        before = self._lifecycle.phase
        try:
            answer: Any = decode_response(api, result.version, result.body)
            heard = self._hear(api, answer, sent_s)
        except CordwoodError as error:
            self.stop()
            self._when_failed(error)
            return
        if heard is Heard.GOOD:
            self._told = None
        else:
            self._tell(self._why_not(api, answer.error_code))
        if self._lifecycle.phase is not before:
            self._when_phase(self._lifecycle.phase)
        if api is ApiKey.BROKER_REGISTRATION:
            self._send_later(0.0 if heard is Heard.GOOD else REGISTRATION_PAUSE_S)
        else:
            self._send_later(self._lifecycle.next_pause_s() if heard is Heard.GOOD else _PAUSE_S)

    def _hear(self, api: ApiKey, answer: object, sent_s: float) -> Heard:
        if api is ApiKey.BROKER_HEARTBEAT:
            heartbeat = cast("messages.BrokerHeartbeatResponse", answer)
            return self._lifecycle.heard(heartbeat, sent_s)
        registration = cast("messages.BrokerRegistrationResponse", answer)
        heard = self._lifecycle.registered(registration, self._image(), sent_s)
        if heard is Heard.GOOD:
            logger.info("registered with the controllers, epoch %d", self._lifecycle.epoch)
            self._when_registered(self._lifecycle.epoch)
        return heard

    def _send_later(self, pause_s: float) -> None:
        if self._is_stopped or self._lifecycle.phase is Phase.LEFT:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(pause_s, self._send)

    def _why_not(self, api: ApiKey, code: int) -> str:
        if code == ErrorCode.duplicate_broker_registration:
            return (
                "the session of its last life, or of another broker with this node.id, has not "
                f"ended. It registers when that ends: {self._session_s:g} s "
                "(broker.session.timeout.ms) after the last heartbeat"
            )
        return f"{api.name}: {_named(code)}"

    def _tell(self, reason: str) -> None:
        """Say it once, not with every attempt."""
        if reason != self._told:
            self._told = reason
            logger.warning("the active controller does not accept this broker yet: %s", reason)


def _named(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
