"""Filtering, sorting and paging of tables, on the server. Pure.

The state of a table is in the address, so that a link shows what its sender saw.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from cordwood.value_class import dataclass, field

ROWS_MAX: Final = 100
_FILTER_CHARS_MAX: Final = 200

Row = TypeVar("Row")
Key = str | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[Row]):
    """`value` is what rows are sorted by and what CSV has; None sorts last."""

    name: str
    title: str
    value: Callable[[Row], Key | None]
    is_number: bool = False
    help: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """What a viewer wants to see of a table."""

    filter: str = ""
    sort: str = ""
    is_descending: bool = False
    page: int = 1

    @classmethod
    def parse(cls, parameters: Mapping[str, str], *, sort: str = "") -> "TableState":
        """From the parameters of an address. A minus before the name of a column: descending."""
        wanted = parameters.get("sort", sort)
        number = parameters.get("page", "1")
        return cls(
            filter=parameters.get("filter", "").strip()[:_FILTER_CHARS_MAX],
            sort=wanted.removeprefix("-")[:50],
            is_descending=wanted.startswith("-"),
            page=max(int(number), 1)
            if number.isascii() and number.isdigit() and len(number) < 9
            else 1,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePage(Generic[Row]):
    """The rows of one page. `matched` of `total` rows pass the filter."""

    rows: tuple[Row, ...]
    total: int
    matched: int
    page: int
    page_count: int
    state: TableState
    columns: tuple[Column[Row], ...] = field(repr=False)
    all_rows: tuple[Row, ...] = field(default=(), repr=False)

    def sort_of(self, name: str) -> str:
        """`ascending`, `descending` or `none`, as aria-sort has it."""
        if name != self.state.sort:
            return "none"
        return "descending" if self.state.is_descending else "ascending"

    def next_sort(self, column: Column[Row]) -> str:
        """The value of `sort` that a click on the head of a column asks for."""
        if column.name != self.state.sort:
            return f"-{column.name}" if column.is_number else column.name
        return column.name if self.state.is_descending else f"-{column.name}"

    @property
    def first_number(self) -> int:
        return (self.page - 1) * ROWS_MAX + 1 if self.matched else 0

    @property
    def last_number(self) -> int:
        return min(self.page * ROWS_MAX, self.matched)


def table_page(
    rows: Sequence[Row],
    columns: Sequence[Column[Row]],
    state: TableState,
    *,
    text: Callable[[Row], str],
) -> TablePage[Row]:
    """The page of `rows` that `state` asks for. `text` is what the filter looks into."""
    words = state.filter.lower().split()
    found = (
        [row for row in rows if all(word in text(row).lower() for word in words)]
        if words
        else list(rows)
    )
    by_name = {column.name: column for column in columns}
    column = by_name.get(state.sort)
    if column is not None:
        value = column.value
        known = [row for row in found if value(row) is not None]
        unknown = [row for row in found if value(row) is None]
        known.sort(key=lambda row: _sortable(value(row)), reverse=state.is_descending)
        found = known + unknown
    page_count = max((len(found) + ROWS_MAX - 1) // ROWS_MAX, 1)
    page = min(state.page, page_count)
    return TablePage(
        rows=tuple(found[(page - 1) * ROWS_MAX : page * ROWS_MAX]),
        total=len(rows),
        matched=len(found),
        page=page,
        page_count=page_count,
        state=state,
        columns=tuple(columns),
        all_rows=tuple(found),
    )


def _sortable(value: Key | None) -> tuple[int, float, str]:
    """Numbers before texts, so that a column may have both."""
    if isinstance(value, str):
        return 1, 0.0, value.lower()
    return 0, float(value or 0), ""
