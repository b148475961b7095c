"""How fast clients may connect."""

import pytest

from cordwood.broker.config.access_config import QuotaConfig
from cordwood.broker.security.connection_rates import ConnectionRates
from cordwood.quantities import INT32_MAX
from cordwood.security.security_state import QuotaEntity, SecurityState


class Seconds:
    now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def rates(time: Seconds, **limits: float) -> ConnectionRates:
    made = ConnectionRates(QuotaConfig(quota_window_num=2), time)
    made.apply(
        SecurityState(
            quotas={
                QuotaEntity(ip=address.replace("_", ".").removeprefix("ip")): {
                    "connection_creation_rate": limit
                }
                for address, limit in limits.items()
            }
        )
    )
    return made


def test_without_limits_nobody_waits() -> None:
    made = ConnectionRates()

    waits = [
        made.accept_wait_s("A", broker_limit=INT32_MAX, listener_limit=INT32_MAX)
        for _ in range(1000)
    ]

    assert set(waits) == {0.0}
    assert made.address_wait_s("10.0.0.1", 1.0) == 0.0


def test_clients_of_one_address_queue_for_their_turns() -> None:
    made = rates(Seconds(), ip10_0_0_1=2.0)

    waits = [made.address_wait_s("10.0.0.1", 1.2) for _ in range(7)]

    assert waits == [0.0, 0.0, pytest.approx(0.5), pytest.approx(1.0), None, None, None]
    assert made.address_wait_s("10.0.0.2", 1.2) == 0.0


def test_an_address_has_one_spelling() -> None:
    made = rates(Seconds(), ip10_0_0_1=1.0)
    made.address_wait_s("10.0.0.1", 9.0)

    assert made.address_wait_s("::ffff:10.0.0.1", 9.0) == pytest.approx(1.0)


def test_the_stricter_of_broker_and_listener_counts() -> None:
    time = Seconds()
    made = rates(time)

    assert made.accept_wait_s("A", broker_limit=10, listener_limit=1) == 0.0
    assert made.accept_wait_s("A", broker_limit=10, listener_limit=1) == 0.0
    assert made.accept_wait_s("A", broker_limit=10, listener_limit=1) == pytest.approx(1.0)
    assert made.accept_wait_s("B", broker_limit=10, listener_limit=1) == 0.0
    time.now_s += 1.0
    assert made.accept_wait_s("A", broker_limit=10, listener_limit=1) == 0.0


def test_addresses_are_not_remembered_without_end() -> None:
    made = rates(Seconds(), ip=1.0)

    for number in range(20_000):
        made.address_wait_s(f"10.1.{number // 250}.{number % 250}", 1.0)

    assert len(made._addresses) == 10_000
