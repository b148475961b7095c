"""How controllers are set up: texts that Kafka's tools take."""

from __future__ import annotations

import pytest

from cordwood.cluster.control.controller_setup import ControllerNode, ControllerSetup
from cordwood.errors import ConfigError
from cordwood.format.small_files.meta_properties import parse_properties


def setup(*nodes: str) -> ControllerSetup:
    return ControllerSetup(cluster_id="abc", nodes=tuple(map(ControllerNode.parse, nodes)))


def test_features_that_our_brokers_lack_are_switched_off() -> None:
    arguments = setup("1@a:9093").format_arguments("c.properties")

    assert "--feature=share.version=0" in arguments
    assert "--feature=streams.version=0" in arguments


def test_every_controller_knows_all_of_them() -> None:
    made = setup("1@a:9093", "2@[::1]:9094")

    properties = parse_properties(made.properties(made.nodes[1], "/data"))

    assert properties["controller.quorum.bootstrap.servers"] == "a:9093,[::1]:9094"
    assert properties["node.id"] == "2"
    assert properties["listeners"] == "CONTROLLER://[::1]:9094"
    voters = next(a for a in made.format_arguments("x") if a.startswith("--initial-controllers="))
    assert "1@a:9093:" in voters
    assert "2@[::1]:9094:" in voters


@pytest.mark.parametrize("text", ["a:9093", "1@a", "1@a:0", "1@a:70000", "x@a:1", "1@a b:1", ""])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="ID@HOST:PORT"):
        ControllerNode.parse(text)


def test_two_controllers_must_differ() -> None:
    with pytest.raises(ConfigError, match="id of two"):
        setup("1@a:9093", "1@b:9093")
    with pytest.raises(ConfigError, match="address of two"):
        setup("1@a:9093", "2@a:9093")
    with pytest.raises(ConfigError, match="at least one"):
        setup()
