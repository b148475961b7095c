"""The sizes of a demo run, and the paths of its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAYMENTS: Final = "payments"
ACCOUNTS: Final = "accounts"
GROUP: Final = "settlement"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPlan:
    """Sizes and rates. Rates are payment events per second, not counting account changes.

    history_events   produced first, with timestamps of the past six hours
    live_rate        rate after that, while the group and Spark read
    watch_s          how long to watch Spark's totals
    kills            how often to kill the broker, each time after `kill_after_s` of writing
    """

    history_events: int = 60_000
    history_rate: int = 12_000
    live_rate: int = 1_500
    watch_s: float = 25.0
    kills: int = 3
    kill_rate: int = 3_000
    kill_after_s: float = 2.5
    account_count: int = 2_000
    payment_partitions: int = 4
    account_partitions: int = 2
    segment_records: int = 4_000
    seed: int = 20


QUICK: Final = DemoPlan(
    history_events=16_000,
    history_rate=16_000,
    live_rate=1_000,
    watch_s=6.0,
    kills=1,
    kill_after_s=1.5,
    account_count=500,
    segment_records=1_500,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoFiles:
    """The paths of a run's files, all below `directory`."""

    directory: Path

    @property
    def store(self) -> Path:
        return self.directory / "store"

    @property
    def archive(self) -> Path:
        return self.directory / "archive"

    @property
    def spark(self) -> Path:
        return self.directory / "spark"

    @property
    def broker_log(self) -> Path:
        return self.directory / "broker.log"

    @property
    def spark_log(self) -> Path:
        return self.directory / "spark.log"

    @property
    def report(self) -> Path:
        return self.directory / "demo-report.html"

    @property
    def mark(self) -> Path:
        """Marks the directory as created by a run; the next run may replace it."""
        return self.directory / ".cordwood-demo"
