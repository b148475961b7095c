"""Which listeners only programs on this machine reach."""

import socket
from typing import Any, cast

import pytest

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.config.security_config import SecurityConfig, refuse_insecure_listeners
from cordwood.broker.net.accepting.acceptor import Acceptor
from cordwood.errors import ConfigError


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_loopback_addresses_are_local(host: str) -> None:
    broker = BrokerConfig(host=host)

    refuse_insecure_listeners(broker, SecurityConfig.assemble(broker))


@pytest.mark.parametrize(
    "addresses", [["10.0.0.1"], ["127.0.0.1", "10.0.0.1"], ["::1", "0.0.0.0"], []]
)
def test_localhost_is_local_only_if_it_is_a_loopback_address(
    addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(*_: object, **__: object) -> list[object]:
        if not addresses:
            raise socket.gaierror("unknown name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 0)) for each in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    broker = BrokerConfig(host="localhost")

    with pytest.raises(ConfigError, match=r"write 127\.0\.0\.1 instead"):
        refuse_insecure_listeners(broker, SecurityConfig.assemble(broker))


def test_a_name_that_means_another_address_by_now_is_not_listened_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the check of the configuration and the start, somebody changed /etc/hosts."""
    broker = BrokerConfig(host="localhost", port=0)
    (listener,) = SecurityConfig.assemble(broker).listeners
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("0.0.0.0", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    acceptor = Acceptor(listener, broker, cast("Any", None), cast("Any", None))

    with pytest.raises(ConfigError, match=r"the name means 0\.0\.0\.0 now"):
        acceptor.listen()


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "127.example.org", "127.", "localhost.example.org", "10.0.0.1"]
)
def test_a_name_that_only_looks_like_loopback_is_not_local(host: str) -> None:
    broker = BrokerConfig(host=host)

    with pytest.raises(ConfigError, match="do not authenticate"):
        refuse_insecure_listeners(broker, SecurityConfig.assemble(broker))
