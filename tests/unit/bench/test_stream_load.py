from __future__ import annotations

from bench.broker_producers import Workload
from bench.stream_load import line_free_values


def test_values_for_peers_have_no_line_ends_so_that_lines_can_be_counted() -> None:
    work = Workload(value_size=1024, records=64)

    values = line_free_values(work)

    assert any(b"\n" in value for value in work.values())
    assert not any(b"\n" in value for value in values)
    assert {len(value) for value in values} == {1024}
