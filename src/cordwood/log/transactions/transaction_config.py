"""How long transactions and their ids live, and how their topic is created."""

from typing import Final

from cordwood.quantities import MIB
from cordwood.value_class import dataclass

_MINUTE_MS: Final = 60 * 1000
_DAY_MS: Final = 24 * 60 * _MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Settings of a coordinator. Field names are Kafka's keys, without ``transaction.``."""

    max_timeout_ms: int = 15 * _MINUTE_MS
    id_expiration_ms: int = 7 * _DAY_MS
    abort_interval_ms: int = 10 * 1000  # transaction.abort.timed.out.transaction.cleanup...
    expiry_interval_ms: int = 60 * _MINUTE_MS  # transaction.remove.expired.transaction.cleanup...
    verifies_partitions: bool = True  # transaction.partition.verification.enable
    state_log_partitions: int = 1
    state_log_segment_bytes: int = 100 * MIB
