"""Counting requests without losing one."""

import threading
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


def count_all(metrics: RequestMetrics) -> None:
    metrics.observe(PRODUCE, 0.125)
    metrics.observe_all(FETCH, [0.25, 0.5])
    metrics.failed(FETCH, 1)
    metrics.received(3)
    metrics.sent(5)
    metrics.accepted()
    metrics.refused()
    metrics.handshake_failed()


def run_in_threads(metrics: RequestMetrics, count: int) -> None:
    """One after the other."""
    for _ in range(count):
        thread = threading.Thread(target=count_all, args=(metrics,))
        thread.start()
        thread.join()


def test_threads_that_ended_leave_their_counts_and_nothing_else() -> None:
    metrics, other = RequestMetrics(), RequestMetrics()
    count_all(metrics)

    run_in_threads(metrics, 50)
    kept = len(metrics._all)
    first, second = metrics.view(), metrics.view()

    assert kept <= 2  # the counts of this thread, and of the one that ended last
    assert len(metrics._all) == 1
    for _ in range(51):
        count_all(other)
    assert first == second == other.view()


def test_a_count_is_seen_once_while_threads_end_and_others_look() -> None:
    metrics, is_over = RequestMetrics(), threading.Event()

    def look() -> list[int]:
        seen = [0]
        while not is_over.is_set():
            seen.append(metrics.view().bytes_received)
        return seen

    with ThreadPoolExecutor(2) as pool:
        looking = [pool.submit(look) for _ in range(2)]
        run_in_threads(metrics, 300)
        is_over.set()
        seen = [each.result() for each in looking]

    assert all(each == sorted(each) for each in seen)
    assert metrics.view().bytes_received == 900
    assert metrics.view().latencies[FETCH].count == 600
