from typing import NamedTuple

import pytest

from cordwood.console.views.table import Column, TablePage, TableState, table_page


class Row(NamedTuple):
    name: str
    size: int | None


COLUMNS: tuple[Column[Row], ...] = (
    Column(name="name", title="Name", value=lambda row: row.name),
    Column(name="size", title="Size", value=lambda row: row.size, is_number=True),
)
ROWS = [Row(f"row-{n:03d}", n if n % 10 else None) for n in range(250)]


def page(**parameters: str) -> TablePage[Row]:
    state = TableState.parse(parameters, sort="name")
    return table_page(ROWS, COLUMNS, state, text=lambda row: row.name)


def test_a_page_has_a_hundred_rows() -> None:
    found = page(page="3")

    assert [row.name for row in found.rows] == [f"row-{n}" for n in range(200, 250)]
    assert (found.first_number, found.last_number, found.page_count) == (201, 250, 3)


def test_every_word_of_the_filter_must_be_in_the_row() -> None:
    assert [row.name for row in page(filter="ROW 24").rows] == [
        "row-024",
        "row-124",
        "row-224",
        *(f"row-{n}" for n in range(240, 250)),
    ]


def test_what_is_not_known_sorts_last_in_both_directions() -> None:
    assert page(sort="size").rows[0].size == 1
    assert page(sort="-size").rows[0].size == 249
    assert page(sort="size", page="3").rows[-1].size is None
    assert page(sort="-size", page="3").rows[-1].size is None


@pytest.mark.parametrize("number", ["0", "-1", "x", "9" * 30, "", "99999999", "²"])
def test_a_page_that_is_none_shows_one_that_is(number: str) -> None:
    assert page(page=number).rows


def test_a_click_on_the_head_turns_the_order() -> None:
    [name, size] = COLUMNS

    assert page(sort="name").next_sort(name) == "-name"
    assert page(sort="-name").next_sort(name) == "name"
    assert page(sort="name").next_sort(size) == "-size"
    assert page(sort="-name").sort_of("name") == "descending"


def test_an_unknown_column_sorts_nothing() -> None:
    assert page(sort="__class__").rows[0].name == "row-000"
