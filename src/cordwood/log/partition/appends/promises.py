"""Promises: what an append waits for before it is acknowledged.

The role decides when a promise is kept (`replica_role`); this part waits for it, or says that it
is not kept yet.
"""

from collections.abc import Callable

from cordwood.errors import LogClosedError
from cordwood.log.partition.appends.group_commit import GroupCommit, PendingAppend
from cordwood.log.partition.state.log_parts import LogParts
from cordwood.log.partition.state.state_holder import StateHolder
from cordwood.log.partition.writing.log_sync import LogSync
from cordwood.log.partition.writing.rolling import Rolling
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import Offset


class Promises:
    """The promises of one log. Any thread may ask; no lock may be held."""

    def __init__(
        self,
        parts: LogParts,
        holder: StateHolder,
        commits: GroupCommit,
        syncing: LogSync,
        rolling: Rolling,
    ) -> None:
        self._name = parts.name
        self._role = parts.role
        self._clock = parts.clock
        self._holder = holder
        self._commits = commits
        self._syncing = syncing
        self._rolling = rolling
        self._acknowledged_end = Offset(0)

    def is_kept(self, end: Offset) -> bool:
        """Whether records below `end` may be acknowledged now.

        If not, the log needs a sync: `LogSync.begin` or `LogSync.request`. A watcher is called
        when it is done, see `StateHolder.watch`.
        """
        holder = self._holder
        state = holder.state
        if state.durable >= end:
            return True
        if not self._role.is_promise_kept(state, holder.config, end):
            return False
        self._syncing.request_after_roll()
        return True

    def acknowledge_early(self, end: Offset) -> None:
        """Note that records below `end` are acknowledged although they are not durable yet."""
        self._acknowledged_end = end

    def acknowledge_soon(self, end: Offset) -> None:
        """Records below `end` are acknowledged now, and synced soon, so that readers see them."""
        self.acknowledge_early(end)
        self._syncing.request()

    @property
    def acknowledged_end(self) -> Offset:
        """The end of the records that were acknowledged early; 0 if there were none."""
        return min(self._acknowledged_end, self._holder.state.end)

    @property
    def are_ahead_of_readers(self) -> bool:
        """Whether records were acknowledged early that readers do not see yet, but will."""
        state = self._holder.state
        return self.acknowledged_end > state.high_watermark and state.failure is None

    def await_kept(self, end: Offset) -> None:
        """Return once records below `end` may be acknowledged."""
        holder = self._holder
        if not self._role.is_promise_kept(holder.state, holder.config, end):
            self.await_durable(end)
        elif self._rolling.is_sync_wanted:
            self._syncing.request_after_roll()

    def await_durable(self, end: Offset) -> None:
        """Return once everything below `end` is on the disk; raise if that is impossible."""
        if self._holder.state.durable < end:
            self._commits.commit(PendingAppend.sync_only(self._clock.now_ms()))
        state = self._holder.state
        if state.durable < end:
            raise state.failure or LogClosedError(self._name)

    def adopt(self, config: TopicConfig) -> None:
        """Use another configuration from here on.

        If the topic now promises the disk, everything that was promised less is synced first.
        """
        with self._holder.lock:
            self._holder.config = config
        if config.durability == "disk":
            self.await_durable(self._holder.state.end)

    def watch(self, watcher: Callable[[], None] | None) -> None:
        """Have `watcher` called when the log moves. See `StateHolder.watch`."""
        self._holder.watch(watcher)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """As `watch`, for any number of listeners."""
        self._holder.add_listener(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Forget one that was added."""
        self._holder.remove_listener(listener)
