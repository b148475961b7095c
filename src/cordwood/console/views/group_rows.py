"""The table of groups. Pure."""

from typing import Final

from cordwood.console.facts.cluster_facts import Snapshot
from cordwood.console.views.lag import GroupRow, group_row
from cordwood.console.views.table import Column, TablePage, TableState, table_page

COLUMNS: Final[tuple[Column[GroupRow], ...]] = (
    Column(name="name", title="Group", value=lambda row: row.name),
    Column(name="state", title="State", value=lambda row: row.state),
    Column(name="kind", title="Protocol", value=lambda row: row.kind),
    Column(name="topics", title="Topics", value=lambda row: len(row.topics), is_number=True),
    Column(
        name="partitions", title="Partitions", value=lambda row: row.partition_count, is_number=True
    ),
    Column(
        name="lag",
        title="Lag",
        value=lambda row: row.lag,
        is_number=True,
        help="Records that the group has not read yet, in all partitions together.",
    ),
    Column(name="worst", title="Largest lag", value=lambda row: row.worst, is_number=True),
)


def groups_page(snapshot: Snapshot, state: TableState) -> TablePage[GroupRow]:
    rows = [group_row(group, snapshot) for group in snapshot.groups.values()]
    return table_page(
        rows, COLUMNS, state, text=lambda row: f"{row.name} {row.state} {' '.join(row.topics)}"
    )
