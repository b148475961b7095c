"""What depends on the role that this process has for a partition.

Three decisions are the role's: which epoch a log is written in after it was opened, how far
readers may see, and when an append may be acknowledged. The parts of the log ask the role and
carry out the answer. There are three: the sole replica decides from its own log. A replica among
others decides nothing: what a cluster decided is carried out through `replica_log`. An owned
replica is the only one, but who may write it, and in which epoch, is decided elsewhere.
"""

from typing import Final, Protocol

from cordwood.format.small_files.checkpoint_text import EpochEntry
from cordwood.log.partition.state.log_state import LogState
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import LeaderEpoch, Offset


class ReplicaRole(Protocol):
    """The decisions of a role. Pure: they change nothing and may be asked with locks held."""

    @property
    def is_sole(self) -> bool:
        """Whether the log has no other replicas. If not, it opens as nobody's leader."""
        ...

    def opening_epoch(self, latest: EpochEntry | None) -> LeaderEpoch | None:
        """The epoch to write in after opening; `latest` is the last one in the log.

        None: the log is opened without one.
        """
        ...

    def opening_high_watermark(
        self, state: LogState, config: TopicConfig, mark: Offset | None
    ) -> Offset:
        """How far readers may see after opening; `mark` is the last published high watermark.

        `state` has the start as its high watermark.
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

    is_sole: Final = True

    def opening_epoch(self, latest: EpochEntry | None) -> LeaderEpoch | None:
        """The epoch the log was left in; 0 for a new one."""
        return LeaderEpoch(0) if latest is None else latest.epoch

    def opening_high_watermark(
        self, state: LogState, config: TopicConfig, mark: Offset | None
    ) -> Offset:
        """As after a sync: the bytes of the log decide, not the mark."""
        return self.high_watermark(state, config, end=state.end, durable=state.durable)

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


class ReplicaAmongOthers:
    """The role of a log that other brokers have replicas of: they decide with it.

    The log opens without an epoch, and readers see what they saw before. From then on the high
    watermark moves only when `ReplicaLog.raise_high_watermark` says so, never by an append or a
    sync. A promise of the log itself is about its own disk: what acks=1 waits for.
    """

    is_sole: Final = False

    def opening_epoch(self, latest: EpochEntry | None) -> LeaderEpoch | None:
        return None

    def opening_high_watermark(
        self, state: LogState, config: TopicConfig, mark: Offset | None
    ) -> Offset:
        """The mark, as far as the log has it on its disk. It is never above what was agreed.

        Above that, a power cut may have brought older batches back. The leader says what they are.
        """
        return state.start if mark is None else min(max(mark, state.start), state.durable)

    def high_watermark(
        self, state: LogState, config: TopicConfig, *, end: Offset, durable: Offset
    ) -> Offset:
        return state.high_watermark

    def is_promise_kept(self, state: LogState, config: TopicConfig, end: Offset) -> bool:
        return SOLE_REPLICA.is_promise_kept(state, config, end)


class OwnedReplica:
    """The role of a log that one of several processes of a node owns: it has no other replicas.

    It opens without an epoch: the keeper of the node says when it is led, and in which. Everything
    else is as for the sole replica.
    """

    is_sole: Final = False

    def opening_epoch(self, latest: EpochEntry | None) -> LeaderEpoch | None:
        return None

    def opening_high_watermark(
        self, state: LogState, config: TopicConfig, mark: Offset | None
    ) -> Offset:
        return SOLE_REPLICA.opening_high_watermark(state, config, mark)

    def high_watermark(
        self, state: LogState, config: TopicConfig, *, end: Offset, durable: Offset
    ) -> Offset:
        return SOLE_REPLICA.high_watermark(state, config, end=end, durable=durable)

    def is_promise_kept(self, state: LogState, config: TopicConfig, end: Offset) -> bool:
        return SOLE_REPLICA.is_promise_kept(state, config, end)


SOLE_REPLICA: Final = SoleReplica()
AMONG_OTHERS: Final = ReplicaAmongOthers()
OWNED: Final = OwnedReplica()
