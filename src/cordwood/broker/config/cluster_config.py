"""The keys of a broker that is a member of a cluster: Kafka's names and defaults.

A broker is a member if ``process.roles`` is ``broker``. Controllers are Apache Kafka's. With any
other ``process.roles``, or none, it is alone, and these keys have no effect.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from cordwood.broker.config.keyed_config import check_keys, keys_of, parse_keys
from cordwood.broker.config.listeners import SecurityProtocol
from cordwood.errors import ConfigError
from cordwood.log.rules.config_key import ConfigKey, ConfigKind, config_field
from cordwood.quantities import INT32_MAX
from cordwood.value_class import dataclass

_SIZE, _DURATION, _INTEGER = ConfigKind.SIZE, ConfigKind.DURATION, ConfigKind.INTEGER
_TEXT, _LIST, _BOOLEAN = ConfigKind.TEXT, ConfigKind.LIST, ConfigKind.BOOLEAN

_MEMBER: Final = ("broker",)
_PORT_MAX: Final = 65535
# Kafka's default is GSSAPI, which is not available.
PEER_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
RACK_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class Address(NamedTuple):
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """Validated on construction. `is_member` is whether the broker belongs to a cluster."""

    process_roles: tuple[str, ...] = config_field(
        "process.roles", _LIST, "",
        "broker: a member of a cluster, whose controllers are Apache Kafka's. Empty, or with "
        "controller: a broker that is alone and needs no controller.",
        choices=("broker", "controller"),
    )  # fmt: skip
    controller_quorum_bootstrap_servers: tuple[str, ...] = config_field(
        "controller.quorum.bootstrap.servers", _LIST, "",
        "Addresses of controllers, host:port, separated by commas. One that answers is enough.",
    )  # fmt: skip
    controller_quorum_voters: tuple[str, ...] = config_field(
        "controller.quorum.voters", _LIST, "",
        "Controllers as id@host:port, separated by commas: the older way to name them.",
    )  # fmt: skip
    inter_broker_listener_name: str | None = config_field(
        "inter.broker.listener.name", _TEXT, "",
        "The listener that brokers use among each other; empty: the one that is named as "
        "security.inter.broker.protocol, else the first one.", none_text="",
    )  # fmt: skip
    security_inter_broker_protocol: str | None = config_field(
        "security.inter.broker.protocol", _TEXT, "",
        "The protocol of connections between brokers, whose listener has the same name. Use "
        "inter.broker.listener.name if the listener has another name.",
        none_text="",
    )  # fmt: skip
    sasl_mechanism_inter_broker_protocol: str | None = config_field(
        "sasl.mechanism.inter.broker.protocol", _TEXT, "",
        "How this broker authenticates to other brokers. Kafka's default is GSSAPI, which Cordwood "
        "does not have.", none_text="",
    )  # fmt: skip
    sasl_mechanism_controller_protocol: str | None = config_field(
        "sasl.mechanism.controller.protocol", _TEXT, "",
        "How this broker authenticates to the controllers.", none_text="",
    )  # fmt: skip
    broker_heartbeat_interval_ms: int = config_field(
        "broker.heartbeat.interval.ms", _DURATION, "2000",
        "How often the controllers hear from the broker.", minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    broker_session_timeout_ms: int = config_field(
        "broker.session.timeout.ms", _DURATION, "9000",
        "The broker leads no more if the controllers have not answered for this long. The same "
        "key of the controllers decides when they give its partitions to others.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    initial_broker_registration_timeout_ms: int = config_field(
        "initial.broker.registration.timeout.ms", _DURATION, "60000",
        "A broker that could not register for this long after its start ends.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    controlled_shutdown_enable: bool = config_field(
        "controlled.shutdown.enable", _BOOLEAN, "true",
        "Whether a stopping broker waits until other brokers lead its partitions.",
    )  # fmt: skip
    default_replication_factor: int = config_field(
        "default.replication.factor", _INTEGER, "1",
        "The number of replicas of a topic that is created because a client asks for it.",
        minimum=1, maximum=32767,
    )  # fmt: skip
    offsets_topic_replication_factor: int = config_field(
        "offsets.topic.replication.factor", _INTEGER, "3",
        "The number of replicas of __consumer_offsets when it is created.",
        minimum=1, maximum=32767,
    )  # fmt: skip
    transaction_state_log_replication_factor: int = config_field(
        "transaction.state.log.replication.factor", _INTEGER, "3",
        "The number of replicas of __transaction_state when it is created.",
        minimum=1, maximum=32767,
    )  # fmt: skip
    transaction_state_log_min_isr: int = config_field(
        "transaction.state.log.min.isr", _INTEGER, "2",
        "min.insync.replicas of __transaction_state when it is created.",
        minimum=1, maximum=32767,
    )  # fmt: skip
    replica_lag_time_max_ms: int = config_field(
        "replica.lag.time.max.ms", _DURATION, "30000",
        "A follower that was not caught up for this long is no longer in sync.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    replica_fetch_wait_max_ms: int = config_field(
        "replica.fetch.wait.max.ms", _DURATION, "500",
        "How long a leader may wait for new records before it answers a follower.",
        maximum=INT32_MAX,
    )  # fmt: skip
    replica_fetch_min_bytes: int = config_field(
        "replica.fetch.min.bytes", _SIZE, "1",
        "The size of records that a follower waits for.", maximum=INT32_MAX,
    )  # fmt: skip
    replica_fetch_max_bytes: int = config_field(
        "replica.fetch.max.bytes", _SIZE, "4194304",
        "The size of records of one partition in an answer to a follower; one batch may be larger. "
        "A follower syncs once for each answer, so it is four times Kafka's default.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    replica_fetch_response_max_bytes: int = config_field(
        "replica.fetch.response.max.bytes", _SIZE, "10485760",
        "The size of records in an answer to a follower; one batch may be larger.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    replica_fetch_backoff_ms: int = config_field(
        "replica.fetch.backoff.ms", _DURATION, "1000",
        "How long a follower waits after an error before it fetches again.",
        maximum=INT32_MAX,
    )  # fmt: skip

    replica_selector_class: str | None = config_field(
        "replica.selector.class", _TEXT, "",
        "RackAwareReplicaSelector: the leader sends consumers to an in-sync replica in their rack "
        "(client.rack, broker.rack). Empty: consumers read from the leader.",
        none_text="",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_keys(self)
        if not self.is_member:
            return
        _ = self.controllers  # each must be an address
        self._check_peers()
        if not (self.controller_quorum_bootstrap_servers or self.controller_quorum_voters):
            raise ConfigError(
                "process.roles",
                "broker",
                "makes this broker a member of a cluster, so "
                "controller.quorum.bootstrap.servers must name its controllers, host:port",
            )
        if self.broker_heartbeat_interval_ms * 2 > self.broker_session_timeout_ms:
            raise ConfigError(
                "broker.heartbeat.interval.ms",
                self.broker_heartbeat_interval_ms,
                f"must be at most half of broker.session.timeout.ms = "
                f"{self.broker_session_timeout_ms}, or one lost heartbeat ends the session",
            )

    def _check_peers(self) -> None:
        """Refuse what Kafka's brokers know and this one does not have: nothing is ignored."""
        choices: dict[str, tuple[str | None, tuple[str, ...]]] = {
            "security.inter.broker.protocol": (
                self.security_inter_broker_protocol,
                tuple(SecurityProtocol),
            ),
            "sasl.mechanism.inter.broker.protocol": (
                self.sasl_mechanism_inter_broker_protocol,
                PEER_MECHANISMS,
            ),
            "sasl.mechanism.controller.protocol": (
                self.sasl_mechanism_controller_protocol,
                PEER_MECHANISMS,
            ),
            "replica.selector.class": (self.replica_selector_class, (RACK_SELECTOR,)),
        }
        for key, (value, allowed) in choices.items():
            if value is not None and value not in allowed:
                raise ConfigError(key, value, f"must be {' or '.join(allowed)}")
        if self.inter_broker_listener_name and self.security_inter_broker_protocol:
            raise ConfigError(
                "security.inter.broker.protocol",
                self.security_inter_broker_protocol,
                "must not be set together with inter.broker.listener.name",
            )

    @classmethod
    def parse(cls, mapping: Mapping[str, object]) -> "ClusterConfig":
        """The config that `mapping` of keys to values describes. Raises `ConfigError`."""
        return parse_keys(cls(), mapping)

    @property
    def is_member(self) -> bool:
        """Whether the broker belongs to a cluster. If not, nothing else here has an effect."""
        return self.process_roles == _MEMBER

    @property
    def selects_by_rack(self) -> bool:
        """Whether consumers are sent to replicas in their rack."""
        return self.replica_selector_class == RACK_SELECTOR

    @property
    def controllers(self) -> list[Address]:
        """Where controllers are asked first."""
        found = [
            _address("controller.quorum.bootstrap.servers", text, text)
            for text in self.controller_quorum_bootstrap_servers
        ]
        for text in self.controller_quorum_voters:
            _, at, address = text.partition("@")
            found.append(_address("controller.quorum.voters", text, address if at else ""))
        return found


def _address(key: str, text: str, address: str) -> Address:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) <= _PORT_MAX:
        raise ConfigError(key, text, "must be host:port")
    return Address(host.strip("[]"), int(port))


CLUSTER_KEYS: Final[tuple[ConfigKey, ...]] = keys_of(ClusterConfig)
