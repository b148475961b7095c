"""Stores of many partitions: what each costs to be created, opened after a clean close, closed."""

import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from bench.measure import Context, Row, Target, samples, seconds_of
from bench.observed_fs import UnsyncedFileSystem
from bench.workload import OS, TOPIC, fresh_path
from cordwood.log.store.store import Store, StoreSetup

_EACH_MS_MAX: Final = 1.0


def many_partition_rows(context: Context) -> list[Row]:
    """10,000 partitions of one topic, without records and with a record each."""
    count = context.pick(10_000, 1_000)
    new, filled = _of_new(context, count), _of_filled(context, count)
    return [
        *_rows(f"{count:,} partitions without records", "disk", count, new),
        *_rows(f"{count:,} partitions with a record", "-", count, filled),
    ]


def _of_new(context: Context, count: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = defaultdict(list)
    for _ in range(context.runs):
        path = fresh_path(context.directory, "many")
        store = _opened(path)
        taken["created"].append(seconds_of(partial(store.create_topic, TOPIC, partitions=count)))
        taken["closed"].append(seconds_of(store.close))
        _open_and_close(path, taken)
        shutil.rmtree(path)
    return taken


def _of_filled(context: Context, count: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = defaultdict(list)
    path = fresh_path(context.directory, "filled")
    with Store([str(path)], StoreSetup(fs=UnsyncedFileSystem(), has_housekeeping=False)) as store:
        topic = store.create_topic(TOPIC, partitions=count, config=OS)
        for number in range(count):
            topic.append(b"value", partition=number)
    for _ in range(context.runs):
        _open_and_close(path, taken)
    shutil.rmtree(path)
    return taken


def _open_and_close(path: Path, taken: dict[str, list[float]]) -> None:
    stores: list[Store] = []
    taken["opened"].append(seconds_of(lambda: stores.append(_opened(path))))
    taken["closed unchanged"].append(seconds_of(stores[0].close))


def _opened(path: Path) -> Store:
    return Store([str(path)], StoreSetup(has_housekeeping=False))


def _rows(
    title: str, durability: str, count: int, taken_s: Mapping[str, Sequence[float]]
) -> list[Row]:
    return [
        Row(
            title=f"{title}, {what}",
            durability=durability,
            unit="ms each",
            cordwood=samples("Cordwood", [seconds / count * 1e3 for seconds in values]),
            target=Target(bound=_EACH_MS_MAX),
            is_lower_better=True,
        )
        for what, values in taken_s.items()
    ]
