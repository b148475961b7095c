import pytest

from cordwood.console.console_config import ConsoleConfig
from cordwood.errors import ConfigError

BROKER = (("127.0.0.1", 9092),)


def test_another_address_needs_a_login_and_tls() -> None:
    with pytest.raises(ConfigError, match="--login"):
        ConsoleConfig(directories=("data",), host="0.0.0.0")
    with pytest.raises(ConfigError, match="--tls-certificate"):
        ConsoleConfig(directories=("data",), addresses=BROKER, host="0.0.0.0", needs_login=True)

    served = ConsoleConfig(
        directories=("data",),
        addresses=BROKER,
        host="0.0.0.0",
        needs_login=True,
        tls_certificate="c",
        tls_key="k",
    )

    assert served.scheme == "https"


def test_a_login_needs_a_broker() -> None:
    with pytest.raises(ConfigError, match="needs a broker"):
        ConsoleConfig(directories=("data",), needs_login=True)


def test_a_login_without_files_needs_a_user_of_the_console() -> None:
    with pytest.raises(ConfigError, match="--user"):
        ConsoleConfig(addresses=BROKER, needs_login=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_loopback_needs_nothing(host: str) -> None:
    assert ConsoleConfig(directories=("data",), host=host).is_loopback


def test_there_must_be_something_to_look_at() -> None:
    with pytest.raises(ConfigError, match="--at"):
        ConsoleConfig()
