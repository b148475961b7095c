"""A scan with `where` returns exactly the rows that filtering the whole scan returns.

The logs hold all that a scan has rules for: compaction with its gaps, transactions committed,
aborted and open, compressed batches, late records, records without a key, archived segments, a
start that is not 0, and several partitions.
"""

import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from cordwood.format.compression import Codec
from cordwood.library import open_writer
from cordwood.log.compaction.cleaner import CleanerConfig
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import Offset, ProducerId, TimestampMs
from cordwood.spark.source.batch_plan import plan_batch
from cordwood.spark.source.range_count import count_range
from cordwood.spark.source.range_reader import LossPolicy, RangeReader
from cordwood.spark.source.source_options import SourceOptions
from cordwood.spark.where.condition import COMPARE, Operator
from fakes.client_batches import client_batch, marker_batch

TOPIC = "a"
KINDS = ("plain", "compacted", "archived", "trimmed", "indexed")
COLUMNS = ("partition", "offset", "timestamp", "key", "value")
START_MS = 1_700_000_000_000
BATCHES = 60
_HOMES: list[TemporaryDirectory[str]] = []


@pytest.fixture(scope="module", autouse=True)
def _homes() -> Iterator[None]:
    yield
    made_log.cache_clear()
    while _HOMES:
        _HOMES.pop().cleanup()


@cache
def made_log(kind: str) -> str:
    """The path of a store with a log of that kind."""
    home = TemporaryDirectory(prefix="where-")
    _HOMES.append(home)
    path = str(Path(home.name, "data"))
    special: dict[str, dict[str, object]] = {
        "plain": {},
        "trimmed": {},
        "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0},
        "archived": {
            "archive.url": f"file://{home.name}/archive",
            "local.retention.bytes": 0,
        },
        "indexed": {"key.index": "true"},
    }
    config: dict[str, object] = {
        **special[kind],
        "segment.records": 40,
        "retention.ms": -1,
        "durability": "os",
        "file.delete.delay.ms": 0,
    }
    with open_writer(
        [path],
        defaults=TopicConfig(),
        cleaner=CleanerConfig(enable=False),
        has_housekeeping=False,
    ) as store:
        topic = store.create_topic(TOPIC, partitions=2, config=config)
        for log in topic.partitions:
            assert isinstance(log, PartitionLog), log
            _fill(log, random.Random(f"{kind}-{log.partition}"))
        if kind == "compacted":
            store.compact(TOPIC, force=True)
        if kind == "archived":
            store.archive_now()
        if kind == "trimmed":
            topic.partitions[0].delete_before(57)
        store.maintain()
    return path


def _fill(log: PartitionLog, chance: random.Random) -> None:
    sequences = {1: 0, 2: 0}
    is_open: set[int] = set()
    for turn in range(BATCHES):
        now_ms = START_MS + 1000 * turn
        producer = chance.choice([-1, -1, 1, 2])
        if producer in is_open and chance.random() < 0.4:
            _end(log, producer, now_ms, is_abort=chance.random() < 0.5)
            is_open.discard(producer)
            continue
        count = chance.randint(1, 9)
        log.batches.append_batch(
            client_batch(
                *[chance.randbytes(chance.randint(0, 30)) for _ in range(count)],
                keys=[_key(log, chance) for _ in range(count)],
                timestamps=[now_ms + chance.choice([0, 1, 500, -9000]) for _ in range(count)],
                codec=chance.choice([Codec.NONE, Codec.NONE, Codec.ZSTD]),
                producer_id=producer,
                sequence=sequences[producer] if producer > 0 else -1,
                transactional=producer > 0,
            )
        )
        if producer > 0:
            sequences[producer] += count
            is_open.add(producer)
        if chance.random() < 0.1:
            log.roll()


def _key(log: PartitionLog, chance: random.Random) -> bytes | None:
    if chance.random() < 0.1 and not log.source.allows_gaps:
        return None
    return b"k%d" % chance.randint(0, 12)


def _end(log: PartitionLog, producer: int, now_ms: int, *, is_abort: bool) -> None:
    facts = MarkerFacts(
        producer_id=ProducerId(producer),
        producer_epoch=0,
        coordinator_epoch=0,
        offset=Offset(0),
        timestamp=TimestampMs(now_ms),
        is_abort=is_abort,
    )
    log.batches.append_marker(marker_batch(producer, is_abort=is_abort, timestamp=now_ms), facts)


# --- conditions as text, with their meaning -------------------------------------------------------

Meaning = Any  # a function of a row to True, False or None
_TIMES = st.integers(START_MS - 10_000, START_MS + 1000 * BATCHES + 2000)
_OFFSETS = st.integers(-1, 330)
_KEYS = st.integers(0, 13).map(lambda number: b"k%d" % number)


def _leaf(column: str, operator: Operator, value: Any) -> tuple[str, Meaning]:
    def means(row: dict[str, Any]) -> bool | None:
        return None if row[column] is None else COMPARE[operator](row[column], value)

    return f"{column} {operator} {_literal(column, value)}", means


def _literal(column: str, value: Any) -> str:
    if column == "key":
        return f"X'{value.hex()}'"
    return f"timestamp_millis({value})" if column == "timestamp" else str(value)


def _membership(column: str, values: list[Any], *, is_in: bool) -> tuple[str, Meaning]:
    def means(row: dict[str, Any]) -> bool | None:
        return None if row[column] is None else (row[column] in values) == is_in

    listed = ", ".join(_literal(column, value) for value in values)
    return f"{column} {'' if is_in else 'NOT '}IN ({listed})", means


def _both(one: tuple[str, Meaning], other: tuple[str, Meaning]) -> tuple[str, Meaning]:
    def means(row: dict[str, Any]) -> bool | None:
        each = (one[1](row), other[1](row))
        return False if False in each else None if None in each else True

    return f"({one[0]}) AND ({other[0]})", means


def _either(one: tuple[str, Meaning], other: tuple[str, Meaning]) -> tuple[str, Meaning]:
    def means(row: dict[str, Any]) -> bool | None:
        each = (one[1](row), other[1](row))
        return True if True in each else None if None in each else False

    return f"({one[0]}) OR ({other[0]})", means


def _not(one: tuple[str, Meaning]) -> tuple[str, Meaning]:
    def means(row: dict[str, Any]) -> bool | None:
        value = one[1](row)
        return None if value is None else not value

    return f"NOT ({one[0]})", means


_VALUES = {"partition": st.integers(0, 2), "offset": _OFFSETS, "timestamp": _TIMES, "key": _KEYS}
_LEAVES = st.sampled_from(sorted(_VALUES)).flatmap(
    lambda column: st.one_of(
        st.tuples(st.sampled_from(sorted(COMPARE)), _VALUES[column]).map(
            lambda drawn: _leaf(column, *drawn)
        ),
        st.tuples(st.lists(_VALUES[column], min_size=1, max_size=50), st.booleans()).map(
            lambda drawn: _membership(column, drawn[0], is_in=drawn[1])
        ),
    )
)
CONDITIONS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: _both(*two)),
        st.tuples(inner, inner).map(lambda two: _either(*two)),
        inner.map(_not),
    ),
    max_leaves=6,
)


def scanned(path: str, **options: str) -> tuple[list[dict[str, Any]], int]:
    """The rows of a scan as its tasks return them, and their number as it is counted."""
    parsed = SourceOptions.for_batch(
        {"path": path, "subscribe": TOPIC, "maxBytesPerPartition": "2KiB", **options}
    )
    reader = RangeReader(
        columns=COLUMNS,
        key=parsed.key,
        loss=LossPolicy(fails=True),
        isolation=parsed.isolation,
        where=parsed.where,
    )
    tasks = plan_batch(parsed, [path])
    rows = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    for row in rows:
        row["timestamp"] = round(row["timestamp"].timestamp() * 1000)
    return rows, sum(count_range(reader, task) for task in tasks)


@cache
def everything(kind: str, isolation: str) -> list[dict[str, Any]]:
    rows, _ = scanned(made_log(kind), **{"kafka.isolation.level": isolation})
    return rows


@settings(max_examples=60)
@given(CONDITIONS, st.sampled_from(KINDS), st.sampled_from(["read_committed", "read_uncommitted"]))
def test_where_returns_exactly_the_rows_that_filtering_the_whole_scan_returns(
    condition: tuple[str, Meaning], kind: str, isolation: str
) -> None:
    text, means = condition
    expected = [row for row in everything(kind, isolation) if means(row) is True]

    rows, count = scanned(made_log(kind), where=text, **{"kafka.isolation.level": isolation})

    assert rows == expected
    assert count == len(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_the_logs_hold_what_they_are_for(kind: str) -> None:
    committed, everything_there = (
        everything(kind, "read_committed"),
        everything(kind, "read_uncommitted"),
    )
    offsets = [row["offset"] for row in everything_there if row["partition"] == 0]
    times = [row["timestamp"] for row in everything_there if row["partition"] == 0]

    assert 20 < len(committed) < len(everything_there)
    assert times != sorted(times)
    assert offsets != list(range(offsets[0], offsets[0] + len(offsets)))
