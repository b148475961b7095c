"""Keeps the observer of the metadata log supplied: asks, waits, applies in portions."""

import logging
from collections.abc import Callable
from typing import Final

from cordwood.broker.cluster.control.control_config import ControllerAddress
from cordwood.broker.cluster.control.control_quorum import Quorum, QuorumLink
from cordwood.broker.net.loop.event_loop import EventLoop, Timer
from cordwood.broker.net.outbound.outbound_call import (
    OutboundAnswer,
    OutboundCall,
    OutboundResult,
    PeerMark,
)
from cordwood.cluster.control.metadata_observer import (
    MAX_WAIT_MS,
    MetadataObserver,
    Next,
    ObserverRequest,
)
from cordwood.cluster.image.image_change import ImageChange
from cordwood.errors import ClusterError, CordwoodError
from cordwood.protocol import replica_fetch
from cordwood.protocol.api_catalog import ApiKey

logger = logging.getLogger(__name__)

# Kafka's `controller.quorum.fetch.timeout.ms`: then another controller is asked who leads.
_TIMEOUT_S: Final = 2.0 + MAX_WAIT_MS / 1000
_PAUSE_S: Final = 0.1
_TOLD_MAX: Final = 16
_RECORDS_PER_TURN: Final = 250  # about 5 ms
# Brokers serve fetches, too, and answer that they do not know the topic of the metadata.
_CONTROLLER: Final = PeerMark(
    ApiKey.BROKER_REGISTRATION,
    "it is not a controller, but a broker or another listener; "
    "controller.quorum.bootstrap.servers must have addresses of controllers",
)


class MetadataFollower:
    """One request at a time. Belongs to the thread of the control loop.

    `when_changed` gets each change. `when_failed` is called at most once, with an error after
    which nothing more is applied.
    """

    def __init__(
        self,
        loop: EventLoop,
        quorum: Quorum,
        link: QuorumLink,
        observer: MetadataObserver,
        *,
        when_changed: Callable[[ImageChange], None],
        when_leader: Callable[[], None],
        when_failed: Callable[[CordwoodError], None],
    ) -> None:
        self._loop = loop
        self._quorum = quorum
        self._link = link
        self._observer = observer
        self._when_changed = when_changed
        self._when_leader = when_leader
        self._when_failed = when_failed
        self._known_leader = observer.leader
        self._timer: Timer | None = None
        self._is_stopped = False
        self._told: set[str] = set()  # what was wrong, since the metadata could be followed

    def start(self) -> None:
        self._ask()

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._link.close()

    def _ask(self) -> None:
        self._timer = None
        if self._is_stopped:
            return
        address = self._quorum.leader() or self._quorum.anyone()
        is_snapshot = self._observer.request(replica_fetch.VERSION_MAX).api is not ApiKey.FETCH
        asked: list[ObserverRequest] = []

        def encode(version: int) -> bytes:
            asked.append(self._observer.request(min(version, replica_fetch.VERSION_MAX)))
            return asked[0].body

        def answered(result: OutboundResult) -> None:
            if not self._is_stopped:
                self._answered(asked[0] if asked else None, address, result)

        self._link.to(address).send(
            OutboundCall(
                api=ApiKey.FETCH_SNAPSHOT if is_snapshot else ApiKey.FETCH,
                version_min=1 if is_snapshot else replica_fetch.VERSION_MIN,
                version_max=1 if is_snapshot else replica_fetch.VERSION_MAX,
                encode=encode,
                when_done=answered,
                timeout_s=_TIMEOUT_S,
                mark=_CONTROLLER,
            )
        )

    def _answered(
        self, request: ObserverRequest | None, address: ControllerAddress, result: OutboundResult
    ) -> None:
        if not isinstance(result, OutboundAnswer):
            self._tell_once("controller {}:{}: {}".format(*address, result))
            self._observer.leader_is_unreachable()
            self._ask_later()
            return
        assert request is not None
        asked = self._observer.leader
        try:
            following = self._observer.receive(request, result.body)
        except Exception as error:
            self._fail(error)
            return
        if self._observer.leader != self._known_leader:
            self._known_leader = self._observer.leader
            self._log_leader()
            self._when_leader()
        if following is Next.WAIT:
            self._ask_later()
            return
        if self._observer.leader == asked:  # else: only who leads, and that one may be the one gone
            self._told.clear()
        self._apply()

    def _log_leader(self) -> None:
        leader = self._known_leader
        if leader.leader_id < 0:
            logger.warning(
                "no controller leads the cluster in epoch %d yet: a majority of them must be "
                "reachable for each other",
                leader.leader_epoch,
            )
        else:
            logger.info(
                "controller %d leads the cluster in epoch %d", leader.leader_id, leader.leader_epoch
            )

    def _tell_once(self, text: str) -> None:
        """Log each reason once: a later one may be the one that helps."""
        if text not in self._told and len(self._told) < _TOLD_MAX:
            self._told.add(text)
            logger.warning("%s", text)

    def _apply(self) -> None:
        """Apply a portion, then let others have their turn."""
        if self._is_stopped:
            return
        try:
            change = self._observer.advance(_RECORDS_PER_TURN)
        except Exception as error:
            self._fail(error)
            return
        if change is not None:
            self._tell(change)
        if self._observer.has_work:
            self._loop.call_soon(self._apply)
        else:
            self._ask()

    def _ask_later(self) -> None:
        self._timer = self._loop.call_later(_PAUSE_S, self._ask)

    def _tell(self, change: ImageChange) -> None:
        try:
            self._when_changed(change)
        except Exception:  # a bug of ours: the next image has everything that this one has
            logger.exception("an image of the cluster could not be applied")

    def _fail(self, error: Exception) -> None:
        """Nothing more can be applied. A broker that went on would be deaf, and not know it."""
        self.stop()
        if not isinstance(error, CordwoodError):  # a bug of ours
            logger.exception("the metadata log could not be followed")
            error = ClusterError(f"the metadata log could not be followed: {error!r}")
        self._when_failed(error)
