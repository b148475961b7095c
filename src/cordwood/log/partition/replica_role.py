"""What depends on the role that this process has for a partition.

Three decisions are the role's: which epoch a log is written in after it was opened, how far
readers may see, and when an append may be acknowledged. The parts of the log ask the role and
carry out the answer. The only role today is the sole replica, which decides from its own log.
"""

from typing import Final, Protocol

from cordwood.format.small_files.checkpoint_text import EpochEntry
from cordwood.log.partition.log_state import LogState
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import LeaderEpoch, Offset


class ReplicaRole(Protocol):
    """The decisions of a role. Pure: they change nothing and may be asked with locks held."""

    def opening_epoch(self, latest: EpochEntry | None) -> LeaderEpoch | None:
        """The epoch to write in after opening; `latest` is the last one in the log.

        None: the log is opened without one.
        """
        ...

    def high_watermark(
        self, state: LogState, config: TopicConfig, *, end: Offset, durable: Offset
    ) -> Offset:
        """How far readers may see once `state` ends at `end` and is durable up to `durable`."""
        ...

    def is_promise_kept(self, state: LogState, config: TopicConfig, end: Offset) -> bool:
        """Whether records below `end` may be acknowledged."""
        ...


class SoleReplica:
    """The role of a log that has no other replicas: the topic's durability decides alone.

    With durability=os, readers see what the kernel has, and no more than `flush.messages` records
    may be acknowledged before they are synced. With durability=disk, both wait for the sync.
    """

    def opening_epoch(self, latest: EpochEntry | None) -> LeaderEpoch | None:
        """The epoch the log was left in; 0 for a new one."""
        return LeaderEpoch(0) if latest is None else latest.epoch

    def high_watermark(
        self, state: LogState, config: TopicConfig, *, end: Offset, durable: Offset
    ) -> Offset:
        reached = end if config.durability == "os" else durable
        if reached < state.high_watermark:
            return state.high_watermark
        return reached if state.held_from is None else state.visible(reached)

    def is_promise_kept(self, state: LogState, config: TopicConfig, end: Offset) -> bool:
        if state.durable >= end:
            return True
        return config.durability == "os" and end - state.durable < config.flush_messages


SOLE_REPLICA: Final = SoleReplica()
