"""All groups of the broker: lookup, creation, change of kind, deletion, expiry of offsets."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from enum import Enum
from typing import Final, TypeVar

from cordwood.broker.groups.classic.classic_group import ClassicGroup
from cordwood.broker.groups.classic.group_config import GroupConfig
from cordwood.broker.groups.classic.metadata_budget import MetadataBudget
from cordwood.broker.groups.journal.group_loader import GroupLoader, LoadedGroups
from cordwood.broker.groups.journal.group_log import Done, GroupLog
from cordwood.broker.groups.journal.group_shards import GroupShards
from cordwood.broker.groups.journal.offset_keeper import OffsetKeeper
from cordwood.broker.groups.managed_group import EpochGroup
from cordwood.broker.groups.offset_expiry import expired_offsets
from cordwood.broker.net.loop.scheduler import Scheduler, Timer
from cordwood.broker.net.requests.request import Deferred, Response
from cordwood.clock import Clock
from cordwood.errors import CordwoodError
from cordwood.format.groups.group_metadata import GroupMetadata, encode_group_metadata
from cordwood.format.groups.group_offsets import GroupMetadataKey, encode_group_metadata_key
from cordwood.log.topics.committed_offsets import CommittedOffsets, GroupRecord
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import MIB, LeaderEpoch

logger = logging.getLogger(__name__)

AnyGroup = ClassicGroup | EpochGroup
_Group = TypeVar("_Group", ClassicGroup, EpochGroup)

# A string in a record has a 16-bit size in bytes, and a character takes up to 4 bytes.
NAME_CHARS_MAX: Final = 8_191
_GROUPS_MAX: Final = 200_000  # each takes about 2 KB, and any client may create one
_METADATA_BYTES_MAX: Final = 256 * MIB  # of all members; a typical member sends 100 bytes
_RELOAD_S: Final = 5.0
_ASKED_SINGLY_MAX: Final = 16  # groups; for more it is cheaper to check all partitions
_EXPIRY_SLICE: Final = 200  # groups to check before the loop serves requests again


class CoordinatorState(Enum):
    """Whether groups can be served."""

    NEW = "new"
    LOADING = "loading"
    READY = "ready"
    STOPPED = "stopped"


class GroupCoordinator:
    """All groups, in memory. For the control loop alone, except `start` and the loading.

    `groups` has the groups that a member joined and the groups that were loaded. A group that
    only has committed offsets is not in it.
    """

    def __init__(
        self,
        *,
        offsets: CommittedOffsets,
        group_log: GroupLog,
        loader: GroupLoader,
        scheduler: Scheduler,
        clock: Clock,
        config: GroupConfig,
        workers: Executor,
        shards: GroupShards | None = None,
    ) -> None:
        """With `shards` it coordinates the groups of the partitions that this broker leads."""
        self._shards = shards
        self.groups: dict[str, AnyGroup] = {}
        self.offsets = offsets
        self.group_log = group_log
        self.scheduler = scheduler
        self.clock = clock
        self.config = config
        self.keeper = OffsetKeeper(offsets, group_log)
        self._budget = MetadataBudget(_METADATA_BYTES_MAX)
        self.state = CoordinatorState.NEW
        self._loader = loader
        self._workers = workers
        self._expiry_timer: Timer | None = None

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to load on a worker. To be called once, by any thread.

        In a cluster nothing is loaded before this broker leads: see `begin_shard`.
        """
        if self._shards is not None:
            self.state = CoordinatorState.READY
            self.scheduler.call_soon(self._plan_expiry)
            return
        self.state = CoordinatorState.LOADING
        self._workers.submit(self._load)

    def _load(self) -> None:
        try:
            loaded = self._loader.load()
        except Exception:
            logger.exception("groups could not be loaded; next attempt in %g s", _RELOAD_S)
            self.scheduler.call_soon(self._load_again)
        else:
            self.scheduler.call_soon(lambda: self._install(loaded))

    def _load_again(self) -> None:
        def again() -> None:
            if self.state is CoordinatorState.LOADING:
                self._workers.submit(self._load)

        self.scheduler.call_later(_RELOAD_S, again)

    def _install(self, loaded: LoadedGroups) -> None:
        if self.state is not CoordinatorState.LOADING:
            return
        self.state = CoordinatorState.READY
        count = self._add_loaded(loaded)
        logger.info("loaded %s", _counted(count, "group"))
        self._plan_expiry()

    def _add_loaded(self, loaded: LoadedGroups) -> int:
        """Add groups that were loaded, and start their timers."""
        added: list[AnyGroup] = []
        for group_id, saved in loaded.classic.items():
            group = self._new_classic(group_id)
            group.restore(saved)
            added.append(group)
        added += loaded.consumer
        for known in added:
            self.groups[known.group_id] = known
        for known in added:
            known.resume()
        return len(added)

    # --- in a cluster ------------------------------------------------------------------------

    def begin_shard(self, number: int, epoch: LeaderEpoch) -> None:
        """This broker leads a partition of the offsets topic: load its groups."""
        assert self._shards is not None
        if self.state is CoordinatorState.READY:
            self.end_shard(number)
            self._shards.begin(number, epoch)
            self._workers.submit(self._load_shard, number, epoch)

    def _load_shard(self, number: int, epoch: LeaderEpoch) -> None:
        """In a worker."""
        try:
            loaded = self._loader.load_partition(number)
        except Exception:
            logger.exception("__consumer_offsets-%d could not be loaded", number)
            self.scheduler.call_soon(lambda: self._load_shard_again(number, epoch))
        else:
            self.scheduler.call_soon(lambda: self._install_shard(number, epoch, loaded))

    def _load_shard_again(self, number: int, epoch: LeaderEpoch) -> None:
        def again() -> None:
            if self._shards is not None and self._shards.is_current(number, epoch):
                self._workers.submit(self._load_shard, number, epoch)

        self.scheduler.call_later(_RELOAD_S, again)

    def _install_shard(self, number: int, epoch: LeaderEpoch, loaded: LoadedGroups) -> None:
        assert self._shards is not None
        if self.state is not CoordinatorState.READY or not self._shards.is_current(number, epoch):
            if not self._shards.is_led(number):  # another broker leads by now
                self.offsets.unload_partition(number)
            return
        self._shards.finish_load(number)
        count = self._add_loaded(loaded)
        logger.info(
            "coordinates __consumer_offsets-%d in epoch %d: loaded %s",
            number,
            epoch,
            _counted(count, "group"),
        )

    def end_shard(self, number: int) -> None:
        """Another epoch began: forget the groups of the partition, and send members away."""
        assert self._shards is not None
        self._shards.end(number)
        for group in [g for g in self.groups.values() if self._is_in(g.group_id, number)]:
            del self.groups[group.group_id]
            group.stop()
        self.offsets.unload_partition(number)

    def _is_in(self, group_id: str, number: int) -> bool:
        return self._shards is not None and self._shards.number_of(group_id) == number

    # --- the end -----------------------------------------------------------------------------

    def stop(self) -> None:
        """Answer all waiting requests and refuse new ones. Saved groups stay in the log."""
        self.state = CoordinatorState.STOPPED
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        for group in self.groups.values():
            group.stop()

    def refusal(self, group_id: str, *, allows_empty: bool = False) -> ErrorCode | None:
        """Why no request about that group can be served; None if requests can be served.

        Old clients commit and fetch offsets of a group whose name is empty.
        """
        refused = self._refusal_of_all()
        if refused is not None:
            return refused
        if len(group_id) > NAME_CHARS_MAX or not (group_id or allows_empty):
            return ErrorCode.invalid_group_id
        return None if self._shards is None else self._shards.refusal(group_id)

    def refusal_to_list(self) -> ErrorCode | None:
        """Why the groups of this broker cannot be listed; None if they can.

        In a cluster these are the groups of the partitions that it leads, which may be none.
        """
        refused = self._refusal_of_all()
        if refused is None and self._shards is not None and self._shards.is_loading:
            return ErrorCode.coordinator_load_in_progress
        return refused

    def _refusal_of_all(self) -> ErrorCode | None:
        if self.state is CoordinatorState.LOADING:
            return ErrorCode.coordinator_load_in_progress
        if self.state is not CoordinatorState.READY:
            return ErrorCode.coordinator_not_available
        return None

    # --- groups ------------------------------------------------------------------------------

    def find(self, group_id: str) -> AnyGroup | None:
        """The group. A group that only has offsets is an empty classic group."""
        group = self.groups.get(group_id)
        if group is None and self.keeper.is_known(group_id):
            return self._new_classic(group_id)
        return group

    def all_groups(self) -> list[AnyGroup]:
        ids = {*self.groups, *self.keeper.group_ids()}
        return [group for group_id in sorted(ids) if (group := self.find(group_id)) is not None]

    def states(self) -> Counter[tuple[str, str]]:
        """The number of groups by type and state."""
        return Counter((group.group_type, group.state_name) for group in self.groups.values())

    def classic_for_join(self, group_id: str, *, is_new_member: bool) -> ClassicGroup | ErrorCode:
        """The group to join. A new member creates it, also in place of an empty consumer group."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group
        if group is not None and not group.is_empty:
            return ErrorCode.inconsistent_group_protocol
        if not is_new_member:
            return ErrorCode.unknown_member_id
        return self._create(group_id, lambda: self._new_classic(group_id))

    def consumer_for_join(
        self, group_id: str, create: Callable[[], EpochGroup]
    ) -> EpochGroup | ErrorCode:
        """The group to join. It is created if needed, also in place of an empty classic group."""
        group = self.groups.get(group_id)
        if group is not None and not isinstance(group, ClassicGroup):
            return group
        if group is not None and not group.is_empty:
            return ErrorCode.inconsistent_group_protocol
        return self._create(group_id, create)

    def _create(self, group_id: str, create: Callable[[], _Group]) -> _Group | ErrorCode:
        """Create a group. It replaces an empty group of the other kind, whose offsets stay."""
        replaced = self.groups.pop(group_id, None)
        if replaced is not None:
            replaced.stop()
            self.group_log.append(group_id, replaced.tombstones(), lambda code: None)
        elif len(self.groups) >= _GROUPS_MAX:
            logger.warning("group %s not created: %d groups is the limit", group_id, _GROUPS_MAX)
            return ErrorCode.coordinator_not_available
        created = create()
        self.groups[group_id] = created
        return created

    def remove(self, group: AnyGroup) -> None:
        """Forget a group that has no records in the log."""
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
            group.stop()

    def delete(self, group_id: str, done: Done) -> None:
        """Delete an empty group and its offsets. Call `done` once that is durable, or failed."""
        group = self.find(group_id)
        if group is None:
            done(ErrorCode.group_id_not_found)
        elif not group.is_empty:
            done(ErrorCode.non_empty_group)
        else:
            self._delete(group, self.keeper.tombstones(group_id), done)

    def _delete(self, group: AnyGroup, records: list[GroupRecord], done: Done) -> None:
        """Forget the group at once, so that a join creates a new one; restore it on failure."""
        kept = self.groups.pop(group.group_id, None)

        def appended(code: ErrorCode) -> None:
            if kept is not None:
                if code is not ErrorCode.none:
                    self.groups.setdefault(group.group_id, kept)
                if self.groups.get(group.group_id) is not kept:
                    kept.stop()
            done(code)

        tombstones = [] if kept is None else kept.tombstones()
        self.group_log.append(group.group_id, [*records, *tombstones], appended)

    def _new_classic(self, group_id: str) -> ClassicGroup:
        def persist(value: GroupMetadata, done: Done) -> None:
            key = encode_group_metadata_key(GroupMetadataKey(group=group_id))
            self.group_log.append(group_id, [(key, encode_group_metadata(value))], done)

        return ClassicGroup(
            group_id,
            scheduler=self.scheduler,
            clock=self.clock,
            config=self.config,
            budget=self._budget,
            persist=persist,
            abandoned=self.remove,
        )

    # --- offsets -----------------------------------------------------------------------------

    def _are_current(self, names: list[str] | None) -> bool:
        if names is None or len(names) > _ASKED_SINGLY_MAX:
            return self.offsets.is_current()
        return all(self.offsets.is_current(name) for name in names)

    def with_offsets(
        self, group_ids: Iterable[str] | None, answer: Callable[[ErrorCode], Response | Deferred]
    ) -> Response | Deferred:
        """Call `answer` once all commits of these groups have been read; None: of all groups.

        Nearly always that is at once. Otherwise the topic was written without the coordinator: the
        new records are read first, and `answer` gets the result of that. It also gets an error if
        the topic cannot be opened, on a full disk for example.
        """
        names = None if group_ids is None else list(group_ids)
        try:
            is_current = self._are_current(names)
        except (CordwoodError, OSError) as error:
            logger.warning("committed offsets cannot be read yet: %s", error)
            return answer(ErrorCode.coordinator_not_available)
        if is_current:
            return answer(ErrorCode.none)
        reply = Deferred()

        def refreshed(code: ErrorCode) -> None:
            result = answer(code)
            if isinstance(result, Deferred):
                result.when_done(answered)
            else:
                reply.resolve(result)

        def answered(response: Response | None, error: BaseException | None) -> None:
            if response is not None:
                reply.resolve(response)
            elif error is not None:
                reply.fail(error)

        self.group_log.refresh(refreshed)
        return reply

    def _plan_expiry(self) -> None:
        delay_s = self.config.offsets_check_interval_ms / 1000
        self._expiry_timer = self.scheduler.call_later(delay_s, self._begin_expiry)

    def _begin_expiry(self) -> None:
        self._expire([group.group_id for group in self.all_groups()])

    def _expire(self, group_ids: list[str]) -> None:
        """Check some of the groups now, and the others in later turns of the loop."""
        if self.state is not CoordinatorState.READY:
            return
        now_ms = self.clock.now_ms()
        for group_id in group_ids[:_EXPIRY_SLICE]:
            self._expire_one(group_id, now_ms)
        rest = group_ids[_EXPIRY_SLICE:]
        if rest:
            self.scheduler.call_soon(lambda: self._expire(rest))
        else:
            self._plan_expiry()

    def _expire_one(self, group_id: str, now_ms: int) -> None:
        group = self.find(group_id)
        if group is None or self.keeper.is_committing(group_id):
            return
        offsets = self.keeper.of_group(group_id)
        due = expired_offsets(
            group, offsets, now_ms=now_ms, retention_ms=self.config.offsets_retention_ms
        )
        pending = self.keeper.pending(group_id)
        due = [place for place in due if place not in pending]
        gone = self.keeper.replaced_topics(group_id) - pending
        records = self.keeper.tombstones(group_id, [*due, *gone])
        if (
            not pending
            and len(due) == len(offsets)
            and group_id in self.groups
            and _is_unused(group)
        ):
            logger.info("group %s: deleted, it is empty and its offsets expired", group_id)
            self._delete(group, records, lambda code: None)
        elif records:
            logger.info("group %s: %s expired", group_id, _counted(len(records), "offset"))
            self.group_log.append(group_id, records, lambda code: None)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _is_unused(group: AnyGroup) -> bool:
    return group.is_empty and not (isinstance(group, ClassicGroup) and group.pending_count)
