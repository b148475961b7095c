"""Every configuration key of a broker: Kafka's with Kafka's names, and our own.

Each field below is one key and the only definition of it, as in `log/rules/topic_config.py`:
``fetch.max.bytes`` is the field `fetch_max_bytes`. Keys of the store are in `store_config`;
defaults of topics, under names such as ``log.retention.ms``, are in `topic_defaults`.

If a default is not Kafka's, the documentation of the key says so. None means "not set" and is
written as -1 or as empty text.
"""

from collections.abc import Mapping
from typing import Any, Final

from cordwood.archive.objects.object_urls import check_url
from cordwood.errors import ConfigError
from cordwood.log.rules.config_key import ConfigKey, ConfigKind, ConfigValue, config_field
from cordwood.quantities import INT32_MAX, INT64_MAX
from cordwood.value_class import dataclass, fields, replace

_SIZE, _DURATION, _INTEGER = ConfigKind.SIZE, ConfigKind.DURATION, ConfigKind.INTEGER
_BOOLEAN, _TEXT, _LIST = ConfigKind.BOOLEAN, ConfigKind.TEXT, ConfigKind.LIST

_PORT_MAX: Final = 65535
_HOST: Final = r"[A-Za-z0-9._:%-]{1,255}"
_HOST_RULE: Final = "must be a host name or an IP address, without port or scheme"
_PORT: Final[dict[str, Any]] = {"maximum": _PORT_MAX}
_OPTIONAL_PORT: Final[dict[str, Any]] = {"maximum": _PORT_MAX, "none_text": "-1"}

ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::", "[::]"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Validated on construction: holding one means every value in it is usable."""

    # --- identity and address -----------------------------------------------------------------
    node_id: int = config_field(
        "node.id", _INTEGER, "1", "The id of this broker.",
        maximum=INT32_MAX,
    )  # fmt: skip
    broker_rack: str | None = config_field(
        "broker.rack", _TEXT, "",
        "The rack or zone of this broker, reported to clients.", none_text="",
    )  # fmt: skip
    host: str = config_field(
        "host", _TEXT, "127.0.0.1",
        "The address to listen on; 0.0.0.0: all addresses of this machine. In Kafka: listeners.",
        pattern=_HOST, requirement=_HOST_RULE, since_cordwood=True,
    )  # fmt: skip
    port: int = config_field(
        "port", _INTEGER, "9092", "The port to listen on; 0: any free port.",
        since_cordwood=True, **_PORT,
    )  # fmt: skip
    advertised_host: str | None = config_field(
        "advertised.host", _TEXT, "",
        "The host that clients connect to; empty: host, or the name of this machine if host is "
        "0.0.0.0. In Kafka: advertised.listeners.",
        pattern=_HOST, requirement=_HOST_RULE, none_text="", since_cordwood=True,
    )  # fmt: skip
    advertised_port: int | None = config_field(
        "advertised.port", _INTEGER, "-1",
        "The port that clients connect to; -1: port.",
        minimum=1, since_cordwood=True, **_OPTIONAL_PORT,
    )  # fmt: skip

    listeners: str | None = config_field(
        "listeners", _TEXT, "",
        "What to listen on, NAME://host:port, separated by commas; empty: PLAINTEXT at host and "
        "port.",
        none_text="",
    )  # fmt: skip
    advertised_listeners: str | None = config_field(
        "advertised.listeners", _TEXT, "",
        "What clients connect to, for the same names; empty: what is listened on.", none_text="",
    )  # fmt: skip
    listener_security_protocol_map: str = config_field(
        "listener.security.protocol.map", _TEXT,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "How each listener is protected, NAME:PROTOCOL, separated by commas.",
    )  # fmt: skip
    controller_listener_names: tuple[str, ...] = config_field(
        "controller.listener.names", _LIST, "CONTROLLER",
        "Names of listeners of controllers. Those in listeners are ignored. In a cluster the first "
        "one says how the controllers are connected to: listener.security.protocol.map.",
    )  # fmt: skip

    insecure_listeners_allowed: bool = config_field(
        "insecure.listeners.allowed", _BOOLEAN, "false",
        "Whether a listener may be reached from other machines although its clients do not "
        "authenticate. For networks where everybody may read, write and delete everything.",
        since_cordwood=True,
    )  # fmt: skip

    # --- connections and requests ------------------------------------------------------------
    socket_request_max_bytes: int = config_field(
        "socket.request.max.bytes", _SIZE, "104857600",
        "The largest request that is accepted; a larger one closes the connection.",
        minimum=1024, maximum=INT32_MAX,
    )  # fmt: skip
    queued_max_request_bytes: int = config_field(
        "queued.max.request.bytes", _SIZE, "268435456",
        "The memory that requests of more than 128 KiB may hold together while they are received. "
        "It grows with what has arrived. When it is used up, no more is read of such requests, and "
        "one that arrives at less than 64 KiB/s is closed. Kafka's default is no limit.",
        minimum=1024,
    )  # fmt: skip
    max_connections: int = config_field(
        "max.connections", _INTEGER, "10000",
        "The maximum number of connections; further ones are closed at once. It can also be set "
        "for one listener. Kafka's default is no limit.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    max_connections_per_ip: int = config_field(
        "max.connections.per.ip", _INTEGER, str(INT32_MAX),
        "The maximum number of connections from one address; further ones are closed at once.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    max_connection_creation_rate: int = config_field(
        "max.connection.creation.rate", _INTEGER, str(INT32_MAX),
        "New connections per second; further ones wait. It can also be set for one listener.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    connections_max_idle_ms: int = config_field(
        "connections.max.idle.ms", _DURATION, "600000",
        "Connections without a request for this long are closed.",
        minimum=1,
    )  # fmt: skip
    socket_send_buffer_bytes: int | None = config_field(
        "socket.send.buffer.bytes", _SIZE, "-1",
        "SO_SNDBUF of connections; -1: chosen by the system. Kafka's default is 102400.",
        minimum=1024, maximum=INT32_MAX, none_text="-1",
    )  # fmt: skip
    socket_receive_buffer_bytes: int | None = config_field(
        "socket.receive.buffer.bytes", _SIZE, "-1",
        "SO_RCVBUF of connections; -1: chosen by the system. Kafka's default is 102400.",
        minimum=1024, maximum=INT32_MAX, none_text="-1",
    )  # fmt: skip
    socket_listen_backlog_size: int = config_field(
        "socket.listen.backlog.size", _INTEGER, "512",
        "The number of connections that may wait to be accepted. Kafka's default is 50.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    num_io_threads: int = config_field(
        "num.io.threads", _INTEGER, "8",
        "Threads for requests that may wait for the disk, other than produce and fetch.",
        minimum=1, maximum=256,
    )  # fmt: skip

    # --- topics ------------------------------------------------------------------------------
    num_partitions: int = config_field(
        "num.partitions", _INTEGER, "1",
        "The number of partitions of a topic if its creator does not specify it.",
        minimum=1, maximum=10_000,
    )  # fmt: skip
    auto_create_topics_enable: bool = config_field(
        "auto.create.topics.enable", _BOOLEAN, "true",
        "Whether a missing topic is created when a client asks for its metadata.",
    )  # fmt: skip
    auto_create_topics_max: int = config_field(
        "auto.create.topics.max", _INTEGER, "10000",
        "No topic is created in this way while there are so many topics or more.",
        maximum=INT32_MAX, since_cordwood=True,
    )  # fmt: skip
    delete_topic_enable: bool = config_field(
        "delete.topic.enable", _BOOLEAN, "true", "Whether clients may delete topics.",
    )  # fmt: skip
    max_request_partition_size_limit: int = config_field(
        "max.request.partition.size.limit", _INTEGER, "2000",
        "The maximum number of partitions in one DescribeTopicPartitions response.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip

    # --- fetch -------------------------------------------------------------------------------
    fetch_max_bytes: int = config_field(
        "fetch.max.bytes", _SIZE, "57671680",
        "The maximum size of the records in one Fetch response, unless a single batch is larger.",
        minimum=1024, maximum=INT32_MAX,
    )  # fmt: skip
    max_incremental_fetch_session_cache_slots: int = config_field(
        "max.incremental.fetch.session.cache.slots", _INTEGER, "1000",
        "The maximum number of incremental fetch sessions; 0: none.",
        maximum=INT32_MAX,
    )  # fmt: skip

    # --- groups ------------------------------------------------------------------------------
    group_min_session_timeout_ms: int = config_field(
        "group.min.session.timeout.ms", _DURATION, "6000",
        "The shortest session.timeout.ms that a member of a classic group may request.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    group_max_session_timeout_ms: int = config_field(
        "group.max.session.timeout.ms", _DURATION, "1800000",
        "The longest session.timeout.ms that a member of a classic group may request.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    group_initial_rebalance_delay_ms: int = config_field(
        "group.initial.rebalance.delay.ms", _DURATION, "0",
        "How long an empty classic group waits for more members before its first assignment. "
        "Kafka's default is 3000; its shipped server.properties has 0.",
        maximum=INT32_MAX,
    )  # fmt: skip
    group_max_size: int = config_field(
        "group.max.size", _INTEGER, str(INT32_MAX),
        "The maximum number of members of a classic group.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    group_consumer_heartbeat_interval_ms: int = config_field(
        "group.consumer.heartbeat.interval.ms", _DURATION, "5000",
        "How often members of a consumer group send heartbeats.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    group_consumer_session_timeout_ms: int = config_field(
        "group.consumer.session.timeout.ms", _DURATION, "45000",
        "A member of a consumer group without a heartbeat for this long is removed.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    group_consumer_min_heartbeat_interval_ms: int = config_field(
        "group.consumer.min.heartbeat.interval.ms", _DURATION, "5000",
        "The smallest heartbeat interval that can be set for a single consumer group.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    group_consumer_max_heartbeat_interval_ms: int = config_field(
        "group.consumer.max.heartbeat.interval.ms", _DURATION, "15000",
        "The largest heartbeat interval that can be set for a single consumer group.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    group_consumer_min_session_timeout_ms: int = config_field(
        "group.consumer.min.session.timeout.ms", _DURATION, "45000",
        "The shortest session timeout that can be set for a single consumer group.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    group_consumer_max_session_timeout_ms: int = config_field(
        "group.consumer.max.session.timeout.ms", _DURATION, "60000",
        "The longest session timeout that can be set for a single consumer group.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    group_consumer_max_size: int = config_field(
        "group.consumer.max.size", _INTEGER, str(INT32_MAX),
        "The maximum number of members of a consumer group.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    group_consumer_assignors: tuple[str, ...] = config_field(
        "group.consumer.assignors", _LIST, "uniform,range",
        "How partitions are assigned in consumer groups; the first, unless a member chooses.",
        choices=("uniform", "range"),
    )  # fmt: skip

    # --- committed offsets -------------------------------------------------------------------
    offsets_topic_num_partitions: int = config_field(
        "offsets.topic.num.partitions", _INTEGER, "1",
        "The number of partitions of __consumer_offsets when it is created. Kafka's default is 50; "
        "so is that of a member of a cluster, in which all brokers must have the same number.",
        minimum=1, maximum=10_000,
    )  # fmt: skip
    offsets_retention_minutes: int = config_field(
        "offsets.retention.minutes", _INTEGER, "10080",
        "The offsets of a group expire after the group was empty for this long.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    offsets_retention_check_interval_ms: int = config_field(
        "offsets.retention.check.interval.ms", _DURATION, "600000",
        "How often expired offsets are removed.",
        minimum=1,
    )  # fmt: skip
    offsets_commit_timeout_ms: int = config_field(
        "offsets.commit.timeout.ms", _DURATION, "5000",
        "A commit that is not durable after this long fails.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    offset_metadata_max_bytes: int = config_field(
        "offset.metadata.max.bytes", _SIZE, "4096",
        "The largest metadata that can be committed with an offset.",
        maximum=INT32_MAX,
    )  # fmt: skip

    # --- transactions ------------------------------------------------------------------------
    transaction_max_timeout_ms: int = config_field(
        "transaction.max.timeout.ms", _DURATION, "900000",
        "The longest timeout that a transactional producer may ask for. Flink's sink asks for one "
        "hour.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    transactional_id_expiration_ms: int = config_field(
        "transactional.id.expiration.ms", _DURATION, "604800000",
        "A transactional id that was not used for this long is forgotten.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = config_field(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", _DURATION, "10000",
        "How often transactions that exceed their timeout are aborted.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    transaction_remove_expired_transaction_cleanup_interval_ms: int = config_field(
        "transaction.remove.expired.transaction.cleanup.interval.ms", _DURATION, "3600000",
        "How often expired transactional ids are forgotten.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    transaction_partition_verification_enable: bool = config_field(
        "transaction.partition.verification.enable", _BOOLEAN, "true",
        "Refuse a produce into a partition that an older client did not add to its transaction.",
    )  # fmt: skip
    transaction_state_log_num_partitions: int = config_field(
        "transaction.state.log.num.partitions", _INTEGER, "1",
        "The number of partitions of __transaction_state when it is created. Kafka's default is "
        "50.",
        minimum=1, maximum=10_000,
    )  # fmt: skip
    transaction_state_log_segment_bytes: int = config_field(
        "transaction.state.log.segment.bytes", _SIZE, "104857600",
        "The segment size of __transaction_state when it is created.",
        minimum=1024 * 1024, maximum=INT32_MAX,
    )  # fmt: skip

    archive_url_prefixes: tuple[str, ...] = config_field(
        "archive.url.prefixes", _LIST, "",
        "The places below which clients may set archive.url of a topic, such as "
        "s3://bucket/archives; options in the query must be the same. Empty: clients cannot set "
        "it. The operator can always set it, with log.archive.url or in the data directory.",
        since_cordwood=True,
    )  # fmt: skip

    # --- operation ---------------------------------------------------------------------------
    telemetry_max_bytes: int = config_field(
        "telemetry.max.bytes", _SIZE, "1048576",
        "The largest compressed push of metrics that a client may send.",
        minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    otel_endpoint: str | None = config_field(
        "otel.endpoint", _TEXT, "",
        "The base address of an OpenTelemetry collector that metrics are sent to, such as "
        "http://localhost:4318; empty: they are not sent. OTEL_EXPORTER_OTLP_ENDPOINT sets it, "
        "too.",
        pattern=r"https?://[\x21-\x7e]{1,1000}", requirement="must be an http or https address",
        none_text="", since_cordwood=True,
    )  # fmt: skip
    otel_interval_ms: int = config_field(
        "otel.interval.ms", _DURATION, "60000",
        "How often metrics are sent to the collector.",
        minimum=1000, maximum=3_600_000, since_cordwood=True,
    )  # fmt: skip
    metrics_host: str = config_field(
        "metrics.host", _TEXT, "127.0.0.1",
        "The address of the HTTP endpoint for /metrics, /healthz and /readyz.",
        pattern=_HOST, requirement=_HOST_RULE, since_cordwood=True,
    )  # fmt: skip
    metrics_port: int | None = config_field(
        "metrics.port", _INTEGER, "-1",
        "The port of the HTTP endpoint for /metrics, /healthz and /readyz; 0: any free port; -1: "
        "no endpoint.",
        since_cordwood=True, **_OPTIONAL_PORT,
    )  # fmt: skip
    metrics_listener: str | None = config_field(
        "metrics.listener", _TEXT, "",
        "The name of a listener whose TLS the HTTP endpoint uses, too; empty: it has no TLS.",
        none_text="", since_cordwood=True,
    )  # fmt: skip
    metrics_token: str | None = config_field(
        "metrics.token", _TEXT, "",
        "What a client of the HTTP endpoint must send as bearer token; empty: nothing. /healthz "
        "needs no token.",
        pattern=r"[\x21-\x7e]{16,1000}", requirement="must have at least 16 characters, no spaces",
        none_text="", since_cordwood=True, is_sensitive=True,
    )  # fmt: skip
    metrics_hosts: tuple[str, ...] = config_field(
        "metrics.hosts", _LIST, "",
        "Further names under which the HTTP endpoint answers; *: any. It always answers to IP "
        "addresses, to metrics.host, and to the names of this machine and of its listeners.",
        since_cordwood=True,
    )  # fmt: skip
    leader_replication_throttled_rate: int = config_field(
        "leader.replication.throttled.rate", _SIZE, str(INT64_MAX),
        "In a cluster: how many bytes per second this broker sends as a leader to the replicas in "
        "leader.replication.throttled.replicas. Only those that are not in sync are held up.",
        maximum=INT64_MAX,
    )  # fmt: skip
    follower_replication_throttled_rate: int = config_field(
        "follower.replication.throttled.rate", _SIZE, str(INT64_MAX),
        "In a cluster: how many bytes per second this broker fetches for its replicas in "
        "follower.replication.throttled.replicas. Only those that are not in sync are held up.",
        maximum=INT64_MAX,
    )  # fmt: skip
    replica_alter_log_dirs_io_max_bytes_per_second: int = config_field(
        "replica.alter.log.dirs.io.max.bytes.per.second", _SIZE, str(INT64_MAX),
        "In a cluster: how many bytes per second are copied for replicas that move between the "
        "data directories of this broker.",
        maximum=INT64_MAX,
    )  # fmt: skip
    shutdown_timeout_ms: int = config_field(
        "shutdown.timeout.ms", _DURATION, "30000",
        "How long a stopping broker waits for the requests under way and for archives.",
        maximum=INT32_MAX, since_cordwood=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        for key in BROKER_KEYS:
            key.check(getattr(self, key.field_name))
        for smaller, larger in _ORDERED:
            if getattr(self, smaller) > getattr(self, larger):
                raise ConfigError(
                    _dotted(smaller),
                    getattr(self, smaller),
                    f"must not exceed {_dotted(larger)} = {getattr(self, larger)}",
                )
        if not self.group_consumer_assignors:
            raise ConfigError("group.consumer.assignors", "", "must not be empty")
        for prefix in self.archive_url_prefixes:
            check_url(prefix, key="archive.url.prefixes")

    @classmethod
    def parse(
        cls, mapping: Mapping[str, object], *, defaults: "BrokerConfig | None" = None
    ) -> "BrokerConfig":
        """The config that `mapping` of keys to values describes; the rest is from `defaults`."""
        values: dict[str, Any] = {}
        for name, raw in mapping.items():
            key = _KEYS_BY_NAME.get(name)
            if key is None:
                raise ConfigError(name, raw, "is not a broker key")
            values[key.field_name] = key.parse(raw)
        return replace(defaults if defaults is not None else cls(), **values)

    def effective(self) -> dict[str, str]:
        """Every key and its value as text."""
        return {key.name: key.render(self._value(key)) for key in BROKER_KEYS}

    def _value(self, key: ConfigKey) -> ConfigValue:
        value: ConfigValue = getattr(self, key.field_name)
        return value

    @property
    def listens_everywhere(self) -> bool:
        """Whether `host` means all addresses, so that clients need another one to connect to."""
        return self.host in ANY_ADDRESS


_ORDERED: Final = (
    ("socket_request_max_bytes", "queued_max_request_bytes"),
    ("group_min_session_timeout_ms", "group_max_session_timeout_ms"),
    ("group_consumer_heartbeat_interval_ms", "group_consumer_session_timeout_ms"),
    ("group_consumer_min_heartbeat_interval_ms", "group_consumer_max_heartbeat_interval_ms"),
    ("group_consumer_min_session_timeout_ms", "group_consumer_max_session_timeout_ms"),
)

BROKER_KEYS: Final[tuple[ConfigKey, ...]] = tuple(
    broker_field.metadata["key"] for broker_field in fields(BrokerConfig)
)
_KEYS_BY_NAME: Final = {key.name: key for key in BROKER_KEYS}


def _dotted(field_name: str) -> str:
    return field_name.replace("_", ".")
