"""Fixtures for tests that need a Kafka broker. Installed with Varve, nothing to configure.

    varve_broker          a broker of its own for each test
    varve_broker_session  one broker for the whole run; each test takes topics of its own
    varve_broker_factory  makes brokers as the test wants them; they are stopped at its end

    @pytest.mark.varve_broker(topics={"orders": 3}, config={"log.retention.ms": "1h"})
    def test_orders(varve_broker): ...

The marker's arguments are those of `varve.Broker`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from varve.testing import Broker

MARKER = "varve_broker"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARKER}(**arguments): arguments of varve.Broker for the fixture varve_broker"
    )


@pytest.fixture
def varve_broker(request: pytest.FixtureRequest) -> "Iterator[Broker]":
    """A running broker in a temporary directory, for this test alone."""
    # Imported here: the plugin is loaded in every run of pytest, also in those without a broker.
    from varve.testing import Broker

    marker = request.node.get_closest_marker(MARKER)
    arguments: dict[str, Any] = {} if marker is None else dict(marker.kwargs)
    with Broker(**arguments) as broker:
        yield broker


@pytest.fixture(scope="session")
def varve_broker_session() -> "Iterator[Broker]":
    """A running broker in a temporary directory, for all tests of the run."""
    from varve.testing import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def varve_broker_factory() -> "Iterator[Callable[..., Broker]]":
    """A function that takes the arguments of `varve.Broker` and returns one that runs."""
    from varve.testing import Broker

    with ExitStack() as brokers:

        def make(*positional: Any, **named: Any) -> Broker:
            return brokers.enter_context(Broker(*positional, **named))

        yield make
