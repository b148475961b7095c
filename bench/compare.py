"""script/bench compare OLD.json NEW.json

Says in plain words which rows changed by more than the spread of their samples. Measures nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Figures, read_figures
from bench.measure import Row
from bench.report import render_number

USAGE = "usage: script/bench compare OLD.json NEW.json"

_Name = tuple[str, str, str]  # suite, title, durability


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One row in two runs. `factor` is new / old of the medians."""

    suite: str
    old: Row
    new: Row

    @property
    def factor(self) -> float:
        before, after = self.old.cordwood.median, self.new.cordwood.median
        if before == after:
            return 1.0
        return after / before if before else float("inf")

    @property
    def is_beyond_spread(self) -> bool:
        """Whether no sample of one run lies between the samples of the other.

        A row of one sample has no spread, so its median must change by a tenth.
        """
        before, after = self.old.cordwood.values, self.new.cordwood.values
        if len(before) == 1 or len(after) == 1:
            return not 0.9 < self.factor < 1.1
        return min(after) > max(before) or max(after) < min(before)

    @property
    def is_better(self) -> bool:
        return self.factor < 1.0 if self.new.is_lower_better else self.factor > 1.0

    def __str__(self) -> str:
        old, new = self.old.cordwood, self.new.cordwood
        word = "better" if self.is_better else "worse"
        return (
            f"{word}: {self.suite}: {self.new.title} ({self.new.durability}): "
            f"{render_number(old.median)} ±{old.spread / 2:.0%} -> "
            f"{render_number(new.median)} {self.new.unit} ±{new.spread / 2:.0%}, {self._words()}"
        )

    def _words(self) -> str:
        factor = self.factor
        if factor == float("inf"):
            return "was 0"
        if factor >= 2:
            return f"{render_number(factor)} times as much"
        if factor > 1:
            return f"{factor - 1:.0%} more"
        return f"{1 - factor:.0%} less"


def compare(old: Figures, new: Figures) -> list[str]:
    """The lines to print: changed rows, rows on one side only, counts."""
    before, after = dict(_named(old)), dict(_named(new))
    changes = [
        Change(suite=name[0], old=before[name], new=row)
        for name, row in after.items()
        if name in before
    ]
    comparable = [c for c in changes if c.old.unit == c.new.unit]
    changed = [change for change in comparable if change.is_beyond_spread]
    changed.sort(key=lambda change: change.is_better)
    lines = [str(change) for change in changed]
    lines += [
        f"not compared: {_shown(_name(c))}: the unit was {c.old.unit}, it is {c.new.unit}"
        for c in changes
        if c.old.unit != c.new.unit
    ]
    lines += [f"only in the old run: {_shown(name)}" for name in before if name not in after]
    lines += [f"only in the new run: {_shown(name)}" for name in after if name not in before]
    lines += _warnings(old, new, comparable)
    better = sum(change.is_better for change in changed)
    lines.append(
        f"{better} better, {len(changed) - better} worse, "
        f"{len(comparable) - len(changed)} within their spread, of {len(comparable)} rows in both"
    )
    return lines


def _named(figures: Figures) -> Iterator[tuple[_Name, Row]]:
    for suite, rows in figures.rows.items():
        for row in rows:
            yield (suite, row.title, row.durability), row


def _name(change: Change) -> _Name:
    return change.suite, change.new.title, change.new.durability


def _shown(name: _Name) -> str:
    return f"{name[0]}: {name[1]} ({name[2]})"


def _warnings(old: Figures, new: Figures, changes: Sequence[Change]) -> list[str]:
    """What may explain a difference besides the code."""
    lines = []
    if old.is_quick != new.is_quick:
        lines.append("note: one of the runs is --quick, with smaller sizes")
    differing = [
        fact
        for fact, value in old.machine.items()
        if fact != "load" and new.machine.get(fact, value) != value
    ]
    if differing:
        lines.append(f"note: the runs differ in: {', '.join(differing)}")
    disturbed = sum(change.old.is_disturbed or change.new.is_disturbed for change in changes)
    if disturbed:
        lines.append(f"note: other processes disturbed {disturbed} of the rows in one of the runs")
    return lines


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2:
        raise SystemExit(USAGE)
    old, new = (_read(Path(argument)) for argument in arguments)
    print("\n".join(compare(old, new)))
    return 0


def _read(path: Path) -> Figures:
    try:
        return read_figures(path)
    except FileNotFoundError:
        raise SystemExit(f"bench: {path} does not exist") from None
    except (ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"bench: {path} was not written by --json: {error!r}") from error
