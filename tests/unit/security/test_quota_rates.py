"""Rates and buckets: what a client may do over any time, and how long it waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.security.quota_rates import QuotaMeter, RateWindows, SampledRate, TokenBucket

KAFKA = RateWindows(11, 1.0)
windows = st.builds(RateWindows, st.integers(1, 20), st.sampled_from([1.0, 2.0, 10.0]))
limits = st.floats(1.0, 1e9)


def test_the_rate_of_a_new_client_is_taken_over_all_samples_but_one() -> None:
    rate = SampledRate(KAFKA)

    rate.add(1000, 5.0)

    assert rate.measure(5.0) == pytest.approx(1000 / 10)


def test_a_client_is_throttled_until_its_rate_is_the_limit() -> None:
    rate = SampledRate(KAFKA)
    rate.add(3000, 0.0)

    wait_s = rate.throttle_s(100, 0.0)

    assert wait_s == pytest.approx(20.0)  # 3000 bytes in 10 s and 20 s more


def test_a_client_at_its_limit_is_not_throttled() -> None:
    rate = SampledRate(KAFKA)
    rate.add(1000, 0.0)

    assert rate.throttle_s(100, 0.0) == 0.0


def test_what_is_taken_back_was_never_counted() -> None:
    rate = SampledRate(KAFKA)
    rate.add(400, 3.0)
    before = rate.measure(7.5)

    rate.add(10_000, 7.5)
    rate.add(-10_000, 7.5)

    assert rate.measure(7.5) == before


def test_a_quiet_client_is_forgotten_after_all_samples() -> None:
    rate = SampledRate(KAFKA)
    rate.add(10**9, 0.0)

    assert rate.measure(10.999) > 0
    assert rate.measure(11.0) == 0.0


def test_a_bucket_is_full_at_first_and_in_debt_after_too_much() -> None:
    bucket = TokenBucket(KAFKA.whole_s)

    bucket.take(560, 5.0, 100.0)  # of 55

    assert bucket.throttle_s(5.0, 100.0) == pytest.approx((560 - 55) / 5)
    assert bucket.throttle_s(5.0, 100.0 + 505 / 5) == pytest.approx(0.0)


def test_a_bucket_holds_no_more_than_all_samples() -> None:
    bucket = TokenBucket(KAFKA.whole_s)
    bucket.take(1, 5.0, 0.0)

    bucket.take(56, 5.0, 1e6)

    assert bucket.throttle_s(5.0, 1e6) == pytest.approx(0.2)


def test_a_meter_throttles_as_long_as_kafka() -> None:
    rate, meter = SampledRate(KAFKA), QuotaMeter(KAFKA)
    rate.add(3000, 0.0)

    wait_s = meter.add(3000, 100, 0.0)

    assert wait_s == pytest.approx(rate.throttle_s(100, 0.0))


@given(
    windows=windows,
    limit=limits,
    requests=st.lists(
        st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 5.0)), min_size=1, max_size=100
    ),
)
def test_a_client_that_waits_as_long_as_it_is_told_stays_within_its_quota(
    windows: RateWindows, limit: float, requests: list[tuple[float, float]]
) -> None:
    meter, now_s, sent = QuotaMeter(windows), 0.0, 0.0
    for share, pause_s in requests:
        now_s += pause_s
        size = share * limit * windows.whole_s

        assert sent <= limit * (now_s + windows.sure_s) * 1.000001

        wait_s = meter.add(size, limit, now_s)
        sent += size
        now_s += wait_s


@given(windows=windows, limit=limits, share=st.floats(0.01, 3.0))
def test_a_client_that_always_sends_converges_to_its_quota(
    windows: RateWindows, limit: float, share: float
) -> None:
    meter, now_s, sent = QuotaMeter(windows), 0.0, 0.0
    size = share * limit * windows.whole_s
    while now_s < 60 * windows.whole_s:
        sent += size
        now_s += max(meter.add(size, limit, now_s), 0.001 * windows.whole_s)

    assert 0.5 * limit < sent / now_s < 1.1 * limit


@given(windows=windows, limit=limits, share=st.floats(0.01, 5.0))
def test_a_consumer_makes_progress_whatever_its_answers_weigh(
    windows: RateWindows, limit: float, share: float
) -> None:
    """Its answers are not counted until they are sent, and the quota is kept all the same."""
    meter, now_s, sent = QuotaMeter(windows), 0.0, 0.0
    size = share * limit * windows.whole_s
    while now_s < 100 * windows.whole_s:
        wait_s = meter.add_if_allowed(size, limit, now_s)
        if not wait_s:
            sent += size
        now_s += max(wait_s, 0.005 * windows.whole_s)

    assert 0.25 * limit < sent / now_s < 1.1 * limit


@given(limit=limits, sizes=st.lists(st.floats(0.0, 20.0), min_size=1, max_size=30))
def test_what_a_meter_takes_back_has_no_effect(limit: float, sizes: list[float]) -> None:
    meter, other, now_s = QuotaMeter(KAFKA), QuotaMeter(KAFKA), 0.0
    for share in sizes:
        now_s += share / 3
        taken_back = 5 * share * limit
        meter.add(taken_back, limit, now_s)
        meter.take_back(taken_back, limit, now_s)

        wait_s = meter.add(share * limit, limit, now_s)

        assert wait_s == pytest.approx(other.add(share * limit, limit, now_s), abs=1e-6)


@given(
    limit=st.floats(0.1, 1e6),
    changes=st.lists(st.tuples(st.floats(0.0, 30.0), st.floats(0.0, 20.0)), max_size=100),
)
def test_a_bucket_allows_its_rate_a_full_bucket_and_one_change(
    limit: float, changes: list[tuple[float, float]]
) -> None:
    bucket, now_s, taken = TokenBucket(KAFKA.whole_s), 0.0, 0.0
    for share, pause_s in changes:
        now_s += pause_s
        if bucket.throttle_s(limit, now_s) == 0.0:
            assert taken <= limit * (now_s + KAFKA.whole_s) * 1.000001
            bucket.take(share * limit, limit, now_s)
            taken += share * limit
