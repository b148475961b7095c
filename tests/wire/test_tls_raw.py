"""Over TLS, a connection keeps every promise of a plain one: the same tests, with another client.

Half-closed here means that TCP ends without TLS's farewell, as it does when a process dies.
"""

import inspect
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

import cordwood
from fakes.tls_files import TlsFiles
from wire import test_connections, test_departures, test_fetch, test_large_frames, test_produce
from wire.conftest import CONFIG
from wire.tls_client import TlsClient
from wire.waiting import await_true

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
MODULES = (test_connections, test_departures, test_fetch, test_large_frames, test_produce)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(Path(tmp_path_factory.mktemp("tls")))


@pytest.fixture(scope="module")
def broker(files: TlsFiles) -> Iterator[cordwood.Broker]:
    """In place of the one that all tests share."""
    with cordwood.Broker(config={**CONFIG, **files.listener_config()}) as running:
        yield running


@pytest.fixture(autouse=True, params=VERSIONS, ids=["tls12", "tls13"])
def context(
    request: pytest.FixtureRequest, files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> ssl.SSLContext:
    """What all clients of a test use."""
    made = files.client_context(version=request.param)
    for module in MODULES:
        monkeypatch.setattr(module, "RawClient", partial(TlsClient, context=made))
    return made


@pytest.fixture(autouse=True)
def delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client leaves when the broker's machine has all it sent.

    Otherwise an answer that arrives after it has left makes its machine discard the rest.
    """
    leave = test_departures.part

    def part(client: TlsClient, how: str) -> None:
        await_true(lambda: test_departures.unsent_bytes(client.socket) == 0)
        leave(client, how)

    monkeypatch.setattr(test_departures, "part", part)


def connected(broker: cordwood.Broker, context: ssl.SSLContext) -> Iterator[TlsClient]:
    with TlsClient(broker.bootstrap_servers, context) as client:
        yield client


client = pytest.fixture(connected)
other = pytest.fixture(connected)
bystander = pytest.fixture(connected)


def _shared_tests(module: ModuleType) -> dict[str, object]:
    """Those with a raw client, and with the broker of the fixture, not one of their own."""
    return {
        name: test
        for name, test in vars(module).items()
        if name.startswith("test_")
        and inspect.isfunction(test)
        and {"broker", "client"} & set(inspect.signature(test).parameters)
        and "RawClient" in inspect.getsource(test)
    }


for _module in MODULES:
    globals().update(_shared_tests(_module))
