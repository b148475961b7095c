"""Settings of a broker that follow those of its cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cordwood.broker.config.dynamic_keys import ConfigLayers
from cordwood.broker.dynamic_configs import DynamicConfigs
from cordwood.broker.telemetry.subscription import SUBSCRIPTIONS_MAX
from fakes.handler_calls import CONFIG
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store


@pytest.fixture
def configs() -> Iterator[DynamicConfigs]:
    store = open_store(SimulatedFileSystem())
    yield DynamicConfigs(store, CONFIG)
    store.close()


def test_what_the_controllers_keep_replaces_what_is_saved_here(configs: DynamicConfigs) -> None:
    configs.alter_broker("", {"log.retention.ms": "1000"}, validate_only=False)

    configs.follow(ConfigLayers(shared={"min.insync.replicas": "2", "num.io.threads": "3"}))

    assert configs.topic_defaults.min_insync_replicas == 2
    assert configs.topic_defaults.retention_ms != 1000
    assert configs.broker.num_io_threads == 3
    assert configs.of_broker("") == {"min.insync.replicas": "2", "num.io.threads": "3"}


def test_the_settings_of_one_broker_come_before_those_of_all(configs: DynamicConfigs) -> None:
    layers = ConfigLayers(own={"log.retention.ms": "1"}, shared={"log.retention.ms": "2"})

    configs.follow(layers)

    assert configs.topic_defaults.retention_ms == 1
    assert configs.layers == layers


def test_a_setting_that_this_broker_cannot_use_affects_no_other(configs: DynamicConfigs) -> None:
    configs.follow(
        ConfigLayers(
            shared={
                "cordwood.topic.orders.key.index": "true",
                "log.cleanup.policy": "nonsense",
                "log.local.retention.ms": "2000",
                "log.retention.ms": "1000",  # less than what is kept locally
                "min.insync.replicas": "2",
            }
        )
    )

    assert configs.topic_defaults.min_insync_replicas == 2


def test_subscriptions_to_client_metrics_are_those_of_the_cluster(
    configs: DynamicConfigs,
) -> None:
    heard: list[list[str]] = []
    configs.alter_subscription("own", {"metrics": "*"}, validate_only=False)
    configs.when_subscribed(lambda found: heard.append([each.name for each in found]))
    tills = {"metrics": "org.apache.kafka.producer.", "interval.ms": "30000"}

    configs.follow(ConfigLayers(subscriptions={"tills": tills, "broken": {"interval.ms": "x"}}))
    configs.follow(ConfigLayers(shared={"num.io.threads": "3"}, subscriptions={"tills": tills}))
    named = configs.subscription_names()
    configs.follow(ConfigLayers())

    assert heard == [["own"], ["tills"], ["tills"], []]
    assert named == ["tills"]


def test_more_subscriptions_than_are_compared_with_each_client_are_left_out(
    configs: DynamicConfigs,
) -> None:
    configs.follow(ConfigLayers(subscriptions={f"s{n:04}": {"metrics": "*"} for n in range(300)}))

    assert len(configs.subscriptions()) == SUBSCRIPTIONS_MAX


def test_settings_of_groups_are_those_of_the_cluster_within_the_limits_of_the_broker(
    configs: DynamicConfigs,
) -> None:
    configs.alter_group("own", {"consumer.session.timeout.ms": "50000"}, validate_only=False)

    configs.follow(
        ConfigLayers(
            groups={
                "good": {"consumer.session.timeout.ms": "55000", "share.other": "1"},
                "bad": {"consumer.session.timeout.ms": "1"},
            }
        )
    )

    assert configs.groups() == ["good"]
    assert configs.of_group("good") == {"consumer.session.timeout.ms": "55000"}
    assert configs.of_group("own") == {}


def test_a_setting_that_is_removed_is_not_in_force_any_more(configs: DynamicConfigs) -> None:
    configs.follow(ConfigLayers(shared={"min.insync.replicas": "2"}))

    configs.follow(ConfigLayers())

    assert configs.topic_defaults.min_insync_replicas == 1
