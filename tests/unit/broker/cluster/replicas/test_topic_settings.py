"""Settings of topics, as the controllers of a cluster keep them."""

import logging

import pytest

from cordwood.broker.cluster.replicas.topic_settings import topic_settings
from cordwood.cluster.image.metadata_image import ConfigResource, MetadataImage


def image(**configs: dict[str, str]) -> MetadataImage:
    resources: dict[str, ConfigResource] = {"orders": (2, "orders"), "brokers": (4, "")}
    return MetadataImage(configs={resources[name]: given for name, given in configs.items()})


def test_a_topic_has_the_settings_of_the_controllers() -> None:
    found = topic_settings(image(orders={"retention.ms": "1000"}), "orders")

    assert found == {"retention.ms": "1000"}
    assert topic_settings(image(), "orders") == {}


def test_a_sync_for_every_message_means_that_the_disk_counts() -> None:
    found = topic_settings(image(orders={"flush.messages": "1"}), "orders")

    assert found["durability"] == "disk"


def test_our_own_keys_are_kept_in_the_configuration_of_all_brokers() -> None:
    brokers = {
        "cordwood.topic.orders.key.index": "true",
        "cordwood.topic.orders.durability": "os",
        "cordwood.topic.orders.more.key.index": "true",
        "cordwood.topic.others.key.index": "true",
        "num.io.threads": "3",
    }

    found = topic_settings(image(orders={"flush.messages": "1"}, brokers=brokers), "orders")

    assert found == {"flush.messages": "1", "key.index": "true", "durability": "os"}


def test_a_setting_that_this_broker_does_not_know_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {"remote.storage.enable": "true", "retention.ms": "5", "segment.bytes": "nonsense"}

    with caplog.at_level(logging.WARNING):
        found = topic_settings(image(orders=given), "orders")

    assert found == {"retention.ms": "5"}
    assert "segment.bytes" in caplog.text
