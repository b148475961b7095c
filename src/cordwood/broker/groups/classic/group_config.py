"""Configuration of classic groups and of committed offsets."""

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.quantities import INT32_MAX
from cordwood.value_class import dataclass

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The broker's keys that the coordinator uses. `BrokerConfig` has validated them."""

    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    size_max: int = INT32_MAX
    offsets_retention_ms: int = 10_080 * _MINUTE_MS
    offsets_check_interval_ms: int = 10 * _MINUTE_MS
    offsets_commit_timeout_ms: int = 5_000
    offset_metadata_max_bytes: int = 4_096
    offsets_topic_partitions: int = 1

    @classmethod
    def of_broker(cls, config: BrokerConfig) -> "GroupConfig":
        return cls(
            session_timeout_min_ms=config.group_min_session_timeout_ms,
            session_timeout_max_ms=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            size_max=config.group_max_size,
            offsets_retention_ms=config.offsets_retention_minutes * _MINUTE_MS,
            offsets_check_interval_ms=config.offsets_retention_check_interval_ms,
            offsets_commit_timeout_ms=config.offsets_commit_timeout_ms,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_topic_partitions=config.offsets_topic_num_partitions,
        )
