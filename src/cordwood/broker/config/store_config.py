"""The configuration keys of a broker's store: directories, cleaner, disk space.

The other keys of a broker are in `broker_config`; defaults of topics are in `topic_defaults`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cordwood.errors import ConfigError
from cordwood.log.compaction.cleaner import CleanerConfig
from cordwood.log.partition.state.replica_role import SOLE_REPLICA, ReplicaRole
from cordwood.log.rules.config_key import ConfigKey, ConfigKind, ConfigValue, config_field
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.archive_port import CACHE_BYTES
from cordwood.log.store.upkeep_tasks import FREE_BYTES_MIN
from cordwood.storage.disk.file_access import FileAccess
from cordwood.value_class import dataclass, fields, replace

if TYPE_CHECKING:
    from cordwood.log.store.store import Store

_SIZE, _DURATION, _INTEGER = ConfigKind.SIZE, ConfigKind.DURATION, ConfigKind.INTEGER
_RATIO, _BOOLEAN, _LIST = ConfigKind.RATIO, ConfigKind.BOOLEAN, ConfigKind.LIST


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Validated on construction: holding one means every value in it is usable."""

    log_dirs: tuple[str, ...] = config_field(
        "log.dirs", _LIST, "data",
        "The data directories; partitions are spread over them. Missing ones are created.",
    )  # fmt: skip
    log_dir_free_bytes_min: int = config_field(
        "log.dir.free.bytes.min", _SIZE, str(FREE_BYTES_MIN),
        "Appends are refused while less space is free on the disk; 0: never.",
        since_cordwood=True,
    )  # fmt: skip
    log_dir_access: str = config_field(
        "log.dir.access", ConfigKind.TEXT, "owner",
        "Who may use the files and directories that the broker creates: the owner (modes 0600 and "
        "0700), also its group (0660, 0770), or all (0666, 0777), within the umask of the process.",
        choices=tuple(FileAccess), since_cordwood=True,
    )  # fmt: skip
    num_recovery_threads_per_data_dir: int = config_field(
        "num.recovery.threads.per.data.dir", _INTEGER, "4",
        "The number of partitions that are opened at the same time at start, in all directories "
        "together. Kafka's default is 2.",
        minimum=1, maximum=256,
    )  # fmt: skip
    log_archive_cache_bytes: int = config_field(
        "log.archive.cache.bytes", _SIZE, str(CACHE_BYTES),
        "The size of the local cache of archived segments.",
        since_cordwood=True,
    )  # fmt: skip
    log_cleaner_enable: bool = config_field(
        "log.cleaner.enable", _BOOLEAN, "true", "Whether topics are compacted in the background.",
    )  # fmt: skip
    log_cleaner_threads: int = config_field(
        "log.cleaner.threads", _INTEGER, "1",
        "The number of partitions that are compacted at the same time.",
        minimum=1, maximum=256,
    )  # fmt: skip
    log_cleaner_dedupe_buffer_size: int = config_field(
        "log.cleaner.dedupe.buffer.size", _SIZE, "134217728",
        "The memory for the keys of compaction, for all threads together.",
        minimum=4096,
    )  # fmt: skip
    log_cleaner_io_buffer_load_factor: float = config_field(
        "log.cleaner.io.buffer.load.factor", _RATIO, "0.9",
        "How full that memory may get before a compaction stops collecting keys.",
        maximum=1,
    )  # fmt: skip
    log_cleaner_io_max_bytes_per_second: int | None = config_field(
        "log.cleaner.io.max.bytes.per.second", _SIZE, "-1",
        "The bytes that compaction may read and write per second, together; -1: no limit.",
        minimum=1, none_text="-1",
    )  # fmt: skip
    log_cleaner_backoff_ms: int = config_field(
        "log.cleaner.backoff.ms", _DURATION, "15000",
        "The shortest time between two compactions of a partition.",
    )  # fmt: skip
    log_cleaner_time_share_max: float = config_field(
        "log.cleaner.time.share.max", _RATIO, "0.5",
        "The largest share of time that compaction may work; it pauses in between.",
        maximum=1, since_cordwood=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        for key in STORE_KEYS:
            key.check(getattr(self, key.field_name))
        if not self.log_dirs:
            raise ConfigError("log.dirs", "", "must name at least one directory")
        _ = self.cleaner  # it has rules of its own

    @classmethod
    def parse(
        cls, mapping: Mapping[str, object], *, defaults: "StoreConfig | None" = None
    ) -> "StoreConfig":
        """The config that `mapping` of keys to values describes; the rest is from `defaults`."""
        values: dict[str, Any] = {}
        for name, raw in mapping.items():
            key = _KEYS_BY_NAME.get(name)
            if key is None:
                raise ConfigError(name, raw, "is not a store key")
            values[key.field_name] = key.parse(raw)
        return replace(defaults if defaults is not None else cls(), **values)

    def effective(self) -> dict[str, str]:
        """Every key and its value as text."""
        return {key.name: key.render(self._value(key)) for key in STORE_KEYS}

    def _value(self, key: ConfigKey) -> ConfigValue:
        value: ConfigValue = getattr(self, key.field_name)
        return value

    @property
    def cleaner(self) -> CleanerConfig:
        return CleanerConfig(
            enable=self.log_cleaner_enable,
            threads=self.log_cleaner_threads,
            dedupe_buffer_size=self.log_cleaner_dedupe_buffer_size,
            io_buffer_load_factor=self.log_cleaner_io_buffer_load_factor,
            io_max_bytes_per_second=self.log_cleaner_io_max_bytes_per_second,
            backoff_ms=self.log_cleaner_backoff_ms,
            time_share_max=self.log_cleaner_time_share_max,
        )

    def open(self, topic_defaults: TopicConfig, *, role: ReplicaRole = SOLE_REPLICA) -> "Store":
        """Open the store, which takes the writer lock of every directory."""
        from cordwood.library import open_writer  # not needed to read the keys

        return open_writer(
            self.log_dirs,
            defaults=topic_defaults,
            cleaner=self.cleaner,
            archive_cache_bytes=self.log_archive_cache_bytes,
            free_bytes_min=self.log_dir_free_bytes_min,
            access=FileAccess(self.log_dir_access),
            opening_threads=self.num_recovery_threads_per_data_dir,
            role=role,
        )


STORE_KEYS: Final[tuple[ConfigKey, ...]] = tuple(
    store_field.metadata["key"] for store_field in fields(StoreConfig)
)
_KEYS_BY_NAME: Final = {key.name: key for key in STORE_KEYS}
