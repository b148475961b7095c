"""Fixtures for tests that need a Kafka broker. Installed with Cordwood; no configuration needed.

    cordwood_broker          a new broker for each test
    cordwood_broker_session  one broker for the whole run; tests should use different topics
    cordwood_broker_factory  creates brokers with given arguments; stops them after the test

    @pytest.mark.cordwood_broker(topics={"orders": 3}, config={"log.retention.ms": "1h"})
    def test_orders(cordwood_broker): ...

The marker takes the arguments of `cordwood.Broker`, also those of a protected broker:

    @pytest.mark.cordwood_broker(security="sasl_ssl", users={"alice": "secret"})
    def test_logins(cordwood_broker):
        Producer(cordwood_broker.client_config(user="alice"))
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cordwood.testing import Broker

MARKER = "cordwood_broker"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(**arguments): arguments of cordwood.Broker for the fixture cordwood_broker",
    )


@pytest.fixture
def cordwood_broker(request: pytest.FixtureRequest) -> "Iterator[Broker]":
    """A running broker in a temporary directory, for this test alone."""
    # Imported here, because every run of pytest loads the plugin, even without a broker.
    from cordwood.testing import Broker

    marker = request.node.get_closest_marker(MARKER)
    arguments: dict[str, Any] = {} if marker is None else dict(marker.kwargs)
    with Broker(**arguments) as broker:
        yield broker


@pytest.fixture(scope="session")
def cordwood_broker_session() -> "Iterator[Broker]":
    """A running broker in a temporary directory, for all tests of the run."""
    from cordwood.testing import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def cordwood_broker_factory() -> "Iterator[Callable[..., Broker]]":
    """A function that takes the arguments of `cordwood.Broker` and returns a running broker."""
    from cordwood.testing import Broker

    with ExitStack() as brokers:

        def make(*positional: Any, **named: Any) -> Broker:
            return brokers.enter_context(Broker(*positional, **named))

        yield make
