"""The texts of `listeners` and `listener.security.protocol.map`."""

import pytest

from cordwood.broker.config.listeners import (
    Listener,
    SecurityProtocol,
    parse_listeners,
    parse_protocols,
    protocol_of,
)

NONE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://127.0.0.1:9092", [("PLAINTEXT", "127.0.0.1", 9092)]),
        ("PLAINTEXT://:9092", [("PLAINTEXT", "0.0.0.0", 9092)]),
        ("PLAINTEXT://[::1]:9092", [("PLAINTEXT", "::1", 9092)]),
        ("inside://localhost:0", [("INSIDE", "localhost", 0)]),
        (" PLAINTEXT://a:1 , SSL://a:2,", [("PLAINTEXT", "a", 1), ("SSL", "a", 2)]),
        ("PLAINTEXT://a:0,SSL://a:0", [("PLAINTEXT", "a", 0), ("SSL", "a", 0)]),
        ("PLAINTEXT://a:1,CONTROLLER://a:2", [("PLAINTEXT", "a", 1)]),
    ],
)
def test_listeners_are_names_with_addresses(
    text: str, expected: list[tuple[str, str, int]]
) -> None:
    assert parse_listeners(text, controllers=NONE) == tuple(Listener(*at) for at in expected)


def test_listeners_of_controllers_are_ignored() -> None:
    found = parse_listeners("QUORUM://a:1,PLAINTEXT://a:2", controllers=frozenset({"QUORUM"}))
    assert found == (Listener("PLAINTEXT", "a", 2),)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "at least one"),
        ("CONTROLLER://:9093", "at least one"),
        ("localhost:9092", "NAME://host:port"),
        ("PLAINTEXT://localhost", "NAME://host:port"),
        ("PLAINTEXT://localhost:65536", "NAME://host:port"),
        ("PLAINTEXT://a:1,PLAINTEXT://b:2", "PLAINTEXT twice"),
        ("PLAINTEXT://a:1,SSL://a:1", "a:1 twice"),
    ],
)
def test_anything_else_is_refused_with_its_rule(text: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        parse_listeners(text, controllers=NONE)


def test_a_name_is_its_protocol_unless_the_map_has_it() -> None:
    protocols = parse_protocols("inside:plaintext, OUTSIDE:SASL_SSL")
    assert protocol_of("INSIDE", protocols) is SecurityProtocol.PLAINTEXT
    assert protocol_of("OUTSIDE", protocols) is SecurityProtocol.SASL_SSL
    assert protocol_of("SSL", protocols) is SecurityProtocol.SSL
    with pytest.raises(ValueError, match=r"listener\.security\.protocol\.map"):
        protocol_of("OTHER", protocols)


@pytest.mark.parametrize(("text", "rule"), [("A", "NAME:PROTOCOL"), ("A:TLS", "TLS is not")])
def test_a_wrong_map_is_refused(text: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        parse_protocols(text)
