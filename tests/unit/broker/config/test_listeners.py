"""Kafka's `listeners` text as one host and port."""

import pytest

from cordwood.broker.config.listeners import Listener, parse_listeners, parse_protocols

NO_MAP: dict[str, str] = {}
SHIPPED = "PLAINTEXT://:9092,CONTROLLER://:9093"


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("PLAINTEXT://127.0.0.1:9092", Listener("127.0.0.1", 9092)),
        ("PLAINTEXT://:9092", Listener("0.0.0.0", 9092)),
        ("plaintext://broker.example.com:0", Listener("broker.example.com", 0)),
        ("PLAINTEXT://[::1]:9092", Listener("::1", 9092)),
        (SHIPPED, Listener("0.0.0.0", 9092)),
        (" PLAINTEXT://here:1 , CONTROLLER://:2 ", Listener("here", 1)),
    ],
)
def test_the_listener_for_clients_is_found(text: str, listener: Listener) -> None:
    assert parse_listeners(text, protocols=NO_MAP, controllers=frozenset()) == listener


def test_listeners_of_controllers_are_passed_over_by_their_names() -> None:
    found = parse_listeners(
        "BROKER://:9092,QUORUM://:9093",
        protocols={"BROKER": "PLAINTEXT", "QUORUM": "SSL"},
        controllers=frozenset({"QUORUM"}),
    )

    assert found == Listener("0.0.0.0", 9092)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "but has 0"),
        ("PLAINTEXT://a:1,OTHER://b:2", "but has 2"),
        ("localhost:9092", "must be NAME://host:port"),
        ("PLAINTEXT://a:99999", "must be NAME://host:port"),
        ("PLAINTEXT://a", "must be NAME://host:port"),
        ("SSL://a:1", "must use PLAINTEXT"),
        ("SASL_PLAINTEXT://a:1", "must use PLAINTEXT"),
    ],
)
def test_what_cannot_be_listened_on_is_refused_with_the_rule(text: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        parse_listeners(text, protocols=NO_MAP, controllers=frozenset())


def test_a_listener_that_is_mapped_to_tls_is_refused() -> None:
    with pytest.raises(ValueError, match="OUTSIDE is SASL_SSL"):
        parse_listeners(
            "OUTSIDE://:9092", protocols={"OUTSIDE": "SASL_SSL"}, controllers=frozenset()
        )


def test_the_map_of_protocols_is_read_as_kafka_ships_it() -> None:
    found = parse_protocols("CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL")

    assert found["CONTROLLER"] == "PLAINTEXT"
    assert found["SASL_SSL"] == "SASL_SSL"


def test_a_map_without_colons_is_refused() -> None:
    with pytest.raises(ValueError, match="must be NAME:PROTOCOL"):
        parse_protocols("PLAINTEXT")
