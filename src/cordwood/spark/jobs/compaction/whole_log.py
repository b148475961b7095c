"""Compaction of a whole log by one task, as the store's own cleaner does it.

One pass over all groups finds the newest offset of each key, a second one filters group after
group. Nothing is shuffled, and each byte is read twice instead of three times. That is right for
logs of which a cluster has many, or which take a core a few seconds; a log that is larger is worth
the shuffle, which spreads it over all machines.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Final

from cordwood.format import kernel_tables as tables
from cordwood.log.compaction.batch_filter import RECORDS_PER_RUN
from cordwood.log.compaction.compaction_transactions import TransactionWalk, WalkEffect, WalkState
from cordwood.log.compaction.compaction_walk import map_chunk
from cordwood.log.compaction.key_map import KeyMap
from cordwood.quantities import GIB
from cordwood.spark.jobs.compaction.group_plan import GroupPlan
from cordwood.spark.jobs.compaction.group_rewrite import RewrittenGroup, filter_group
from cordwood.spark.jobs.compaction.group_walk import RunSecret, chunks_of, new_key_map, open_group

WHOLE_BYTES_MAX: Final = 2 * GIB  # a core reads it twice in some seconds
_OFFSETS_MAX: Final = 8_000_000  # of keys the map has 27 bytes each


def is_for_one_task(groups: Sequence[GroupPlan], *, bytes_max: int) -> bool:
    """Whether a log with these groups is small enough for one task, in bytes and in keys."""
    offsets = sum(group.stop - group.start for group in groups)
    return sum(group.size for group in groups) <= bytes_max and offsets <= _OFFSETS_MAX


def rewrite_log(groups: Sequence[GroupPlan], run: RunSecret) -> Iterator[RewrittenGroup]:
    """The results of all groups of one log, in order."""
    newest, effects = _newest_keys(groups, run)
    state = WalkState()
    for group, effect in zip(groups, effects, strict=True):
        before = state_before(group, state)
        yield filter_group(group, run, newest, before)
        state = effect.after(before)


def state_before(group: GroupPlan, state: WalkState) -> WalkState:
    """The transactions that matter to a group, of those that were met before it."""
    begun = {(t.producer_id, t.first_offset) for t in group.aborted}
    return WalkState(committed=state.committed, met=state.met & begun)


def _newest_keys(groups: Sequence[GroupPlan], run: RunSecret) -> tuple[KeyMap, list[WalkEffect]]:
    """The newest offset of each key in the dirty part, and the transactions of each group."""
    key_map = new_key_map(
        run.secret,
        key_count_max=sum(group.stop - group.start for group in groups),
        start_offset=groups[0].first_dirty,
    )
    table = array("q", bytes(8 * tables.RECORD_ROW * RECORDS_PER_RUN))
    effects: list[WalkEffect] = []
    for group in groups:
        walk = TransactionWalk(group.aborted)
        for decoder, first, stop in chunks_of(open_group(group)):
            map_chunk(key_map, decoder, first, stop, walk, table)
        effects.append(walk.effect)
    key_map.pass_to(groups[0].upper)
    return key_map, effects
