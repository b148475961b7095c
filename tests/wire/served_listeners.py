"""A broker with several listeners, in this process."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cordwood.broker.server import BrokerServer
from cordwood.settings import settings_from
from cordwood.testing import TEST_CONFIG


@contextmanager
def served(directory: Path, config: Mapping[str, object]) -> Iterator[BrokerServer]:
    settings = settings_from({**TEST_CONFIG, "log.dirs": str(directory), **config})
    store = settings.store.open(settings.topic_defaults)
    server = BrokerServer(store, settings.broker, security=settings.security, owns_store=True)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def addresses(server: BrokerServer) -> list[str]:
    """Of its listeners, in their order."""
    return ["{}:{}".format(*acceptor.address) for acceptor in server._acceptors]
