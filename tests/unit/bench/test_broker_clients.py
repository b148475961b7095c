"""What is read out of the output of Kafka's own tools, and the records the clients send."""

from __future__ import annotations

import pytest

from bench.broker_consumers import parse_consumer_performance
from bench.broker_producers import ClientFailedError, Workload, parse_producer_performance

_PRODUCER = """\
Warmup first 10000 records. Steady state results will print after the complete test summary.
In steady state.
11286 records sent, 2255.4 records/sec (2.20 MB/sec), 4128.3 ms avg latency, 4466.0 ms max latency.
30000 records sent, 4100.601422 records/sec (4.00 MB/sec), 3749.56 ms avg latency, 4551 ms 99.9th.
"""
_STEADY = "20000 steady state records sent, 3555.5 records/sec (3.47 MB/sec), 4268.06 ms avg.\n"
_CONSUMER = """\
start.time, end.time, MB.sec, data.consumed.in.nMsg, nMsg.sec, fetch.time.ms, fetch.nMsg.sec
2026-11-15 23:49:36:300, 2026-11-15 23:49:38:199, 10.3339, 20095, 10581.8852, 885, 22706.2147
"""


def test_the_rate_after_the_warm_up_is_taken_from_the_producer() -> None:
    assert parse_producer_performance(_PRODUCER + _STEADY) == 3555.5


def test_without_a_warm_up_the_rate_of_the_whole_run_is_taken() -> None:
    assert parse_producer_performance(_PRODUCER) == 4100.601422


def test_the_rate_of_fetching_is_taken_from_the_consumer() -> None:
    assert parse_consumer_performance(_CONSUMER) == 22706.2147


@pytest.mark.parametrize("parse", [parse_producer_performance, parse_consumer_performance])
def test_a_tool_that_printed_no_figures_has_failed(parse: object) -> None:
    assert callable(parse)

    with pytest.raises(ClientFailedError, match="no connection"):
        parse("no connection\n")


def test_values_are_of_one_size_all_different_and_the_same_in_every_run() -> None:
    work = Workload(value_size=100, records=500)

    values = work.values()

    assert {len(value) for value in values} == {100}
    assert len(set(values)) == 500
    assert values == work.values()


def test_few_records_need_few_values() -> None:
    assert len(Workload(value_size=1024, records=3).values()) == 3


def test_every_frame_holds_as_many_records_as_the_first() -> None:
    frames = Workload(value_size=100, records=2000).frames("topic", 65_536)

    assert {frame.records for frame in frames} == {frames[0].records}
    assert 500 < frames[0].records < 700
