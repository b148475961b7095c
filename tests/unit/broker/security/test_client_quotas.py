"""Quotas in force: who is measured together, who waits, and how much is remembered."""

import threading

import pytest

from cordwood.broker.config.access_config import QuotaConfig
from cordwood.broker.error_codes import ErrorCode, RefusedError
from cordwood.broker.security.client_quotas import PAUSE_S_MAX, ClientQuotas, to_ms
from cordwood.security.quotas.quota_rules import QuotaKey
from cordwood.security.security_state import QuotaEntity, SecurityState


class Seconds:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def time() -> Seconds:
    return Seconds()


@pytest.fixture
def quotas(time: Seconds) -> ClientQuotas:
    return ClientQuotas(QuotaConfig(), time)


def state(entity: QuotaEntity, **limits: float) -> SecurityState:
    return SecurityState(quotas={entity: limits})


def test_without_quotas_nothing_is_set(quotas: ClientQuotas) -> None:
    quotas.apply(state(QuotaEntity(ip="10.0.0.1"), connection_creation_rate=1.0))

    assert not quotas.is_set
    assert not quotas.times_requests


def test_a_producer_waits_until_its_rate_is_the_limit(quotas: ClientQuotas) -> None:
    quotas.apply(state(QuotaEntity("alice"), producer_byte_rate=100.0))

    first = quotas.produced("alice", "a", 1000)
    second = quotas.produced("alice", "b", 500)

    assert first == 0.0
    assert second == pytest.approx(5.0)


def test_two_users_do_not_affect_each_other(quotas: ClientQuotas) -> None:
    quotas.apply(state(QuotaEntity(""), producer_byte_rate=100.0))
    quotas.produced("alice", "app", 10_000)

    assert quotas.produced("bob", "app", 100) == 0.0
    assert quotas.produced("alice", "app", 100) > 0


def test_an_answer_that_has_to_wait_is_not_counted(quotas: ClientQuotas, time: Seconds) -> None:
    quotas.apply(state(QuotaEntity("alice"), consumer_byte_rate=100.0))
    quotas.fetched("alice", "app", 900)

    pauses = [quotas.fetched("alice", "app", 500) for _ in range(10)]

    assert pauses == [pytest.approx(4.0)] * 10
    time.now_s += 4.0
    assert quotas.fetched("alice", "app", 500) == 0.0


def test_one_answer_may_hold_what_the_windows_allow(quotas: ClientQuotas) -> None:
    quotas.apply(state(QuotaEntity("alice"), consumer_byte_rate=100.0))

    assert quotas.fetch_bytes_max("alice", "app") == 1000
    assert quotas.fetch_bytes_max("bob", "app") is None


def test_time_of_handlers_delays_by_one_sample_at_most(quotas: ClientQuotas) -> None:
    quotas.apply(state(QuotaEntity(None, "app"), request_percentage=1.0))

    assert quotas.times_requests
    assert quotas.took("alice", "app", 0.05) == 0.0
    assert quotas.took("alice", "app", 60.0) == 1.0


def test_a_pause_has_a_limit(quotas: ClientQuotas) -> None:
    quotas.apply(state(QuotaEntity("alice"), producer_byte_rate=1.0))

    assert quotas.produced("alice", "app", 10**9) == PAUSE_S_MAX


def test_a_new_limit_counts_at_once_and_what_was_used_is_not_forgotten(
    quotas: ClientQuotas,
) -> None:
    quotas.apply(state(QuotaEntity("alice"), producer_byte_rate=100.0))
    quotas.produced("alice", "app", 1500)

    is_new = quotas.apply(state(QuotaEntity("alice"), producer_byte_rate=1000.0))

    assert is_new
    assert quotas.produced("alice", "app", 1) == 0.0
    assert quotas.produced("alice", "app", 9_000) > 0


def test_the_same_quotas_again_change_nothing(quotas: ClientQuotas) -> None:
    first = state(QuotaEntity("alice"), producer_byte_rate=100.0)
    quotas.apply(first)

    assert not quotas.apply(state(QuotaEntity("alice"), producer_byte_rate=100.0))


def test_strict_changes_are_refused_while_earlier_ones_are_not_paid_for(
    quotas: ClientQuotas, time: Seconds
) -> None:
    quotas.apply(state(QuotaEntity("alice"), controller_mutation_rate=1.0))
    mutations = quotas.mutations("alice", "app", is_strict=True)
    mutations.count(21)  # the bucket holds 11: the first change may be larger

    with pytest.raises(RefusedError) as refused:
        mutations.count(1)

    assert refused.value.code is ErrorCode.throttling_quota_exceeded
    assert mutations.throttle_ms == 10_000
    time.now_s += 10.0
    quotas.mutations("alice", "app", is_strict=True).count(1)


def test_changes_of_old_clients_are_made_and_the_client_is_throttled(
    quotas: ClientQuotas,
) -> None:
    quotas.apply(state(QuotaEntity("alice"), controller_mutation_rate=1.0))
    mutations = quotas.mutations("alice", "app", is_strict=False)

    mutations.count(11)
    before = mutations.throttle_ms
    mutations.count(4)

    assert (before, mutations.throttle_ms) == (0, 4000)


def test_changes_without_a_quota_cost_nothing(quotas: ClientQuotas) -> None:
    mutations = quotas.mutations("alice", "app", is_strict=True)

    mutations.count(10**9)

    assert mutations.throttle_ms == 0


def test_a_hundred_thousand_client_ids_are_not_all_remembered(
    quotas: ClientQuotas, time: Seconds
) -> None:
    quotas.apply(state(QuotaEntity(None, ""), producer_byte_rate=100.0))
    quotas.produced("alice", "steady", 10**6)
    for number in range(100_000):
        time.now_s += 0.00001
        quotas.produced("mallory", f"client-{number}", 1)
        if not number % 1000:
            quotas.produced("alice", "steady", 1)

    assert quotas.view().tracked <= 10_000
    assert len(quotas._clients) <= 10_000
    assert quotas.produced("alice", "steady", 1) > 0  # it was used all the time


def test_what_was_quiet_for_an_hour_is_forgotten_first(quotas: ClientQuotas, time: Seconds) -> None:
    quotas.apply(state(QuotaEntity(None, ""), producer_byte_rate=100.0))
    for number in range(9_999):
        quotas.produced("u", f"old-{number}", 1)
    time.now_s += 3601.0

    for number in range(2):
        quotas.produced("u", f"new-{number}", 1)

    assert quotas.view().tracked == 2


def test_throttled_requests_are_counted_by_key_and_kind(quotas: ClientQuotas) -> None:
    quotas.apply(state(QuotaEntity("", ""), producer_byte_rate=100.0))

    for _ in range(3):
        quotas.produced("alice", "app", 1000)

    view = quotas.view()
    label = (QuotaKey.PRODUCER_BYTE_RATE.value, "user-client-id")
    assert view.throttled == {label: 2}
    assert view.throttled_s[label] == pytest.approx(10.0 + 20.0)


def test_many_threads_count_everything(quotas: ClientQuotas) -> None:
    quotas.apply(state(QuotaEntity("alice"), request_percentage=1e9))

    def work() -> None:
        for _ in range(1000):
            quotas.took("alice", "app", 1.0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    use = quotas.rates_of("alice", "app").requests
    assert use is not None
    assert use._bucket._missing == pytest.approx(4000 * 100)


def test_a_pause_is_never_rounded_to_none() -> None:
    assert to_ms(0.0) == 0
    assert to_ms(1e-9) == 1
    assert to_ms(1e12) == 2**31 - 1


def test_long_client_ids_do_not_fill_the_memory(quotas: ClientQuotas) -> None:
    quotas.apply(state(QuotaEntity(None, ""), producer_byte_rate=100.0))
    for number in range(100):
        quotas.produced("alice", f"{number:05}" + "x" * 32_000, 1)

    remembered = sum(len(client_id) for _, client_id in quotas._clients)
    measured = sum(len(use.client_id or "") for _, use in quotas._uses)
    assert remembered + measured < 250_000
