"""What a console is told when it starts."""

from ipaddress import ip_address
from typing import Final

from cordwood.console.decoding.masking import Masking
from cordwood.errors import ConfigError
from cordwood.remote.remote_cluster import Address
from cordwood.security.clients.client_security import ClientSecurity
from cordwood.value_class import dataclass, field

DEFAULT_PORT: Final = 9480
_INTERVAL_S_MIN: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """Validated on construction, except for the files it names.

    directories     the data directories of a store; none: only a broker is asked
    addresses       brokers of one cluster; none: only files are read
    security        how the console itself connects to the broker
    needs_login     viewers log in as users of the broker, whose access rules decide
    hosts           names under which the console answers, besides addresses of this machine
    allows_changes  whether topics and groups can be changed
    interval_s      how often the store is looked at, for all viewers together
    tls_*           files of the certificate with which the console itself is served
    """

    directories: tuple[str, ...] = ()
    addresses: tuple[Address, ...] = ()
    security: ClientSecurity | None = None
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    hosts: frozenset[str] = frozenset()
    needs_login: bool = False
    allows_changes: bool = False
    interval_s: float = 2.0
    masking: Masking = field(default_factory=Masking)
    tls_certificate: str | None = None
    tls_key: str | None = None

    def __post_init__(self) -> None:
        if not self.directories and not self.addresses:
            raise ConfigError("--at", "", "must name a data directory or a broker")
        if not 0 <= self.port <= 65_535:
            raise ConfigError("--port", self.port, "must be 0 to 65535; 0 takes any free port")
        if self.interval_s < _INTERVAL_S_MIN:
            raise ConfigError("--interval", self.interval_s, f"must be at least {_INTERVAL_S_MIN}")
        if self.needs_login and not self.addresses:
            raise ConfigError(
                "--login", "true", "needs a broker, whose users log in: --broker HOST:PORT"
            )
        if self.needs_login and not self.directories and not self.has_own_access:
            raise ConfigError(
                "--login",
                "true",
                "needs data directories (--at DIR --broker HOST:PORT), or a user of the console's "
                "own: --user NAME",
            )
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigError("--tls-certificate", self.tls_certificate, "needs --tls-key, too")
        if not self.is_loopback:
            self._check_protection()

    def _check_protection(self) -> None:
        if not self.needs_login:
            raise ConfigError(
                "--host",
                self.host,
                "other machines reach this address: add --login, so that viewers log in as users "
                "of the broker",
            )
        if self.tls_certificate is None:
            raise ConfigError(
                "--host",
                self.host,
                "passwords would cross the network in clear text: add --tls-certificate and "
                "--tls-key",
            )

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def has_own_access(self) -> bool:
        """Whether the console itself may ask the broker, not only its viewers."""
        has_user = self.security is not None and self.security.protocol.has_sasl
        return bool(self.addresses) and (has_user or not self.needs_login)

    @property
    def scheme(self) -> str:
        return "http" if self.tls_certificate is None else "https"

    @property
    def names(self) -> frozenset[str]:
        """The names that a request may be for."""
        return frozenset({"localhost", self.host.lower(), *(h.lower() for h in self.hosts)})
