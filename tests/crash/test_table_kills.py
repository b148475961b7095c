"""Jobs that follow a topic into a table, killed for real; `script/faults tables` kills more."""

from pathlib import Path

import pytest

from cordwood.spark.tables.lake_target import TableFormat
from crash.table_kills import kill_followers

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.mark.parametrize("kind", list(TableFormat))
def test_a_killed_follower_loses_nothing_and_repeats_nothing(
    tmp_path: Path, kind: TableFormat
) -> None:
    said: list[str] = []

    assert kill_followers(tmp_path, kind, 4, 7, said.append) == 0, said
