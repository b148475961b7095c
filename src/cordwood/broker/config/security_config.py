"""How a broker is protected: its listeners, access rules, quotas and audit log.

Keys of TLS and SASL, and some of the limits, can be set for one listener alone, with the prefix
``listener.name.`` and the name in lower case; keys of SASL also for one of its mechanisms:

    listener.name.external.ssl.keystore.location=/etc/cordwood/external.pem
    listener.name.external.scram-sha-256.connections.max.reauth.ms=1h
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from cordwood.broker.config.access_config import (
    ACCESS_KEYS,
    QUOTA_KEYS,
    AccessConfig,
    QuotaConfig,
)
from cordwood.broker.config.audit_config import AUDIT_KEYS, AuditConfig
from cordwood.broker.config.broker_config import ANY_ADDRESS, BROKER_KEYS, BrokerConfig
from cordwood.broker.config.cluster_config import ClusterConfig
from cordwood.broker.config.keyed_config import parse_keys, render_keys
from cordwood.broker.config.listeners import (
    Listener,
    SecurityProtocol,
    parse_listeners,
    parse_protocols,
    protocol_of,
)
from cordwood.broker.config.loopback import LOCALHOST, is_loopback
from cordwood.broker.config.sasl_config import MECHANISMS, SASL_KEYS, SaslConfig, SaslKeys
from cordwood.broker.config.tls_config import TLS_KEYS, TlsConfig
from cordwood.errors import ConfigError
from cordwood.log.rules.config_key import ConfigKey
from cordwood.quantities import INT32_MAX
from cordwood.value_class import dataclass, field

if TYPE_CHECKING:
    from cordwood.broker.config.peer_security import OutboundWay, PeerSecurity

T = TypeVar("T")

LISTENER_PREFIX: Final = "listener.name."
SECURITY_KEYS: Final[tuple[ConfigKey, ...]] = (
    *TLS_KEYS,
    *SASL_KEYS,
    *ACCESS_KEYS,
    *QUOTA_KEYS,
    *AUDIT_KEYS,
)
_LIMIT_KEYS: Final = frozenset({"max.connections", "max.connection.creation.rate"})
_SASL_NAMES: Final = frozenset(key.name for key in SASL_KEYS)
_OF_ONE_LISTENER: Final[Mapping[str, ConfigKey]] = {
    key.name: key
    for key in (*TLS_KEYS, *SASL_KEYS, *(key for key in BROKER_KEYS if key.name in _LIMIT_KEYS))
}
_KEYS_BY_NAME: Final = {key.name: key for key in SECURITY_KEYS}
_OUTBOUND_KEYS: Final = tuple(
    key
    for key in SASL_KEYS
    if key.name in {"sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """One listener. `tls` and `sasl` are there if its protocol has them.

    `advertised` is what clients connect to; its port may be 0, which is the port that is listened
    on. `is_local`: only programs on this machine can connect. The acceptor checks it again when it
    knows the address.
    """

    listener: Listener
    advertised: Listener
    is_local: bool = False
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: TlsConfig | None = None
    sasl: SaslConfig | None = None
    max_connections: int = INT32_MAX
    max_connection_creation_rate: int = INT32_MAX

    @property
    def name(self) -> str:
        return self.listener.name

    @property
    def is_authenticated(self) -> bool:
        """Every client has proved who it is before its first request."""
        return self.sasl is not None or (
            self.tls is not None and self.tls.ssl_client_auth == "required"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """Validated on construction, except for the files it names.

    `peers` is how a member of a cluster connects to brokers and controllers; else it is None.
    """

    listeners: tuple[ListenerConfig, ...]
    access: AccessConfig = field(default_factory=AccessConfig)
    quotas: QuotaConfig = field(default_factory=QuotaConfig)
    audit: AuditConfig = field(default_factory=AuditConfig)
    peers: "PeerSecurity | None" = None

    @classmethod
    def assemble(
        cls,
        broker: BrokerConfig,
        values: Mapping[str, object] | None = None,
        cluster: ClusterConfig | None = None,
    ) -> "SecurityConfig":
        """The protection that `values` describe: `SECURITY_KEYS`, and keys of single listeners.

        A member of a cluster may also have keys of the listener of the controllers.
        """
        values = values or {}
        common = {name: raw for name, raw in values.items() if name in _KEYS_BY_NAME}
        own = [_OwnKey.parse(name, raw) for name, raw in values.items() if name not in common]
        addresses = _addresses(broker)
        known = {listener.name for listener, _, _ in addresses}
        if cluster is not None and cluster.is_member:
            known.add(_controller_listener(broker))
        for key in own:
            if key.listener not in known:
                raise ConfigError(
                    key.text,
                    key.raw,
                    f"there is no listener {key.listener}; there is {', '.join(sorted(known))}",
                )
        listeners = tuple(
            _listener(listener, advertised, protocol, common, own)
            for listener, advertised, protocol in addresses
        )
        return cls(
            listeners=listeners,
            access=parse_keys(AccessConfig(), _only(ACCESS_KEYS, common)),
            quotas=parse_keys(QuotaConfig(), _only(QUOTA_KEYS, common)),
            audit=parse_keys(AuditConfig(), _only(AUDIT_KEYS, common)),
            peers=_peers(broker, cluster, listeners, common, own),
        )

    @property
    def insecure_listeners(self) -> tuple[ListenerConfig, ...]:
        """Those that other machines reach, and whose clients do not authenticate."""
        return tuple(
            each for each in self.listeners if not (each.is_local or each.is_authenticated)
        )

    def effective(self) -> dict[str, str]:
        """The keys of the whole broker that are held here, as text."""
        return {**render_keys(self.access), **render_keys(self.quotas), **render_keys(self.audit)}


def refuse_insecure_listeners(broker: BrokerConfig, security: SecurityConfig) -> None:
    """Raise `ConfigError` if a listener lets everybody in, and nobody has allowed that."""
    for each in security.insecure_listeners:
        if not broker.insecure_listeners_allowed:
            if each.listener.host.lower() == LOCALHOST:
                raise ConfigError(
                    "listeners",
                    each.listener,
                    "this machine does not know localhost as a loopback address alone, so other "
                    "machines might connect, and clients of this listener do not authenticate; "
                    "write 127.0.0.1 instead, or correct /etc/hosts",
                )
            raise ConfigError(
                "listeners",
                each.listener,
                "every machine that reaches this address could read, write and delete everything, "
                "because clients of this listener do not authenticate. Choose one: protect it "
                "(`cordwood serve --secure` sets up TLS and passwords); listen on this machine "
                "only (--host 127.0.0.1); or allow it on a network that you trust (--insecure, or "
                "insecure.listeners.allowed=true)",
            )


class _OwnKey(NamedTuple):
    """A key of one listener, or of one mechanism of it."""

    text: str  # as it was written
    listener: str
    mechanism: str | None
    name: str
    raw: object

    @classmethod
    def parse(cls, text: str, raw: object) -> "_OwnKey":
        if not text.startswith(LISTENER_PREFIX):
            raise ConfigError(text, raw, "is not a key of security")
        listener, dot, rest = text.removeprefix(LISTENER_PREFIX).partition(".")
        mechanism = None
        for known in MECHANISMS:
            # An environment variable has no dashes: scram.sha.256 is accepted, too.
            for written in (known.lower(), known.lower().replace("-", ".")):
                if rest.lower().startswith(written + "."):
                    mechanism, rest = known, rest[len(written) + 1 :]
        names = _OF_ONE_LISTENER if mechanism is None else _SASL_NAMES
        if not (listener and dot and rest in names):
            raise ConfigError(
                text,
                raw,
                f"unknown key of a listener; write {LISTENER_PREFIX}NAME.KEY, where KEY is one of "
                "ssl.*, sasl.*, connections.max.reauth.ms, max.connections and "
                "max.connection.creation.rate",
            )
        return cls(text, listener.upper(), mechanism, rest, raw)


def check_listener_key(name: str, raw: object) -> ConfigKey:
    """The key that ``listener.name.x.key`` means. Raises `ConfigError`."""
    return _OF_ONE_LISTENER[_OwnKey.parse(name, raw).name]


def _addresses(broker: BrokerConfig) -> list[tuple[Listener, Listener, SecurityProtocol]]:
    """Each listener, what clients connect to, and its protocol."""
    controllers = frozenset(name.upper() for name in broker.controller_listener_names)
    protocols = _rule(
        "listener.security.protocol.map", broker.listener_security_protocol_map, parse_protocols
    )
    if broker.listeners is None:
        listeners: tuple[Listener, ...] = (
            Listener(SecurityProtocol.PLAINTEXT, broker.host, broker.port),
        )
    else:
        listeners = _rule(
            "listeners",
            broker.listeners,
            lambda text: parse_listeners(text, controllers=controllers),
        )
    advertised = {listener.name: listener for listener in listeners}
    if broker.advertised_listeners is not None:
        named = _rule(
            "advertised.listeners",
            broker.advertised_listeners,
            lambda text: parse_listeners(text, controllers=controllers),
        )
        for listener in named:
            if listener.name not in advertised:
                raise ConfigError(
                    "advertised.listeners", str(listener), "listeners has no listener of that name"
                )
            if listener.host in ANY_ADDRESS:
                raise ConfigError(
                    "advertised.listeners", str(listener), "clients cannot connect to that address"
                )
            advertised[listener.name] = listener
    elif broker.advertised_host is not None or broker.advertised_port is not None:
        if len(listeners) > 1:
            raise ConfigError(
                "advertised.host",
                broker.advertised_host or "",
                "is for one listener; use advertised.listeners",
            )
        (listener,) = listeners
        advertised[listener.name] = Listener(
            listener.name,
            broker.advertised_host or listener.host,
            broker.advertised_port or listener.port,
        )
    return [
        (
            listener,
            advertised[listener.name],
            _rule("listeners", listener.name, lambda name: protocol_of(name, protocols)),
        )
        for listener in listeners
    ]


def _listener(
    listener: Listener,
    advertised: Listener,
    protocol: SecurityProtocol,
    common: Mapping[str, object],
    own: list[_OwnKey],
) -> ListenerConfig:
    mine = [key for key in own if key.listener == listener.name]
    plain = {key.name: key.raw for key in mine if key.mechanism is None}
    try:
        values = {**common, **plain}
        tls = parse_keys(TlsConfig(), _only(TLS_KEYS, values))
        keys = parse_keys(SaslKeys(), _only(SASL_KEYS, values))
        by_mechanism = {
            mechanism: parse_keys(
                keys, {key.name: key.raw for key in mine if key.mechanism == mechanism}
            )
            for mechanism in keys.sasl_enabled_mechanisms
        }
        limits = parse_keys(
            BrokerConfig(max_connections=INT32_MAX),
            {name: raw for name, raw in plain.items() if name in _LIMIT_KEYS},
        )
    except ConfigError as error:
        if error.key in plain:
            name = f"{LISTENER_PREFIX}{listener.name.lower()}.{error.key}"
            raise ConfigError(name, error.value, error.reason) from None
        raise
    if protocol is SecurityProtocol.SASL_PLAINTEXT:
        _refuse_open_passwords(listener, keys)
    return ListenerConfig(
        listener=listener,
        advertised=advertised,
        is_local=is_loopback(listener.host),
        protocol=protocol,
        tls=tls if protocol.is_encrypted else None,
        sasl=SaslConfig(keys=keys, by_mechanism=by_mechanism) if protocol.has_sasl else None,
        max_connections=limits.max_connections,
        max_connection_creation_rate=limits.max_connection_creation_rate,
    )


def _peers(
    broker: BrokerConfig,
    cluster: ClusterConfig | None,
    listeners: tuple[ListenerConfig, ...],
    common: Mapping[str, object],
    own: list[_OwnKey],
) -> "PeerSecurity | None":
    """How a member connects to others: with the keys that listeners of these names have."""
    if cluster is None or not cluster.is_member:
        return None
    # Not at the top: a broker that is alone connects to nobody.
    from cordwood.broker.config.peer_security import OutboundWay, PeerSecurity

    def way(
        name: str, protocol: SecurityProtocol, key: str, mechanism: str | None
    ) -> "OutboundWay":
        mine = [each for each in own if each.listener == name]
        plain = {each.name: each.raw for each in mine if each.mechanism is None}
        exact = {each.name: each.raw for each in mine if each.mechanism == mechanism}
        values = {**common, **plain}
        sasl = parse_keys(SaslKeys(), _only(_OUTBOUND_KEYS, {**values, **exact}))
        return OutboundWay(
            listener=name,
            protocol=protocol,
            tls=parse_keys(TlsConfig(), _only(TLS_KEYS, values)),
            mechanism_key=key,
            mechanism=mechanism,
            jaas=sasl.sasl_jaas_config,
            token_url=sasl.sasl_oauthbearer_token_endpoint_url,
        )

    between = _inter_broker_listener(cluster, listeners)
    mechanism = cluster.sasl_mechanism_inter_broker_protocol
    if between.sasl is not None and mechanism not in (None, *between.sasl.mechanisms):
        raise ConfigError(
            "sasl.mechanism.inter.broker.protocol",
            mechanism,
            f"must be one of the sasl.enabled.mechanisms of {between.name}, which are "
            f"{', '.join(between.sasl.mechanisms)}: other brokers authenticate here likewise",
        )
    controllers = _controller_listener(broker)
    return PeerSecurity(
        listener=between.name,
        brokers=way(
            between.name, between.protocol, "sasl.mechanism.inter.broker.protocol", mechanism
        ).client_security(),
        controllers=way(
            controllers,
            _controller_protocol(broker, controllers),
            "sasl.mechanism.controller.protocol",
            cluster.sasl_mechanism_controller_protocol,
        ).client_security(),
    )


def _controller_listener(broker: BrokerConfig) -> str:
    """The first of ``controller.listener.names`` is the one that brokers use."""
    return next((name.upper() for name in broker.controller_listener_names), "CONTROLLER")


def _controller_protocol(broker: BrokerConfig, name: str) -> SecurityProtocol:
    key, text = "listener.security.protocol.map", broker.listener_security_protocol_map
    protocols = _rule(key, text, parse_protocols)
    if name == "CONTROLLER":  # needs no entry, as in Kafka's own example configuration
        protocols.setdefault(name, SecurityProtocol.PLAINTEXT)
    return _rule(key, text, lambda _text: protocol_of(name, protocols))


def _inter_broker_listener(
    cluster: ClusterConfig, listeners: tuple[ListenerConfig, ...]
) -> ListenerConfig:
    key, wanted = "inter.broker.listener.name", cluster.inter_broker_listener_name
    if wanted is None and cluster.security_inter_broker_protocol is not None:
        key = "security.inter.broker.protocol"
        wanted = cluster.security_inter_broker_protocol
    if wanted is None:
        return listeners[0]
    for each in listeners:
        if each.name == wanted.upper():
            return each
    names = ", ".join(each.name for each in listeners)
    raise ConfigError(key, wanted, f"no listener has this name; there is {names}")


def _refuse_open_passwords(listener: Listener, keys: SaslKeys) -> None:
    if "PLAIN" in keys.sasl_enabled_mechanisms and not keys.sasl_plain_insecure:
        raise ConfigError(
            "sasl.enabled.mechanisms",
            ",".join(keys.sasl_enabled_mechanisms),
            f"PLAIN sends passwords in clear text, and {listener.name} has no TLS; use SASL_SSL or "
            "SCRAM, or accept it with sasl.plain.insecure=true",
        )


def _only(keys: tuple[ConfigKey, ...], values: Mapping[str, object]) -> dict[str, object]:
    return {key.name: values[key.name] for key in keys if key.name in values}


def _rule(name: str, text: str, read: Callable[[str], T]) -> T:
    """What `read` makes of the value of a key, whose rule it may find broken."""
    try:
        return read(text)
    except ValueError as error:
        raise ConfigError(name, text, str(error)) from error
