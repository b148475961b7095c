"""Which listeners only programs on this machine reach."""

import pytest

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.config.security_config import SecurityConfig, refuse_insecure_listeners
from cordwood.errors import ConfigError


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_loopback_addresses_are_local(host: str) -> None:
    broker = BrokerConfig(host=host)

    refuse_insecure_listeners(broker, SecurityConfig.assemble(broker))


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "127.example.org", "127.", "localhost.example.org", "10.0.0.1"]
)
def test_a_name_that_only_looks_like_loopback_is_not_local(host: str) -> None:
    broker = BrokerConfig(host=host)

    with pytest.raises(ConfigError, match="do not authenticate"):
        refuse_insecure_listeners(broker, SecurityConfig.assemble(broker))
