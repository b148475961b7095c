"""Counting requests without losing one."""

from concurrent.futures import ThreadPoolExecutor

from cordwood.broker.net.requests.request_metrics import RequestMetrics

PRODUCE, FETCH = 0, 1


def test_counts_are_kept_by_api_and_by_error() -> None:
    metrics = RequestMetrics()
    for latency_s in (0.001, 0.002):
        metrics.observe(PRODUCE, latency_s)
    metrics.observe(FETCH, 0.5)
    metrics.failed(FETCH, 1)
    metrics.failed(FETCH, 1)

    seen = metrics.view()

    assert {api: view.count for api, view in seen.latencies.items()} == {PRODUCE: 2, FETCH: 1}
    assert seen.latencies[PRODUCE].sum_s == 0.003
    assert seen.errors == {(FETCH, 1): 2}


def test_no_count_of_any_thread_is_lost() -> None:
    metrics = RequestMetrics()

    def work(_: int) -> None:
        for _ in range(2000):
            metrics.observe(PRODUCE, 0.001)
            metrics.failed(PRODUCE, 7)
            metrics.received(3)
            metrics.sent(5)
        metrics.accepted()
        metrics.refused()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))

    seen = metrics.view()
    assert seen.latencies[PRODUCE].count == 16_000
    assert seen.errors == {(PRODUCE, 7): 16_000}
    assert (seen.bytes_received, seen.bytes_sent) == (48_000, 80_000)
    assert (seen.connections_accepted, seen.connections_refused) == (8, 8)


def test_nothing_counted_is_nothing_seen() -> None:
    seen = RequestMetrics().view()

    assert not seen.latencies
    assert not seen.errors
    assert seen.bytes_received == 0
