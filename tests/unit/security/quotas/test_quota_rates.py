"""Token buckets: what a client may use over any time, and how long it waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.security.quotas.quota_rates import RateWindows, TokenBucket

KAFKA = RateWindows(11, 1.0)
BURST_S = KAFKA.burst_s
bursts = st.floats(0.5, 600.0)
limits = st.floats(0.1, 1e9)
# Each request as a share of the bucket, and the time before it in seconds.
arrivals = st.lists(st.tuples(st.floats(0.0, 5.0), st.floats(0.0, 30.0)), min_size=1, max_size=60)


def test_the_burst_is_what_all_samples_but_one_allow() -> None:
    assert BURST_S == 10.0
    assert RateWindows(1, 2.0).burst_s == 2.0
    assert KAFKA.whole_s == 11.0


def test_a_client_is_throttled_as_long_as_by_kafka() -> None:
    """Kafka: the rate is 300 over 10 s, and (300 - 100) / 100 * 10 s is 20 s."""
    bucket = TokenBucket(BURST_S)

    assert bucket.use(3000, 100, 0.0) == pytest.approx(20.0)


def test_a_client_at_its_limit_is_not_throttled() -> None:
    bucket = TokenBucket(BURST_S)

    assert bucket.use(1000, 100, 0.0) == 0.0
    assert bucket.use(100, 100, 1.0) == 0.0


def test_a_wait_pays_the_debt() -> None:
    bucket = TokenBucket(BURST_S)
    wait_s = bucket.use(3000, 100, 0.0)

    assert bucket.wait_s(100, wait_s - 1) == pytest.approx(1.0)
    assert bucket.wait_s(100, wait_s) == 0.0


def test_what_has_to_wait_is_not_used() -> None:
    bucket = TokenBucket(BURST_S)
    bucket.use(900, 100, 0.0)

    waits = [bucket.use_if_allowed(500, 100, 0.0) for _ in range(10)]

    assert waits == [pytest.approx(4.0)] * 10
    assert bucket.use_if_allowed(500, 100, 4.0) == 0.0


def test_an_amount_that_no_bucket_holds_is_allowed_from_a_full_one() -> None:
    bucket = TokenBucket(BURST_S)

    assert bucket.use_if_allowed(5000, 100, 0.0) == 0.0
    assert bucket.use_if_allowed(5000, 100, 0.0) == pytest.approx(50.0)
    assert bucket.use_if_allowed(5000, 100, 50.0) == 0.0


def test_what_is_given_back_was_never_used() -> None:
    bucket = TokenBucket(BURST_S)
    bucket.use(900, 100, 0.0)

    bucket.use(5000, 100, 0.0)
    bucket.give_back(5000)

    assert bucket.use(200, 100, 0.0) == pytest.approx(1.0)


def test_a_larger_limit_makes_a_larger_bucket_at_once() -> None:
    bucket = TokenBucket(BURST_S)
    bucket.use(1500, 100, 0.0)

    assert bucket.wait_s(100, 0.0) == pytest.approx(5.0)
    assert bucket.wait_s(1000, 0.0) == 0.0


@given(burst_s=bursts, limit=limits, arrivals=arrivals)
def test_a_client_that_waits_as_long_as_it_is_told_stays_within_its_quota(
    burst_s: float, limit: float, arrivals: list[tuple[float, float]]
) -> None:
    bucket, now_s, used = TokenBucket(burst_s), 0.0, 0.0
    for share, pause_s in arrivals:
        now_s += pause_s
        amount = share * limit * burst_s

        assert used <= limit * (now_s + burst_s) * 1.000001

        wait_s = bucket.use(amount, limit, now_s)
        used += amount
        now_s += wait_s


@given(burst_s=bursts, limit=limits, arrivals=arrivals)
def test_a_consumer_that_tries_again_after_each_wait_stays_within_its_quota(
    burst_s: float, limit: float, arrivals: list[tuple[float, float]]
) -> None:
    bucket, now_s, used = TokenBucket(burst_s), 0.0, 0.0
    for share, pause_s in arrivals:
        now_s += pause_s
        amount = share * limit * burst_s
        while wait_s := bucket.use_if_allowed(amount, limit, now_s):
            now_s += wait_s

        assert used <= limit * (now_s + burst_s) * 1.000001

        used += amount


@pytest.mark.parametrize("is_consumer", [False, True])
@given(burst_s=bursts, limit=limits, share=st.floats(0.01, 5.0))
def test_a_client_that_always_has_something_to_send_converges_to_its_quota(
    is_consumer: bool, burst_s: float, limit: float, share: float
) -> None:
    bucket, now_s, used = TokenBucket(burst_s), 0.0, 0.0
    amount = share * limit * burst_s
    while now_s < 100 * burst_s:
        if is_consumer:
            wait_s = bucket.use_if_allowed(amount, limit, now_s)
            used += 0.0 if wait_s else amount
        else:
            wait_s = bucket.use(amount, limit, now_s)
            used += amount
        now_s += wait_s + 0.0001 * burst_s

    assert used / now_s == pytest.approx(limit, rel=0.08)
