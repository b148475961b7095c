"""What the control channel needs to know before it starts."""

from typing import NamedTuple

from cordwood.broker.security.peer_tls import PeerTls
from cordwood.cluster.control.broker_lifecycle import SessionTimes
from cordwood.cluster.control.membership import Membership
from cordwood.errors import ConfigError
from cordwood.security.clients.client_security import PLAINTEXT, ClientSecurity
from cordwood.value_class import dataclass, field

BOOTSTRAP_KEY = "controller.quorum.bootstrap.servers"
VOTERS_KEY = "controller.quorum.voters"


class ControllerAddress(NamedTuple):
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlConfig:
    """Validated on construction.

    bootstrap   controllers to begin with; the others are learnt from them
    listener    the first of `controller.listener.names`
    security    how to connect to that listener
    tls         the TLS of `security`, if it has TLS
    """

    member: Membership
    bootstrap: tuple[ControllerAddress, ...]
    listener: str = "CONTROLLER"
    security: ClientSecurity = PLAINTEXT
    tls: PeerTls | None = None
    times: SessionTimes = field(default_factory=SessionTimes)

    def __post_init__(self) -> None:
        if not self.bootstrap:
            raise ConfigError(BOOTSTRAP_KEY, "", "must name at least one controller")
        if self.times.heartbeat_s * 2 > self.times.session_s:
            raise ConfigError(
                "broker.heartbeat.interval.ms",
                round(self.times.heartbeat_s * 1000),
                "must be at most half of broker.session.timeout.ms, "
                f"which is {round(self.times.session_s * 1000)}",
            )


def parse_controllers(key: str, text: str) -> tuple[ControllerAddress, ...]:
    """The addresses in ``host:port,...`` or, for voters, in ``id@host:port,...``."""
    found: list[ControllerAddress] = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        host, separator, port = item.rpartition("@")[2].rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not separator or not host or not port.isdecimal() or not 0 < int(port) <= 65535:
            raise ConfigError(key, text, f"{item!r} is not host:port")
        found.append(ControllerAddress(host, int(port)))
    if not found:
        raise ConfigError(key, text, "must name at least one controller, as host:port")
    return tuple(found)
