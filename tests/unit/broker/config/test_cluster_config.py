"""The keys of a member of a cluster, and what is refused with which words."""

import pytest

from cordwood.broker.config.cluster_config import CLUSTER_KEYS, Address, ClusterConfig
from cordwood.errors import ConfigError
from cordwood.settings import settings_from

MEMBER = {
    "process.roles": "broker",
    "controller.quorum.bootstrap.servers": "one:9093,[::1]:9094",
}


def test_a_broker_without_roles_is_alone() -> None:
    config = ClusterConfig()

    assert not config.is_member
    assert [key.default_text for key in CLUSTER_KEYS if key.name == "process.roles"] == [""]


def test_a_broker_is_a_member_if_that_is_its_only_role() -> None:
    assert ClusterConfig.parse(MEMBER).is_member
    assert not ClusterConfig.parse({**MEMBER, "process.roles": "broker,controller"}).is_member


def test_controllers_are_named_by_address_or_as_voters() -> None:
    config = ClusterConfig.parse({**MEMBER, "controller.quorum.voters": "3000@three:9095"})

    assert config.controllers == [
        Address("one", 9093),
        Address("::1", 9094),
        Address("three", 9095),
    ]


@pytest.mark.parametrize(
    ("changes", "key", "rule"),
    [
        ({"controller.quorum.bootstrap.servers": ""}, "process.roles", "must name its controllers"),
        ({"controller.quorum.bootstrap.servers": "one"}, "bootstrap.servers", "must be host:port"),
        ({"controller.quorum.voters": "one:9093"}, "quorum.voters", "must be host:port"),
        ({"broker.heartbeat.interval.ms": 5000}, "heartbeat", "at most half"),
        ({"process.roles": "leader"}, "process.roles", "broker"),
    ],
)
def test_an_incomplete_member_is_refused(changes: dict[str, object], key: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule) as refused:
        ClusterConfig.parse({**MEMBER, **changes})

    assert key in refused.value.key


def test_keys_of_a_cluster_have_no_effect_on_a_broker_that_is_alone() -> None:
    alone = settings_from({"replica.lag.time.max.ms": 5000, "process.roles": "broker,controller"})
    member = settings_from({**MEMBER, "replica.lag.time.max.ms": 5000})

    assert {given.name for given in alone.without_effect} == {
        "replica.lag.time.max.ms",
        "process.roles",
    }
    assert not member.without_effect
    assert member.cluster.replica_lag_time_max_ms == 5000
