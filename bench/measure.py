"""Samples, medians and ratios.

Subjects of a comparison are measured in turn, in the same run: first a warm-up of each, then one
sample of each, repeatedly. So other load on the machine affects all of them alike.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TypeVar

Figure = TypeVar("Figure")

# The kernel needs a few percent to write back a row's data; more is another process.
DISTURBED_SHARE = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The parameters of a suite."""

    directory: Path  # on the measured disk; empty, and removed at the end
    is_quick: bool
    runs: int
    say: Callable[[str], None]
    resources: ExitStack = field(default_factory=ExitStack)  # closed when the suite has ended
    before: Path | None = None  # a checkout of an earlier version, to compare with
    facts: dict[str, str] = field(
        default_factory=dict
    )  # facts about its peers, printed with those of the machine

    def pick(self, full: int, quick: int) -> int:
        """A size of the workload."""
        return quick if self.is_quick else full


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """One figure, measured several times."""

    name: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def spread(self) -> float:
        """The difference between largest and smallest sample, relative to the median."""
        middle = self.median
        return (max(self.values) - min(self.values)) / middle if middle else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of a row: for its own median, or for its ratio to the limit."""

    bound: float
    is_ratio: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The cost of one unit of work as something grows: a line of the plot."""

    grows: str  # what grows: "segments"
    unit: str  # unit of the costs: "µs"
    sizes: tuple[float, ...]
    costs: tuple[tuple[float, ...], ...]  # for each size, all its samples

    @property
    def medians(self) -> tuple[float, ...]:
        return tuple(median(values) for values in self.costs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table. `limit` is what the machine can do, `peers` are other systems."""

    title: str
    durability: (
        str  # the durability of an acknowledged record: "disk", "os", or "-" if none is written
    )
    unit: str
    cordwood: Samples
    limit: Samples | None = None
    peers: tuple[Samples, ...] = ()
    target: Target | None = None
    is_lower_better: bool = False
    note: str = ""
    others_share: float | None = None  # share of the cores used by other processes meanwhile
    line: Line | None = None  # if the row is about growth

    @property
    def beside(self) -> list[Samples]:
        """Everything compared with Cordwood, the limit first."""
        return [*([] if self.limit is None else [self.limit]), *self.peers]

    @property
    def is_disturbed(self) -> bool:
        """Whether other processes used too much to judge the figure or the ratio."""
        return self.others_share is not None and self.others_share > DISTURBED_SHARE

    def ratio_to(self, other: Samples) -> float:
        """How many times better Cordwood is; below 1, the other is ahead.

        The median over pairs of consecutive samples.
        """
        pairs = list(zip(self.cordwood.values, other.values, strict=False))
        if self.is_lower_better:
            pairs = [(theirs, ours) for ours, theirs in pairs]
        return median(better / worse if worse else 0.0 for better, worse in pairs)

    @property
    def is_reached(self) -> bool | None:
        """Whether the target is reached; None if there is no target."""
        if self.target is None:
            return None
        if self.target.is_ratio:
            assert self.limit is not None, self.title
            return self.ratio_to(self.limit) >= self.target.bound
        if self.is_lower_better:
            return self.cordwood.median < self.target.bound
        return self.cordwood.median >= self.target.bound


RowMaker = Callable[[Context], list[Row]]  # of the rows of one kind of work


def measure_in_turns(
    subjects: Mapping[str, Callable[[], Figure]], *, runs: int, warm_up: bool = True
) -> dict[str, list[Figure]]:
    """The figures of each subject, one per run. A subject does its own set-up and clean-up."""
    if warm_up:
        for subject in subjects.values():
            subject()
    figures: dict[str, list[Figure]] = {name: [] for name in subjects}
    for _ in range(runs):
        for name, subject in subjects.items():
            figures[name].append(subject())
    return figures


def samples(name: str, values: Sequence[float]) -> Samples:
    return Samples(name=name, values=tuple(values))


def measure_row(
    title: str,
    cordwood: Callable[[], float],
    *,
    runs: int,
    durability: str,
    unit: str,
    limit: tuple[str, Callable[[], float]] | None = None,
    peers: Mapping[str, Callable[[], float]] | None = None,
    target: Target | None = None,
    is_lower_better: bool = False,
    note: str = "",
) -> Row:
    """A row whose subjects each return one figure, in `unit`."""
    subjects: dict[str, Callable[[], float]] = {"Cordwood": cordwood}
    if limit is not None:
        subjects[limit[0]] = limit[1]
    subjects |= peers or {}
    figures = {
        name: samples(name, values)
        for name, values in measure_in_turns(subjects, runs=runs).items()
    }
    return Row(
        title=title,
        durability=durability,
        unit=unit,
        cordwood=figures["Cordwood"],
        limit=None if limit is None else figures[limit[0]],
        peers=tuple(figures[name] for name in peers or {}),
        target=target,
        is_lower_better=is_lower_better,
        note=note,
    )


class Stopwatch:
    """Seconds spent inside `with`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._started = 0.0

    def __enter__(self) -> "Stopwatch":
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._started


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Two percentiles of the duration of one call, in µs."""

    p50_us: float
    p99_us: float


def latency_of(calls: Sequence[Callable[[], object]]) -> Latency:
    """Time each call once."""
    clock = time.perf_counter_ns
    taken_ns = []
    for call in calls:
        started = clock()
        call()
        taken_ns.append(clock() - started)
    taken_ns.sort()
    return Latency(
        p50_us=taken_ns[len(taken_ns) // 2] / 1000,
        p99_us=taken_ns[len(taken_ns) * 99 // 100] / 1000,
    )


def seconds_of(work: Callable[[], object]) -> float:
    with Stopwatch() as watch:
        work()
    return watch.seconds


def latency_rows(
    title: str,
    durability: str,
    figures: dict[str, list[Latency]],
    *,
    limit: str,
    p99_us: float,
    p50_us: float | None = None,
    note: str = "",
) -> list[Row]:
    """Two rows of one measurement: the median and the 99th percentile."""

    def row(
        percentile: str, figure: Callable[[Latency], float], bound: float | None, note: str = ""
    ) -> Row:
        columns = {
            name: samples(name, [figure(latency) for latency in latencies])
            for name, latencies in figures.items()
        }
        return Row(
            title=f"{title}, {percentile}",
            durability=durability,
            unit="µs",
            cordwood=columns["Cordwood"],
            limit=columns[limit],
            peers=tuple(s for name, s in columns.items() if name not in ("Cordwood", limit)),
            target=None if bound is None else Target(bound=bound),
            is_lower_better=True,
            note=note,
        )

    return [
        row("p50", lambda latency: latency.p50_us, p50_us, note),
        row("p99", lambda latency: latency.p99_us, p99_us),
    ]
