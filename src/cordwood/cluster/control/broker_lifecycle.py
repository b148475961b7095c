"""The life of a broker among the controllers: registration, heartbeats, fencing, leaving.

    UNREGISTERED  --register-->  FENCED  --heartbeat-->  RUNNING  --leave()-->  LEAVING  -->  LEFT
                                   ^                        |
                                   +----- fenced again -----+

    FENCED    it follows the metadata and opens its logs. `unfence()` says that it is ready
    RUNNING   it may lead. The controllers fence it if they do not hear from it for a session
    LEAVING   the controllers move leaders away; `LEFT` once they say that it may stop

The machine decides what to send and what an answer means. The shell sends, measures the time, and
asks the machine again. The broker itself counts as fenced once the time since it *sent* the last
heartbeat that was answered is longer than a session: an answer that took long to arrive proves
nothing about now.
"""

from collections.abc import Collection
from enum import Enum, auto
from typing import TYPE_CHECKING, Final
from uuid import UUID

from cordwood.cluster.control.membership import NO_EPOCH, UNSUPPORTED_FEATURES, Membership
from cordwood.cluster.image.metadata_image import MetadataImage
from cordwood.errors import ClusterMismatchError, RegistrationRefusedError
from cordwood.protocol.error_code import ErrorCode
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    from cordwood.protocol.schemas import control_messages as messages

REGISTRATION_PAUSE_S: Final = 0.5


class Phase(Enum):
    UNREGISTERED = auto()
    FENCED = auto()
    RUNNING = auto()
    LEAVING = auto()
    LEFT = auto()


class Heard(Enum):
    """What an answer means for the shell.

    GOOD            go on; the next heartbeat after the interval
    AGAIN           send again after a short pause
    NOT_CONTROLLER  the controller is not the active one any more: find the new one
    """

    GOOD = auto()
    AGAIN = auto()
    NOT_CONTROLLER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTimes:
    """`broker.heartbeat.interval.ms` and `broker.session.timeout.ms`, as on the controllers.

    `registration_s` is `initial.broker.registration.timeout.ms`.
    """

    heartbeat_s: float = 2.0
    session_s: float = 9.0
    registration_s: float = 60.0


class BrokerLifecycle:
    """One broker. For one thread, but `phase` and `epoch` may be read by any. Pure."""

    def __init__(self, member: Membership, times: SessionTimes) -> None:
        self._member = member
        self._times = times
        self.phase = Phase.UNREGISTERED
        self.epoch = NO_EPOCH
        self._wants_fence = True
        self._is_leaving = False
        self._offline: tuple[UUID, ...] = ()
        self._heard_s: float | None = None  # when the last answered heartbeat was sent
        self.is_caught_up = False

    # --- what the broker wants ---------------------------------------------------------------

    def unfence(self) -> None:
        """The broker is ready to lead and follow."""
        self._wants_fence = False

    def leave(self) -> None:
        """Begin a controlled shutdown."""
        self._is_leaving = True
        if self.phase in (Phase.RUNNING, Phase.FENCED):
            self.phase = Phase.LEAVING
        elif self.phase is Phase.UNREGISTERED:
            self.phase = Phase.LEFT

    def set_offline(self, directories: Collection[UUID]) -> None:
        """Data directories that have failed. The next heartbeat tells the controllers."""
        self._offline = tuple(sorted({*self._offline, *directories}, key=lambda each: each.int))

    # --- the state -----------------------------------------------------------------------------

    def is_fenced_by_silence(self, now_s: float) -> bool:
        """Whether others may lead now because the controllers have not been heard."""
        if self._heard_s is None:
            return True
        return now_s - self._heard_s > self._times.session_s

    # --- registration --------------------------------------------------------------------------

    def registration(self) -> "messages.BrokerRegistrationRequestDict":
        member = self._member
        return {
            "broker_id": member.node_id,
            "cluster_id": member.cluster_id,
            "incarnation_id": member.incarnation,
            "listeners": [
                {
                    "name": each.listener,
                    "host": each.host,
                    "port": each.port,
                    "security_protocol": each.security_protocol,
                }
                for each in member.endpoints
            ],
            "features": [
                {
                    "name": name,
                    "min_supported_version": versions.min,
                    "max_supported_version": versions.max,
                }
                for name, versions in sorted(member.features.items())
            ],
            "rack": member.rack,
            "log_dirs": sorted(member.directories, key=lambda each: each.int),
            "previous_broker_epoch": member.previous_epoch,
        }

    def registered(
        self, answer: "messages.BrokerRegistrationResponse", image: MetadataImage, sent_s: float
    ) -> Heard:
        """Raises `ClusterError` if the controllers will never accept this broker."""
        code = answer.error_code
        if code == ErrorCode.none:
            self.epoch = answer.broker_epoch
            self.phase = Phase.LEFT if self._is_leaving else Phase.FENCED
            self._heard_s = sent_s
            return Heard.GOOD
        if code == ErrorCode.inconsistent_cluster_id:
            raise ClusterMismatchError(self._member.cluster_id)
        if code == ErrorCode.unsupported_version:
            if not image.features:
                return Heard.AGAIN  # until the image can tell what is lacking
            raise RegistrationRefusedError(self._member.node_id, self._feature_refusal(image))
        if code in _REFUSALS:
            raise RegistrationRefusedError(self._member.node_id, _REFUSALS[ErrorCode(code)])
        return Heard.NOT_CONTROLLER if code == ErrorCode.not_controller else Heard.AGAIN

    def _feature_refusal(self, image: MetadataImage) -> str:
        """What the cluster has finalised and this broker lacks, and what to do."""
        lacking = [
            f"{name}={level}"
            for name, level in sorted(image.features.items())
            if not _is_within(self._member, name, level)
        ]
        found = ", ".join(lacking) or "a level that this broker does not know"
        advice = (
            "Switch them off (kafka-features.sh --bootstrap-controller ... downgrade "
            f"--feature NAME=0), or format a new cluster without them ("
            f"{' '.join(f'--feature {name}=0' for name in UNSUPPORTED_FEATURES)})"
        )
        if any(name not in UNSUPPORTED_FEATURES for name in _names(lacking)):
            advice = "Use a newer version of this broker, or downgrade these features"
        return f"the cluster has finalised {found}, which this broker does not have. {advice}"

    # --- heartbeats ----------------------------------------------------------------------------

    def heartbeat(self, image: MetadataImage) -> "messages.BrokerHeartbeatRequestDict":
        return {
            "broker_id": self._member.node_id,
            "broker_epoch": self.epoch,
            "current_metadata_offset": image.end - 1,
            "want_fence": self._wants_fence,
            "want_shut_down": self._is_leaving,
            "offline_log_dirs": self._offline,
        }

    def heard(self, answer: "messages.BrokerHeartbeatResponse", sent_s: float) -> Heard:
        """What the answer to a heartbeat changes. Raises `RegistrationRefusedError`."""
        code = answer.error_code
        if code == ErrorCode.not_controller:
            return Heard.NOT_CONTROLLER
        if code in _HEARTBEAT_REFUSALS:
            raise RegistrationRefusedError(
                self._member.node_id, _HEARTBEAT_REFUSALS[ErrorCode(code)]
            )
        if code:
            return Heard.AGAIN
        self._heard_s = sent_s
        self.is_caught_up = self.is_caught_up or answer.is_caught_up
        if self._is_leaving:
            if answer.should_shut_down:
                self.phase = Phase.LEFT
        else:
            self.phase = Phase.FENCED if answer.is_fenced else Phase.RUNNING
        return Heard.GOOD

    def next_pause_s(self) -> float:
        """How long to wait until the next heartbeat, after one was answered well.

        A broker that waits to be unfenced, or to leave, asks more often: each answer may let it
        go on.
        """
        is_waiting = self._is_leaving or (self.phase is Phase.FENCED and not self._wants_fence)
        return self._times.heartbeat_s / 10 if is_waiting else self._times.heartbeat_s


def _is_within(member: Membership, name: str, level: int) -> bool:
    versions = member.features.get(name)
    return versions is not None and versions.min <= level <= versions.max


def _names(found: list[str]) -> list[str]:
    return [each.partition("=")[0] for each in found]


_REFUSALS: Final = {
    ErrorCode.invalid_registration: (
        "its listeners or data directories are not acceptable; the log of the active controller "
        "says which"
    ),
    ErrorCode.cluster_authorization_failed: (
        "its principal may not do ClusterAction on the cluster; add it to super.users of the "
        "controllers"
    ),
    ErrorCode.invalid_request: (
        "the request is not acceptable; the log of the active controller says why"
    ),
}
_GONE: Final = (
    "its registration is not valid any more. Either it was unregistered: start it again if it is "
    "to join again. Or another broker with the same node.id has registered after it: each broker "
    "needs a node.id of its own"
)
_HEARTBEAT_REFUSALS: Final = {
    ErrorCode.stale_broker_epoch: _GONE,
    ErrorCode.broker_id_not_registered: _GONE,
    ErrorCode.cluster_authorization_failed: _REFUSALS[ErrorCode.cluster_authorization_failed],
}
