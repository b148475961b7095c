"""The settings that groups of the new consumer protocol go by."""

from dataclasses import dataclass

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.quantities import INT32_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig:
    """A broker's keys as consumer groups use them; validated where they were read.

    `assignors` are the names of those that members may ask for; the first is for groups where
    none asks.
    """

    heartbeat_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    size_max: int = INT32_MAX
    assignors: tuple[str, ...] = ("uniform", "range")

    @classmethod
    def of_broker(cls, config: BrokerConfig) -> "ConsumerGroupConfig":
        return cls(
            heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
            session_timeout_ms=config.group_consumer_session_timeout_ms,
            size_max=config.group_consumer_max_size,
            assignors=config.group_consumer_assignors,
        )
