"""The controllers of a KRaft cluster, behind the port `ClusterControl`.

Four links, so that nothing that takes long holds up a heartbeat:

    follower     Fetch and FetchSnapshot of the metadata log
    heartbeats   BrokerRegistration, BrokerHeartbeat
    requests     AlterPartition, AllocateProducerIds, AssignReplicasToDirs
    relay        what clients ask of the controllers through this broker
"""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from uuid import UUID

from cordwood.broker.cluster.control.control_config import ControlConfig
from cordwood.broker.cluster.control.control_follower import MetadataFollower
from cordwood.broker.cluster.control.control_heartbeats import Heartbeats
from cordwood.broker.cluster.control.control_quorum import Quorum, QuorumLink
from cordwood.broker.cluster.control.control_requests import ControlRequest, ControlRequests
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.cluster.cluster_control import IsrChange, IsrOutcome
from cordwood.cluster.control.broker_lifecycle import BrokerLifecycle, Phase
from cordwood.cluster.control.directory_assignments import DirectoryAssignments
from cordwood.cluster.control.isr_requests import IsrCall, IsrRequests
from cordwood.cluster.control.metadata_observer import MetadataObserver
from cordwood.cluster.image.image_change import ImageChange
from cordwood.cluster.image.metadata_image import MetadataImage
from cordwood.errors import CordwoodError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.message_codec import Fields
from cordwood.protocol.messages import encode_request

if TYPE_CHECKING:
    from cordwood.protocol.schemas import control_messages as messages

_ISR_TIMEOUT_S: Final = 10.0
_PLACES_PAUSE_S: Final = 1.0
_REQUEST_TIMEOUT_S: Final = 30.0


class ControlEvents(NamedTuple):
    """Whom the control channel calls, always in the control loop.

    changed     the image changed
    registered  the broker has this epoch now: sync it before anything relies on it
    phase       the broker was unfenced, was fenced by the controllers, or has left
    failed      the broker cannot stay in the cluster, and must stop; called at most once
    """

    changed: Callable[[ImageChange], None]
    registered: Callable[[int], None]
    phase: Callable[[Phase], None]
    failed: Callable[[CordwoodError], None]


class KraftControl:
    """A `ClusterControl`. Belongs to the thread of `loop`.

    Any thread may read `image`, `broker_epoch`, `phase` and `is_fenced_by_silence`: each is one
    value that is replaced.
    """

    def __init__(self, loop: EventLoop, config: ControlConfig, events: ControlEvents) -> None:
        self._loop = loop
        self._events = events
        self._node_id = config.member.node_id
        self._observer = MetadataObserver(
            node_id=self._node_id,
            cluster_id=config.member.cluster_id,
            directory_id=config.member.directories[0],
        )
        self._lifecycle = BrokerLifecycle(config.member, config.times)
        self._quorum = Quorum(config, self._observer)
        self._isr = IsrRequests(self._node_id)
        self._places = DirectoryAssignments(self._node_id)
        self._is_stopped = False
        self._when_left: Callable[[], None] | None = None
        self._follower = MetadataFollower(
            loop,
            self._quorum,
            self._link("metadata"),
            self._observer,
            when_changed=events.changed,
            when_leader=self._leader_changed,
            when_failed=self._failed,
        )
        self._heartbeats = Heartbeats(
            loop,
            self._quorum,
            self._link("heartbeat"),
            self._lifecycle,
            config.times,
            image=lambda: self._observer.image,
            when_registered=events.registered,
            when_phase=self._phase_changed,
            when_failed=self._failed,
        )
        self._requests = ControlRequests(loop, self._quorum, self._link("control"))
        self.relay = ControlRequests(loop, self._quorum, self._link("relay"))

    def _link(self, purpose: str) -> QuorumLink:
        name = f"cordwood-{self._node_id}-{purpose}"
        return QuorumLink(self._loop, self._quorum, client_id=name)

    # --- values --------------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        return self._observer.image

    @property
    def broker_epoch(self) -> int:
        return self._lifecycle.epoch

    @property
    def phase(self) -> Phase:
        return self._lifecycle.phase

    @property
    def leader_id(self) -> int:
        """The active controller; -1 if it is not known."""
        return self._quorum.leader_id

    @property
    def is_caught_up(self) -> bool:
        """Whether the image was as new as the controllers' at some time since registration."""
        return self._lifecycle.is_caught_up

    @property
    def is_fenced_by_silence(self) -> bool:
        return self._lifecycle.is_fenced_by_silence(self._loop.now_s())

    # --- the life of the broker ----------------------------------------------------------------

    def start(self) -> None:
        """Follow the metadata and register. The broker stays fenced until `unfence`."""
        self._follower.start()
        self._heartbeats.start()

    def unfence(self) -> None:
        """The broker has opened its logs and is ready to lead and follow."""
        self._lifecycle.unfence()
        self._heartbeats.hurry()

    def set_offline(self, directories: Collection[UUID]) -> None:
        """Tell the controllers that data directories have failed."""
        self._lifecycle.set_offline(directories)
        self._heartbeats.hurry()

    def leave(self, when_left: Callable[[], None]) -> None:
        """Begin a controlled shutdown; `when_left` is called once all leaders have moved.

        The caller decides how long it waits, and calls `stop`.
        """
        self._when_left = when_left
        self._lifecycle.leave()
        if self._lifecycle.phase is Phase.LEFT:
            self._loop.call_soon(self._tell_left)
        else:
            self._heartbeats.hurry()

    def stop(self) -> None:
        """Close all connections. Nobody is called any more. Safe to repeat."""
        self._is_stopped = True
        self._follower.stop()
        self._heartbeats.stop()
        self._requests.stop()
        self.relay.stop()

    def _phase_changed(self, phase: Phase) -> None:
        if phase is Phase.LEFT:
            self._tell_left()
        self._events.phase(phase)

    def _tell_left(self) -> None:
        when_left, self._when_left = self._when_left, None
        if when_left is not None:
            when_left()

    def _leader_changed(self) -> None:
        self._heartbeats.leader_changed()
        self._requests.leader_changed()
        self.relay.leader_changed()

    def _failed(self, error: CordwoodError) -> None:
        if not self._is_stopped:
            self.stop()
            self._events.failed(error)

    # --- requests ------------------------------------------------------------------------------

    def change_isr(self, change: IsrChange, when_done: Callable[[IsrOutcome], None]) -> None:
        if not self._is_stopped:
            self._isr.add(IsrCall(change, when_done))
            # After this turn of the loop, so that changes of one turn leave together.
            self._loop.call_soon(self._send_isr)

    def _send_isr(self) -> None:
        if self._is_stopped or not self._isr.has_work:
            return
        request = self._isr.next_request(self.broker_epoch)

        def answered(answer: Fields | CordwoodError, _version: int) -> None:
            if isinstance(answer, Fields):
                self._isr.answered(cast("messages.AlterPartitionResponse", answer))
            else:
                self._isr.failed()
            self._send_isr()

        self._request(ApiKey.ALTER_PARTITION, (2, 3), request, answered, _ISR_TIMEOUT_S)

    def allocate_producer_ids(
        self, when_done: Callable[["messages.AllocateProducerIdsResponse | CordwoodError"], None]
    ) -> None:
        """Ask for a block of producer ids. A block whose answer is lost is never used."""

        def answered(answer: Fields | CordwoodError, _version: int) -> None:
            when_done(cast("messages.AllocateProducerIdsResponse | CordwoodError", answer))

        request: messages.AllocateProducerIdsRequestDict = {
            "broker_id": self._node_id,
            "broker_epoch": self.broker_epoch,
        }
        self._request(ApiKey.ALLOCATE_PRODUCER_IDS, (0, 0), request, answered, _REQUEST_TIMEOUT_S)

    def assign_directory(self, topic_id: UUID, partition: int, directory_id: UUID) -> None:
        """Tell the controllers which data directory has a replica, until they have confirmed it.

        Only a broker with several directories has to.
        """
        self._places.add(topic_id, partition, directory_id)
        # After this turn of the loop, so that replicas of one turn are told together.
        self._loop.call_soon(self._send_places)

    def forget_directory(self, topic_id: UUID, partition: int) -> None:
        """The replica is not here any more."""
        self._places.forget(topic_id, partition)

    def _send_places(self) -> None:
        if self._is_stopped or not self._places.has_work:
            return

        def answered(answer: Fields | CordwoodError, _version: int) -> None:
            if isinstance(answer, Fields):
                is_done = self._places.answered(
                    cast("messages.AssignReplicasToDirsResponse", answer)
                )
            else:
                self._places.failed()
                is_done = False
            self._loop.call_later(0.0 if is_done else _PLACES_PAUSE_S, self._send_places)

        request = self._places.next_request(self.broker_epoch)
        self._request(ApiKey.ASSIGN_REPLICAS_TO_DIRS, (0, 0), request, answered, _REQUEST_TIMEOUT_S)

    def _request(
        self,
        api: ApiKey,
        versions: tuple[int, int],
        request: Mapping[str, object],
        when_done: Callable[[Fields | CordwoodError, int], None],
        timeout_s: float,
    ) -> None:
        self._requests.send(
            ControlRequest(
                api=api,
                version_min=versions[0],
                version_max=versions[1],
                encode=lambda version: encode_request(api, version, request),
                when_done=when_done,
                timeout_s=timeout_s,
            )
        )
