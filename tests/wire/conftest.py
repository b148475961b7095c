"""One broker for all tests of a worker process; each test takes topics and groups of its own."""

import gc
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cordwood

# Nothing here depends on how long a member may be silent, so let it be short where it may.
CONFIG = {
    "group.consumer.session.timeout.ms": 10_000,
    "log.cleaner.backoff.ms": 0,
    "log.retention.ms": -1,  # records dated long ago stay, however slow the machine is
}

MakeTopic = Callable[..., str]

# kafka-python leaves some of its sockets to the garbage collector: those whose connection was
# refused, and those it was about to use when it was closed. Our own are counted, see
# `test_connection_limits`.
LEFT_SOCKETS = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if str(item.path).startswith(f"{here}/"):
            item.add_marker(LEFT_SOCKETS)


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """What clients left behind goes here, and not in a test that comes later and is elsewhere."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def broker() -> Iterator[cordwood.Broker]:
    """A running broker that tests share: whoever stops, fills or breaks one makes its own."""
    with cordwood.Broker(config=CONFIG) as running:
        yield running


@pytest.fixture(scope="session")
def numbers() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def names(request: pytest.FixtureRequest, numbers: Iterator[int]) -> Iterator[str]:
    """Names for topics and groups that no other test uses."""
    test = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")[:80]
    return (f"{test}-{number}" for number in numbers)


@pytest.fixture
def make_topic(broker: cordwood.Broker, names: Iterator[str]) -> MakeTopic:
    """Creates a topic that only this test knows: `make_topic(partitions=3, retention_ms=1)`."""

    def make(*, partitions: int = 1, **config: object) -> str:
        name = next(names)
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        broker.create_topic(name, partitions=partitions, config=dotted)
        return name

    return make


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    """A topic with one partition."""
    return make_topic()
