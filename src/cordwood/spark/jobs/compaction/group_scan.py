"""The first pass of a distributed compaction: find the keys of each group of segments.

One task reads one group and yields a row for each key, with the key's newest offset there, and one
row of facts. A key is known by its 128-bit hash, with a new key for each run, as in the store's own
cleaner. Records of aborted transactions are ignored.
"""

import json
from array import array
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cordwood.format import kernel_tables as tables
from cordwood.log.compaction.batch_filter import RECORDS_PER_RUN
from cordwood.log.compaction.compaction_transactions import TransactionWalk, WalkEffect, WalkState
from cordwood.log.compaction.compaction_walk import map_chunk
from cordwood.log.compaction.key_map import KeyMap
from cordwood.spark.jobs.compaction.group_plan import GroupPlan
from cordwood.spark.jobs.compaction.group_walk import (
    RunSecret,
    chunks_of,
    new_key_map,
    open_group,
    record_count_max,
)

SCAN_SCHEMA: Final = (
    "log int, group int, low long, high long, offset long, is_dirty boolean, facts string"
)
_TYPES: Final[dict[str, pa.DataType]] = {
    "log": pa.int32(),
    "group": pa.int32(),
    "low": pa.int64(),
    "high": pa.int64(),
    "offset": pa.int64(),
    "is_dirty": pa.bool_(),
    "facts": pa.string(),
}
_ARROW: Final = pa.schema([pa.field(name, kind) for name, kind in _TYPES.items()])
_SLOTS_PER_BATCH: Final = 1 << 18
_WORDS_PER_SLOT: Final = 3


def scan_group(group: GroupPlan, run: RunSecret) -> Iterator[pa.RecordBatch]:
    """The rows of one group."""
    key_map = new_key_map(
        run.secret, key_count_max=record_count_max(group), start_offset=group.start
    )
    walk = TransactionWalk(group.aborted)
    table = array("q", bytes(8 * tables.RECORD_ROW * RECORDS_PER_RUN))
    for decoder, first, stop in chunks_of(open_group(group)):
        map_chunk(key_map, decoder, first, stop, walk, table)
    yield from _key_rows(group, key_map)
    facts = {"keys": key_map.used, **render_effect(walk.effect)}
    yield pa.RecordBatch.from_pylist(
        [{"log": group.log, "group": group.number, "facts": json.dumps(facts)}], schema=_ARROW
    )


def _key_rows(group: GroupPlan, key_map: KeyMap) -> Iterator[pa.RecordBatch]:
    """The entries of the map, read from its memory: the halves of the hash, and offset + 1."""
    slots = np.frombuffer(key_map.words, dtype=np.uint64).reshape(-1, _WORDS_PER_SLOT)
    for start in range(0, len(slots), _SLOTS_PER_BATCH):
        part = slots[start : start + _SLOTS_PER_BATCH]
        used = part[part[:, 2] != 0]
        count = len(used)
        if not count:
            continue
        offsets = used[:, 2].astype(np.int64) - 1
        columns: list[Any] = [
            pa.repeat(pa.scalar(group.log, pa.int32()), count),
            pa.repeat(pa.scalar(group.number, pa.int32()), count),
            pa.array(np.ascontiguousarray(used[:, 0]).view(np.int64)),
            pa.array(np.ascontiguousarray(used[:, 1]).view(np.int64)),
            pa.array(offsets),
            pa.array(offsets >= group.first_dirty),
            pa.nulls(count, pa.string()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def render_effect(effect: WalkEffect) -> dict[str, Any]:
    return {
        "ended": sorted(effect.ended),
        "committed": sorted(effect.state.committed),
        "met": sorted(effect.state.met),
    }


def parse_effect(facts: Mapping[str, Any]) -> WalkEffect:
    return WalkEffect(
        ended=frozenset(facts["ended"]),
        state=WalkState(
            committed=frozenset(facts["committed"]),
            met=frozenset((producer_id, offset) for producer_id, offset in facts["met"]),
        ),
    )
