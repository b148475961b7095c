"""The groups of this broker: found, created, changed from one kind to the other, and forgotten."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from enum import Enum
from typing import Final

from cordwood.broker.groups.classic.classic_group import ClassicGroup
from cordwood.broker.groups.classic.group_config import GroupConfig
from cordwood.broker.groups.classic.metadata_budget import MetadataBudget
from cordwood.broker.groups.journal.group_loader import GroupLoader, LoadedGroups
from cordwood.broker.groups.journal.group_log import Done, GroupLog
from cordwood.broker.groups.journal.offset_keeper import OffsetKeeper
from cordwood.broker.groups.managed_group import EpochGroup
from cordwood.broker.groups.offset_expiry import expired_offsets
from cordwood.broker.net.request import Deferred, Response
from cordwood.broker.net.scheduler import Scheduler, Timer
from cordwood.clock import Clock
from cordwood.format.groups.group_metadata import GroupMetadata, encode_group_metadata
from cordwood.format.groups.group_offsets import GroupMetadataKey, encode_group_metadata_key
from cordwood.log.topics.committed_offsets import CommittedOffsets, GroupRecord
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import MIB

logger = logging.getLogger(__name__)

AnyGroup = ClassicGroup | EpochGroup

# A string of this many characters fits the 16-bit size that it has in a record, whichever they are.
NAME_CHARS_MAX: Final = 8_191
_GROUPS_MAX: Final = 200_000  # each costs about 2 KB, and anyone may name a new one
_METADATA_BYTES_MAX: Final = 256 * MIB  # of all members; a usual one brings 100 bytes
_RELOAD_S: Final = 5.0
_ASKED_SINGLY_MAX: Final = 16  # groups; with more it is cheaper to look at all partitions
_EXPIRY_SLICE: Final = 200  # groups that are looked through before requests have their turn


class CoordinatorState(Enum):
    """Whether groups can be served."""

    NEW = "new"
    LOADING = "loading"
    READY = "ready"
    STOPPED = "stopped"


class GroupCoordinator:
    """All groups, in memory. For the control loop alone, but for `start` and the loading.

    `groups` has those that someone joined, or that were saved; a group that only has committed
    offsets is known by these alone.
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
    ) -> None:
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
        """Begin to load, on a worker. Any thread may call it, once."""
        self.state = CoordinatorState.LOADING
        self._workers.submit(self._load)

    def _load(self) -> None:
        try:
            loaded = self._loader.load()
        except Exception:
            logger.exception("groups could not be loaded, which is tried again")
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
        for group_id, saved in loaded.classic.items():
            group = self._new_classic(group_id)
            group.restore(saved)
            self.groups[group_id] = group
        for other in loaded.consumer:
            self.groups[other.group_id] = other
        self.state = CoordinatorState.READY
        for known in list(self.groups.values()):
            known.resume()
        logger.info("%d groups were loaded", len(self.groups))
        self._plan_expiry()

    def stop(self) -> None:
        """Answer those who wait, and nobody else from here on. Nothing is forgotten."""
        self.state = CoordinatorState.STOPPED
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        for group in self.groups.values():
            group.stop()

    def refusal(self, group_id: str, *, allows_empty: bool = False) -> ErrorCode | None:
        """Why a request about that group cannot be served at all; None when it can.

        Old clients commit and fetch offsets under the empty name.
        """
        if self.state is CoordinatorState.LOADING:
            return ErrorCode.coordinator_load_in_progress
        if self.state is not CoordinatorState.READY:
            return ErrorCode.coordinator_not_available
        if len(group_id) > NAME_CHARS_MAX or not (group_id or allows_empty):
            return ErrorCode.invalid_group_id
        return None

    # --- groups ------------------------------------------------------------------------------

    def find(self, group_id: str) -> AnyGroup | None:
        """The group; one that only has offsets is an empty one of the classic kind."""
        group = self.groups.get(group_id)
        if group is None and self.keeper.is_known(group_id):
            return self._new_classic(group_id)
        return group

    def all_groups(self) -> list[AnyGroup]:
        ids = {*self.groups, *self.keeper.group_ids()}
        return [group for group_id in sorted(ids) if (group := self.find(group_id)) is not None]

    def states(self) -> Counter[tuple[str, str]]:
        """How many groups of which type are in which state."""
        return Counter((group.group_type, group.state_name) for group in self.groups.values())

    def classic_for_join(self, group_id: str, *, is_new_member: bool) -> ClassicGroup | ErrorCode:
        """The group to join; created for a new member, in the place of an empty other kind."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group
        if group is not None and not group.is_empty:
            return ErrorCode.inconsistent_group_protocol
        if not is_new_member:
            return ErrorCode.unknown_member_id
        if group is None and len(self.groups) >= _GROUPS_MAX:
            logger.warning("there are %d groups, and no room for %s", len(self.groups), group_id)
            return ErrorCode.coordinator_not_available
        if group is not None:
            self._forget(group)
        created = self._new_classic(group_id)
        self.groups[group_id] = created
        return created

    def consumer_for_join(
        self, group_id: str, create: Callable[[], EpochGroup]
    ) -> EpochGroup | ErrorCode:
        """The group to join; created in the place of an empty one of the classic kind."""
        group = self.groups.get(group_id)
        if group is not None and not isinstance(group, ClassicGroup):
            return group
        if group is not None and not group.is_empty:
            return ErrorCode.inconsistent_group_protocol
        if group is None and len(self.groups) >= _GROUPS_MAX:
            logger.warning("there are %d groups, and no room for %s", len(self.groups), group_id)
            return ErrorCode.coordinator_not_available
        if group is not None:
            self._forget(group)
        created = create()
        self.groups[group_id] = created
        return created

    def remove(self, group: AnyGroup) -> None:
        """Forget a group that nothing was saved of."""
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
            group.stop()

    def delete(self, group_id: str, done: Done) -> None:
        """Delete an empty group with its offsets; say how that went, once it is durable."""
        group = self.find(group_id)
        if group is None:
            done(ErrorCode.group_id_not_found)
        elif not group.is_empty:
            done(ErrorCode.non_empty_group)
        else:
            self._delete(group, self.keeper.tombstones(group_id), done)

    def _delete(self, group: AnyGroup, records: list[GroupRecord], done: Done) -> None:
        """It goes at once, so that who joins now begins anew; and comes back if that failed."""
        kept = self.groups.pop(group.group_id, None)

        def appended(code: ErrorCode) -> None:
            if kept is not None:
                if code is ErrorCode.none:
                    kept.stop()
                else:
                    self.groups.setdefault(group.group_id, kept)
            done(code)

        tombstones = [] if kept is None else kept.tombstones()
        self.group_log.append(group.group_id, [*records, *tombstones], appended)

    def _forget(self, group: AnyGroup) -> None:
        """Its offsets stay: a group of the other kind takes over."""
        del self.groups[group.group_id]
        group.stop()
        self.group_log.append(group.group_id, group.tombstones(), lambda code: None)

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

    def with_offsets(
        self, group_ids: Iterable[str] | None, answer: Callable[[ErrorCode], Response | Deferred]
    ) -> Response | Deferred:
        """`answer`, when all that was committed has been read; without `group_ids`, by any group.

        Nearly always that is now. Else someone wrote the topic past the broker; `answer` is told
        how reading that went.
        """
        names = None if group_ids is None else list(group_ids)
        if names is None or len(names) > _ASKED_SINGLY_MAX:
            is_current = self.offsets.is_current()
        else:
            is_current = all(self.offsets.is_current(name) for name in names)
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
        """Look through some of the groups, then through the rest in another turn."""
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
        gone = self.keeper.replaced_topics(group_id)
        records = self.keeper.tombstones(group_id, [*due, *gone])
        if len(due) == len(offsets) and group_id in self.groups and _is_unused(group):
            logger.info("group %s is empty and has no offsets: it is forgotten", group_id)
            self._delete(group, records, lambda code: None)
        elif records:
            logger.info("%d offsets of group %s have expired", len(records), group_id)
            self.group_log.append(group_id, records, lambda code: None)


def _is_unused(group: AnyGroup) -> bool:
    return group.is_empty and not (isinstance(group, ClassicGroup) and group.pending_count)
