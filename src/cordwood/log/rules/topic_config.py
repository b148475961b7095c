"""Every configuration key of a topic: Kafka's keys with Kafka's names and defaults, and our own.

Each field below is one key, defined only here: `_key` gives its name, kind, default, range and
meaning. Parsing, checking, rendering and the documentation are derived from that.
``retention.ms`` is the field `retention_ms`.

None means "no limit" or "not set"; it is written as -1 or as empty text.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Literal

from cordwood.errors import ConfigError
from cordwood.format.compression import Codec
from cordwood.log.rules.config_key import ConfigKey, ConfigKind
from cordwood.log.rules.config_key import config_field as _key
from cordwood.quantities import INT32_MAX, INT64_MAX, MIB
from cordwood.value_class import dataclass, fields, replace

_SIZE, _DURATION, _INTEGER = ConfigKind.SIZE, ConfigKind.DURATION, ConfigKind.INTEGER
_RATIO, _BOOLEAN, _TEXT, _LIST = (
    ConfigKind.RATIO,
    ConfigKind.BOOLEAN,
    ConfigKind.TEXT,
    ConfigKind.LIST,
)
Durability = Literal["disk", "os"]

_FOR_EVER: Final = str(INT64_MAX)
_REPLICAS: Final = r"\*|[0-9]+:[0-9]+"
_NO_EFFECT: Final = "No effect; accepted so that Kafka's tools work: "
_TIERED: Final = f"{_NO_EFFECT}archive.url replaces tiered storage."
_ALONE: Final = "A broker that is alone accepts it without effect: a partition has one replica."

_REMOVED_IN_KAFKA_4: Final = frozenset(
    {
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.difference.max.ms",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Validated on construction: holding one means every value in it is usable."""

    # --- segments ----------------------------------------------------------------------------
    segment_bytes: int = _key(
        "segment.bytes", _SIZE, "1073741824", "Roll a segment before it grows past this size.",
        minimum=MIB, maximum=INT32_MAX,
    )  # fmt: skip
    internal_segment_bytes: int | None = _key(
        "internal.segment.bytes", _SIZE, "-1", "For tests: overrides segment.bytes; may be tiny.",
        minimum=14, maximum=INT32_MAX, none_text="-1", is_internal=True,
    )  # fmt: skip
    segment_ms: int = _key(
        "segment.ms", _DURATION, "604800000", "Roll a segment when it is older than this.",
        minimum=1,
    )  # fmt: skip
    segment_jitter_ms: int = _key(
        "segment.jitter.ms", _DURATION, "0",
        "Shorten segment.ms by a random time up to this, for each segment.",
    )  # fmt: skip
    segment_records: int | None = _key(
        "segment.records", _INTEGER, "-1", "Roll a segment before it holds more records.",
        minimum=1, none_text="-1", since_cordwood=True,
    )  # fmt: skip
    segment_index_bytes: int = _key(
        "segment.index.bytes", _SIZE, "10485760",
        "Roll a segment when one of its indexes reaches this size.",
        minimum=24, maximum=INT32_MAX,
    )  # fmt: skip
    index_interval_bytes: int = _key(
        "index.interval.bytes", _SIZE, "4096", "Bytes of log per index entry.",
        maximum=INT32_MAX,
    )  # fmt: skip
    preallocate: bool | None = _key(
        "preallocate", _BOOLEAN, "auto",
        "With durability=disk, write zeros ahead of the end of the log: syncs of small appends "
        "take less time. auto: while there are many of them.",
        none_text="auto",
    )  # fmt: skip
    key_index: bool = _key(
        "key.index", _BOOLEAN, "false",
        "Keep an index of the keys of each sealed segment, for fast lookups by key.",
        since_cordwood=True,
    )  # fmt: skip

    # --- durability --------------------------------------------------------------------------
    durability: str = _key(
        "durability", _TEXT, "disk",
        "When an append is acknowledged: disk, after a sync; os, once the operating system has it.",
        choices=("disk", "os"), since_cordwood=True,
    )  # fmt: skip
    flush_messages: int = _key(
        "flush.messages", _INTEGER, _FOR_EVER,
        "With durability=os, sync after this many records.",
        minimum=1,
    )  # fmt: skip
    flush_ms: int = _key(
        "flush.ms", _DURATION, _FOR_EVER, "With durability=os, sync after this long.",
    )  # fmt: skip

    # --- retention ---------------------------------------------------------------------------
    cleanup_policy: tuple[str, ...] = _key(
        "cleanup.policy", _LIST, "delete",
        "What happens to old segments. Empty: they are kept; only DeleteRecords removes them.",
        choices=("compact", "delete"),
    )  # fmt: skip
    retention_ms: int | None = _key(
        "retention.ms", _DURATION, "604800000",
        "With policy delete, delete segments whose newest record is older than this. A record with "
        "a time in the future counts from its append.",
        none_text="-1",
    )  # fmt: skip
    retention_bytes: int | None = _key(
        "retention.bytes", _SIZE, "-1",
        "With policy delete, delete the oldest segments as long as this much remains.",
        none_text="-1",
    )  # fmt: skip
    retention_segments: int | None = _key(
        "retention.segments", _INTEGER, "-1",
        "With policy delete, keep only this many of the newest segments.",
        minimum=1, none_text="-1", since_cordwood=True,
    )  # fmt: skip
    file_delete_delay_ms: int = _key(
        "file.delete.delay.ms", _DURATION, "60000",
        "How long the files of a deleted segment remain for current readers.",
    )  # fmt: skip

    # --- compaction --------------------------------------------------------------------------
    delete_retention_ms: int = _key(
        "delete.retention.ms", _DURATION, "86400000",
        "How long a compacted topic keeps a tombstone.",
    )  # fmt: skip
    min_compaction_lag_ms: int = _key(
        "min.compaction.lag.ms", _DURATION, "0", "Do not compact records younger than this.",
    )  # fmt: skip
    max_compaction_lag_ms: int = _key(
        "max.compaction.lag.ms", _DURATION, _FOR_EVER,
        "Compact records at this age at the latest, whatever the dirty ratio.",
        minimum=1,
    )  # fmt: skip
    min_cleanable_dirty_ratio: float = _key(
        "min.cleanable.dirty.ratio", _RATIO, "0.5",
        "Compact when this share of the log has not been compacted yet.",
        maximum=1,
    )  # fmt: skip

    # --- records -----------------------------------------------------------------------------
    max_message_bytes: int = _key(
        "max.message.bytes", _SIZE, "1048588",
        "Largest batch accepted, compressed and with its header.",
        maximum=INT32_MAX,
    )  # fmt: skip
    compression_type: str = _key(
        "compression.type", _TEXT, "producer",
        "Codec of stored batches; producer: keep the codec of the producer.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    )  # fmt: skip
    compression_gzip_level: int = _key(
        "compression.gzip.level", _INTEGER, "-1", "Level for gzip; -1: zlib's default.",
        minimum=1, maximum=9, also_allowed=(-1,),
    )  # fmt: skip
    compression_lz4_level: int = _key(
        "compression.lz4.level", _INTEGER, "9", "Level for lz4.",
        minimum=1, maximum=17,
    )  # fmt: skip
    compression_zstd_level: int = _key(
        "compression.zstd.level", _INTEGER, "3", "Level for zstd.",
        minimum=-131072, maximum=22,
    )  # fmt: skip
    message_timestamp_type: str = _key(
        "message.timestamp.type", _TEXT, "CreateTime",
        "Timestamp of a record: set by its producer, or the time of the append.",
        choices=("CreateTime", "LogAppendTime"),
    )  # fmt: skip
    message_timestamp_before_max_ms: int = _key(
        "message.timestamp.before.max.ms", _DURATION, _FOR_EVER,
        "How far a CreateTime may be in the past.",
    )  # fmt: skip
    message_timestamp_after_max_ms: int = _key(
        "message.timestamp.after.max.ms", _DURATION, "3600000",
        "How far a CreateTime may be in the future.",
    )  # fmt: skip

    # --- archive -----------------------------------------------------------------------------
    archive_url: str | None = _key(
        "archive.url", _TEXT, "",
        "Archive for sealed segments: file:///dir or s3://bucket/dir; empty: no archive.",
        pattern=r"file:(//(localhost)?)?/(?!/).*|(?!file:|https?:)[a-z][a-z0-9+.-]*://[^/].*",
        none_text="", since_cordwood=True,
    )  # fmt: skip
    archive_after_ms: int | None = _key(
        "archive.after.ms", _DURATION, "-1",
        "Archive a sealed segment this long after its last append; -1: at once.",
        none_text="-1", since_cordwood=True,
    )  # fmt: skip
    local_retention_ms: int = _key(
        "local.retention.ms", _DURATION, "-2",
        "With archive.url, how long local copies are kept; -2: like retention.ms.",
        minimum=-2,
    )  # fmt: skip
    local_retention_bytes: int = _key(
        "local.retention.bytes", _SIZE, "-2",
        "With archive.url, how many bytes of local copies are kept; -2: like retention.bytes.",
        minimum=-2,
    )  # fmt: skip

    # --- Kafka's keys for features that Cordwood lacks ---------------------------------------
    min_insync_replicas: int = _key(
        "min.insync.replicas",
        _INTEGER,
        "1",
        "In a cluster: appends with acks=all are refused while fewer replicas are in sync, and "
        f"nothing new is readable. {_ALONE}",
        minimum=1,
        maximum=INT32_MAX,
    )
    unclean_leader_election_enable: bool = _key(
        "unclean.leader.election.enable",
        _BOOLEAN,
        "false",
        "In a cluster: whether the controllers may elect a replica that is not in sync, if no "
        f"other is alive; acknowledged records may be lost then. {_ALONE}",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = _key(
        "leader.replication.throttled.replicas", _LIST, "",
        "In a cluster: which leaders send to followers that are not in sync within "
        "leader.replication.throttled.rate. *: all of the topic; else partition:broker,...",
        pattern=_REPLICAS,
    )  # fmt: skip
    follower_replication_throttled_replicas: tuple[str, ...] = _key(
        "follower.replication.throttled.replicas", _LIST, "",
        "In a cluster: which followers, while they are not in sync, fetch within "
        "follower.replication.throttled.rate. *: all of the topic; else partition:broker,...",
        pattern=_REPLICAS,
    )  # fmt: skip
    remote_storage_enable: bool = _key("remote.storage.enable", _BOOLEAN, "false", _TIERED)
    remote_log_copy_disable: bool = _key("remote.log.copy.disable", _BOOLEAN, "false", _TIERED)
    remote_log_delete_on_disable: bool = _key(
        "remote.log.delete.on.disable", _BOOLEAN, "false", _TIERED
    )
    remote_copy_lag_ms: int = _key("remote.copy.lag.ms", _DURATION, "0", _TIERED, minimum=-1)
    remote_copy_lag_bytes: int = _key("remote.copy.lag.bytes", _SIZE, "-1", _TIERED, minimum=-1)
    errors_deadletterqueue_group_enable: bool = _key(
        "errors.deadletterqueue.group.enable",
        _BOOLEAN,
        "false",
        f"{_NO_EFFECT}there are no share groups.",
    )

    def __post_init__(self) -> None:
        for key, name, default in _FIELDS:
            value = getattr(self, name)
            if value is not default:  # the defaults were checked with the table
                key.check(value)
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                "min.compaction.lag.ms",
                self.min_compaction_lag_ms,
                f"must not exceed max.compaction.lag.ms = {self.max_compaction_lag_ms}",
            )
        if self.archive_url is not None and self.is_compacted:
            raise ConfigError(
                "cleanup.policy",
                ",".join(self.cleanup_policy),
                "cannot be combined with archive.url: compaction rewrites segments",
            )
        if self.remote_storage_enable:
            raise ConfigError(
                "remote.storage.enable", "true", "tiered storage is not supported; set archive.url"
            )

    @classmethod
    def parse(
        cls, mapping: Mapping[str, object], *, defaults: "TopicConfig | None" = None
    ) -> "TopicConfig":
        """Parse a mapping of keys to values; other keys have their value from `defaults`."""
        values: dict[str, Any] = {}
        for name, raw in mapping.items():
            key = known_key(name, raw)
            values[key.field_name] = key.parse(raw)
        base = defaults if defaults is not None else _kafka_defaults()
        if "compact" in values.get("cleanup_policy", base.cleanup_policy):
            # An archive that is the store's default does not apply to compacted topics.
            values.setdefault("archive_url", None)
        return replace(base, **values)

    def render(self, *, defaults: "TopicConfig | None" = None) -> dict[str, str]:
        """The keys that differ from `defaults` (by default Kafka's), as text."""
        base = defaults if defaults is not None else _kafka_defaults()
        return {
            key.name: key.render(value)
            for key, name, _ in _FIELDS
            if (value := getattr(self, name)) != getattr(base, name)
        }

    def effective(self) -> dict[str, str]:
        """Every key and its value as text; internal keys only if set."""
        return {
            key.name: key.render(value)
            for key, name, _ in _FIELDS
            if (value := getattr(self, name)) is not None or not key.is_internal
        }

    @property
    def is_compacted(self) -> bool:
        """Whether `cleanup.policy` has compact."""
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether retention deletes segments; False for the empty policy."""
        return "delete" in self.cleanup_policy

    @property
    def is_log_append_time(self) -> bool:
        """Whether records get the time of the append, whatever time they bring."""
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def segment_bytes_effective(self) -> int:
        internal = self.internal_segment_bytes
        return self.segment_bytes if internal is None else internal

    @property
    def segment_ms_effective(self) -> int:
        """The age at which a segment is rolled.

        Only sealed segments are compacted, so a compacted topic seals them within its maximum lag.
        """
        if self.is_compacted:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @property
    def codec(self) -> Codec | None:
        """The codec of stored batches; None: keep that of the producer."""
        return None if self.compression_type == "producer" else Codec.named(self.compression_type)

    @property
    def compression_level(self) -> int | None:
        """The level for `codec`; None if it has no levels."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)


CONFIG_KEYS: Final[tuple[ConfigKey, ...]] = tuple(
    topic_field.metadata["key"] for topic_field in fields(TopicConfig)
)
_KEYS_BY_NAME: Final = {key.name: key for key in CONFIG_KEYS}
# Each key with the name of its field and its default. A store makes a config for each partition
# that it opens, so none of them is worked out again.
_FIELDS: Final[tuple[tuple[ConfigKey, str, object], ...]] = tuple(
    (topic_field.metadata["key"], topic_field.name, topic_field.default)
    for topic_field in fields(TopicConfig)
)


@cache
def _kafka_defaults() -> TopicConfig:
    return TopicConfig()


def known_key(name: str, value: object) -> ConfigKey:
    """The key of that name; `ConfigError` with similar names if it is unknown."""
    key = _KEYS_BY_NAME.get(name)
    if key is None:
        raise ConfigError(name, value, _why_unknown(name))
    return key


def canonical_texts(mapping: Mapping[str, object]) -> dict[str, str]:
    """The keys and values of `mapping` as Kafka would print them: ``7d`` is 604800000."""
    keys = [(known_key(name, raw), raw) for name, raw in mapping.items()]
    return {key.name: key.render(key.parse(raw)) for key, raw in keys}


def _why_unknown(name: str) -> str:
    if name in _REMOVED_IN_KAFKA_4:
        return "was removed in Kafka 4.0"
    from difflib import get_close_matches  # not at the top: only a mistake needs it

    known = sorted(key.name for key in CONFIG_KEYS if not key.is_internal)
    near = get_close_matches(name, known)
    if near:
        return f"unknown topic key; did you mean {' or '.join(near)}?"
    return f"unknown topic key; known keys are {', '.join(known)}"
