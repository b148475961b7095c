"""Configuration of groups of the consumer protocol."""

from collections.abc import Mapping
from typing import Final

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.quantities import INT32_MAX
from cordwood.value_class import dataclass, replace

_HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
_SESSION: Final = "consumer.session.timeout.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig:
    """The broker's keys that consumer groups use. `BrokerConfig` has validated them.

    `assignors` are the names that members may ask for. The first is the default.
    """

    heartbeat_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    size_max: int = INT32_MAX
    assignors: tuple[str, ...] = ("uniform", "range")

    def with_settings(self, texts: Mapping[str, str]) -> "ConsumerGroupConfig":
        """With the settings of a single group."""
        if not texts:
            return self
        return replace(
            self,
            heartbeat_interval_ms=int(texts.get(_HEARTBEAT, self.heartbeat_interval_ms)),
            session_timeout_ms=int(texts.get(_SESSION, self.session_timeout_ms)),
        )

    @classmethod
    def of_broker(cls, config: BrokerConfig) -> "ConsumerGroupConfig":
        return cls(
            heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
            session_timeout_ms=config.group_consumer_session_timeout_ms,
            size_max=config.group_consumer_max_size,
            assignors=config.group_consumer_assignors,
        )
