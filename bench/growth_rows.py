"""Growth in bytes, in segments and in partitions: five kinds of work, three sizes of each."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from bench.grown_store import (
    PER_BATCH,
    VALUE_BYTES,
    Shape,
    append_us,
    closed_store,
    crashed_store,
    make_batches,
    open_ms,
    opened_store,
    random_read_us,
    recovery_ms,
    scan_us,
)
from bench.measure import Context, Line, Row, Target, measure_in_turns, samples
from cordwood.quantities import MIB

GROWTH_MAX: Final = 3.0  # log 1000 / log 10

_BATCH_BYTES: Final = PER_BATCH * VALUE_BYTES
_TIMES: Final = (1, 10, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Growth:
    """What grows, and a store of each size."""

    name: str  # as in "segments"
    sizes: tuple[int, ...]
    shapes: tuple[Shape, ...]
    is_unit: bool  # whether opening and recovery are divided by the number of these


def byte_rows(context: Context) -> list[Row]:
    """One log with more and more batches, in segments of the default size."""
    sizes = tuple(context.pick(16, 4) * times for times in _TIMES)
    batches = [size * MIB // _BATCH_BYTES for size in sizes]
    tail = 2 * MIB // _BATCH_BYTES
    growth = _Growth(
        name="MiB",
        sizes=sizes,
        shapes=tuple(Shape(batches=each, unsynced_batches=tail) for each in batches),
        is_unit=False,
    )
    unsynced = replace(
        growth,
        name="MiB not synced",
        shapes=tuple(Shape(batches=each, unsynced_batches=each) for each in batches),
        is_unit=True,
    )
    return [*_rows(context, growth), _recovery_row(context, unsynced)]


def segment_rows(context: Context) -> list[Row]:
    """One log; each append fills a segment and begins a new one."""
    sizes = tuple(context.pick(20, 10) * times for times in _TIMES)
    shapes = (Shape(batches=n, segment_batches=1, unsynced_batches=1) for n in sizes)
    return _rows(context, _Growth(name="segments", sizes=sizes, shapes=tuple(shapes), is_unit=True))


def partition_rows(context: Context) -> list[Row]:
    """One topic; each partition has two batches, one of them not synced before the crash."""
    sizes = tuple(context.pick(10, 4) * times for times in _TIMES)
    shapes = (Shape(batches=2, partitions=n, unsynced_batches=1) for n in sizes)
    return _rows(
        context, _Growth(name="partitions", sizes=sizes, shapes=tuple(shapes), is_unit=True)
    )


def _rows(context: Context, growth: _Growth) -> list[Row]:
    paths = {
        size: closed_store(context.directory, shape)
        for size, shape in zip(growth.sizes, growth.shapes, strict=True)
    }
    batch, count = make_batches(1)[0], context.pick(200, 60)
    opened = _measured(context, {size: partial(open_ms, path) for size, path in paths.items()})
    with ExitStack() as stack:
        stores = {size: stack.enter_context(opened_store(path)) for size, path in paths.items()}

        def costs(work: Callable[..., float], *arguments: object) -> dict[int, list[float]]:
            return _measured(
                context, {size: partial(work, store, *arguments) for size, store in stores.items()}
            )

        read = costs(random_read_us, 10 * count)
        scanned = costs(scan_us)
        appended = costs(append_us, batch, count)
    for path in paths.values():
        shutil.rmtree(path)
    name = growth.name
    return [
        growth_row(f"append, by {name}", name, "µs a record", appended, durability="os"),
        growth_row(f"random read, by {name}", name, "µs", read),
        growth_row(f"scan, by {name}", name, "µs a record", scanned),
        _opening_row(f"open, by {name}", growth, opened),
        _recovery_row(context, growth),
    ]


def _recovery_row(context: Context, growth: _Growth) -> Row:
    paths = {
        size: crashed_store(context.directory, shape)
        for size, shape in zip(growth.sizes, growth.shapes, strict=True)
    }
    taken = _measured(context, {size: partial(recovery_ms, path) for size, path in paths.items()})
    for path in paths.values():
        shutil.rmtree(path)
    return _opening_row(f"recovery, by {growth.name}", growth, taken)


def _opening_row(title: str, growth: _Growth, taken_ms: Mapping[int, Sequence[float]]) -> Row:
    if not growth.is_unit:
        return growth_row(title, growth.name, "ms", taken_ms)
    each = {size: [ms / size * 1e3 for ms in values] for size, values in taken_ms.items()}
    return growth_row(title, growth.name, f"µs for each of the {growth.name}", each)


def _measured(
    context: Context, subjects: Mapping[int, Callable[[], float]]
) -> dict[int, list[float]]:
    taken = measure_in_turns({str(n): work for n, work in subjects.items()}, runs=context.runs)
    return {int(n): values for n, values in taken.items()}


def growth_row(
    title: str,
    grows: str,
    unit: str,
    costs: Mapping[int, Sequence[float]],
    *,
    durability: str = "-",
    first: int | None = None,
) -> Row:
    """The cost at the last size divided by that at `first`, in each run; default: index 0."""
    sizes = sorted(costs)
    smallest, largest = sizes[0] if first is None else first, sizes[-1]
    grown = [large / small for large, small in zip(costs[largest], costs[smallest], strict=True)]
    line = Line(
        grows=grows,
        unit=unit,
        sizes=tuple(map(float, sizes)),
        costs=tuple(tuple(costs[size]) for size in sizes),
    )
    told = ", ".join(
        f"{size:,}: {cost:.3g}" for size, cost in zip(sizes, line.medians, strict=True)
    )
    return Row(
        title=title,
        durability=durability,
        unit="times",
        cordwood=samples("Cordwood", grown),
        target=Target(bound=GROWTH_MAX),
        is_lower_better=True,
        note=f"{unit}: {told}",
        line=line,
    )
