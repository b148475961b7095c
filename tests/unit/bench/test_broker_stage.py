from __future__ import annotations

import pytest

from bench.broker_stage import CORDWOOD, Load, Stage, cpu_rows, figure_row, load_row

_KAFKA = "Kafka, default"


def _load(rate: float, *, cpu_s: float | None = None) -> Load:
    return Load(records=1000, value_bytes=1_000_000, seconds=1000 / rate, server_cpu_s=cpu_s)


def test_a_load_knows_its_rates() -> None:
    load = Load(records=2_000_000, value_bytes=200_000_000, seconds=4.0, server_cpu_s=3.0)

    assert load.records_per_s == 500_000
    assert load.mb_per_s == 50.0
    assert load.cpu_s_per_million == 1.5


def test_a_load_without_processor_time_has_none_to_tell() -> None:
    assert _load(100.0).cpu_s_per_million is None


def test_a_row_is_judged_by_its_ratio_to_the_judge() -> None:
    figures = {CORDWOOD: [30.0], "no log": [90.0], _KAFKA: [10.0]}

    row = figure_row("title", "os", "MB/s", figures, judge=_KAFKA, ratio=2.0)

    assert row.limit is not None
    assert row.limit.name == _KAFKA
    assert [peer.name for peer in row.peers] == ["no log"]
    assert row.is_reached is True


def test_where_less_is_better_the_ratio_is_turned_round() -> None:
    figures = {CORDWOOD: [100.0], _KAFKA: [350.0]}

    row = figure_row("t", "os", "MB", figures, judge=_KAFKA, ratio=3.0, is_lower_better=True)

    assert row.ratio_to(row.limit or pytest.fail("no limit")) == 3.5
    assert row.is_reached is True


@pytest.mark.parametrize("judge", [None, _KAFKA])
def test_without_its_judge_a_row_has_no_target(judge: str | None) -> None:
    figures = {CORDWOOD: [30.0], "no log": [90.0]}

    row = figure_row("title", "os", "MB/s", figures, judge=judge, ratio=2.0)

    assert row.target is None
    assert row.is_reached is None


def test_a_row_of_loads_takes_one_figure_of_each() -> None:
    loads = {CORDWOOD: [_load(10.0), _load(20.0)], _KAFKA: [_load(5.0), _load(5.0)]}

    row = load_row("t", "os", "records/s", loads, lambda load: load.records_per_s, judge=_KAFKA)

    assert row.cordwood.values == (10.0, 20.0)
    assert row.limit is not None
    assert row.limit.values == (5.0, 5.0)


def test_processor_time_is_a_row_of_those_for_whom_it_is_known() -> None:
    loads = {CORDWOOD: [_load(1.0, cpu_s=0.5)], "no log": [_load(1.0)]}

    (row,) = cpu_rows("produce", "os", loads)

    assert (row.title, row.unit) == ("produce, server's CPU", "s/M records")
    assert row.cordwood.values == (500.0,)
    assert row.peers == ()


def test_there_is_no_row_of_processor_time_where_the_system_does_not_tell() -> None:
    assert cpu_rows("produce", "os", {CORDWOOD: [_load(1.0)]}) == []


def test_a_note_says_which_of_the_peers_is_missing_and_why() -> None:
    stage = Stage()
    stage.absent["Kafka"] = "there is no Java"

    assert stage.note("1 KiB", "Kafka", "Redis") == "1 KiB; Kafka skipped: there is no Java"
    assert stage.note("1 KiB", "Redis") == "1 KiB"
