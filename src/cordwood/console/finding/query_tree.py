"""What a search looks for, as a tree. Values only."""

from cordwood.value_class import dataclass, replace

ANY = "any"  # key or value
KEY = "key"
VALUE = "value"
HEADER = "header"

PARTITION = "partition"
OFFSET = "offset"
TIME = "time"
SIZE = "size"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMatch:
    """Bytes that a field contains, or a regular expression in RE2's syntax.

    With `is_whole` the field is equal to the text. `header` is the name of a header.
    """

    field: str
    text: str
    is_regex: bool = False
    is_whole: bool = False
    header: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeMatch:
    """A number in [low, high); None: no bound."""

    field: str
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PathMatch:
    """A field of a JSON value, compared with a text, a number, true, false or null.

    `text` is the literal as it was written: texts are compared with it, also if it is a number.
    """

    path: tuple[str, ...]
    operator: str  # = != < <= > >= ~
    literal: str | float | bool | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class And:
    items: tuple["Query", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Or:
    items: tuple["Query", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    item: "Query"


Query = TextMatch | RangeMatch | PathMatch | And | Or | Not


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What every match satisfies, so that the rest need not be read. Ranges are [low, high)."""

    partition_low: int = 0
    partition_high: int | None = None
    offset_low: int = 0
    offset_high: int | None = None
    time_low_ms: int | None = None

    def has_partition(self, number: int) -> bool:
        is_below = self.partition_high is None or number < self.partition_high
        return self.partition_low <= number and is_below


def bounds_of(query: Query) -> Bounds:
    """The bounds that follow from a query: from its ranges that are joined by `and`."""
    items = query.items if isinstance(query, And) else (query,)
    found = Bounds()
    for item in items:
        if not isinstance(item, RangeMatch):
            continue
        low, high = item.low, item.high
        if item.field == PARTITION:
            found = _joined(found, "partition", low, high)
        elif item.field == OFFSET:
            found = _joined(found, "offset", low, high)
        elif item.field == TIME and low is not None:
            known = found.time_low_ms
            found = _replaced(found, time_low_ms=low if known is None else max(known, low))
    return found


def _joined(bounds: Bounds, name: str, low: int | None, high: int | None) -> Bounds:
    known_low = getattr(bounds, f"{name}_low")
    known_high = getattr(bounds, f"{name}_high")
    return _replaced(
        bounds,
        **{
            f"{name}_low": max(known_low, low or 0),
            f"{name}_high": known_high
            if high is None
            else high
            if known_high is None
            else min(known_high, high),
        },
    )


def _replaced(bounds: Bounds, **changes: int | None) -> Bounds:
    return replace(bounds, **changes)  # type: ignore[arg-type]
