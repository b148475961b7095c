"""What a broker can be told, and what it refuses to be told."""

from dataclasses import fields

import pytest

from cordwood.broker.config.broker_config import BROKER_KEYS, BrokerConfig
from cordwood.broker.config.store_config import STORE_KEYS, StoreConfig
from cordwood.broker.config.topic_defaults import (
    BROKER_NAMES,
    TOPIC_DEFAULTS,
    parse_topic_defaults,
    render_topic_defaults,
)
from cordwood.errors import ConfigError
from cordwood.log.compaction.cleaner import CleanerConfig
from cordwood.log.rules.topic_config import CONFIG_KEYS, TopicConfig
from cordwood.log.store.archive_port import CACHE_BYTES
from cordwood.quantities import MIB


def test_every_field_is_a_key_under_its_kafka_name() -> None:
    names = {key.field_name for key in BROKER_KEYS}

    assert names == {field.name for field in fields(BrokerConfig)}


def test_every_key_says_what_it_is_for() -> None:
    for key in (*BROKER_KEYS, *STORE_KEYS):
        assert key.doc.endswith("."), key.name


def test_the_defaults_are_the_ones_the_keys_document() -> None:
    config = BrokerConfig()

    assert config.effective() == {key.name: key.default_text for key in BROKER_KEYS}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("socket.request.max.bytes", 104_857_600),
        ("fetch.max.bytes", 57_671_680),
        ("connections.max.idle.ms", 600_000),
        ("max.incremental.fetch.session.cache.slots", 1000),
        ("group.min.session.timeout.ms", 6000),
        ("group.max.session.timeout.ms", 1_800_000),
        ("group.consumer.session.timeout.ms", 45_000),
        ("group.consumer.heartbeat.interval.ms", 5000),
        ("offsets.retention.minutes", 10_080),
        ("offset.metadata.max.bytes", 4096),
    ],
)
def test_limits_that_clients_rely_on_are_kafkas(name: str, value: int) -> None:
    assert getattr(BrokerConfig(), name.replace(".", "_")) == value


def test_values_are_read_with_their_units() -> None:
    config = BrokerConfig.parse(
        {
            "fetch.max.bytes": "8MiB",
            "connections.max.idle.ms": "5m",
            "auto.create.topics.enable": "false",
            "advertised.host": "broker.example.com",
            "metrics.port": "0",
        }
    )

    assert config.fetch_max_bytes == 8 * MIB
    assert config.connections_max_idle_ms == 300_000
    assert config.auto_create_topics_enable is False
    assert config.advertised_host == "broker.example.com"
    assert config.metrics_port == 0


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("port", 65_536, "must be 0 to 65535"),
        ("port", "tcp://10.0.0.1:9092", "must be 0 to 65535"),
        ("host", "http://here", "must be a host name or an IP address"),
        ("num.partitions", 0, "must be 1 to 10000"),
        ("auto.create.topics.enable", "maybe", "must be true or false"),
        ("group.consumer.assignors", "", "must not be empty"),
        ("group.consumer.assignors", "random", "must be a list with items from"),
        ("no.such.key", 1, "is not a broker key"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_key_value_and_rule(
    name: str, value: object, rule: str
) -> None:
    with pytest.raises(ConfigError, match=f"{name} = ") as refused:
        BrokerConfig.parse({name: value})

    assert refused.value.key == name
    assert rule in refused.value.reason


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"socket.request.max.bytes": "512MiB"}, "socket.request.max.bytes"),
        ({"group.max.session.timeout.ms": 5000}, "group.min.session.timeout.ms"),
        ({"group.consumer.session.timeout.ms": 4000}, "group.consumer.heartbeat.interval.ms"),
    ],
)
def test_values_that_contradict_each_other_are_refused(values: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError, match="must not exceed") as refused:
        BrokerConfig.parse(values)

    assert refused.value.key == key


def test_a_host_of_all_addresses_is_told_from_one_that_clients_can_use() -> None:
    assert BrokerConfig(host="0.0.0.0").listens_everywhere
    assert BrokerConfig(host="::").listens_everywhere
    assert not BrokerConfig(host="10.1.2.3").listens_everywhere


# --- the store under a broker --------------------------------------------------------------------


def test_the_stores_defaults_are_those_of_the_parts_they_set_up() -> None:
    config = StoreConfig()

    assert config.cleaner == CleanerConfig()
    assert config.log_archive_cache_bytes == CACHE_BYTES
    assert config.effective() == {key.name: key.default_text for key in STORE_KEYS}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log.dirs", ""),
        ("log.cleaner.threads", 0),
        ("log.cleaner.io.buffer.load.factor", 1),
        ("log.cleaner.time.share.max", 0),
        ("log.dir.free.bytes.min", -1),
        ("log.retention.ms", 1),
    ],
)
def test_a_store_that_cannot_be_kept_so_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        StoreConfig.parse({name: value})

    assert refused.value.key == name


def test_several_directories_are_a_list_or_text_with_commas() -> None:
    assert StoreConfig.parse({"log.dirs": "/a, /b"}).log_dirs == ("/a", "/b")
    assert StoreConfig.parse({"log.dirs": ["/a", "/b"]}).log_dirs == ("/a", "/b")


# --- defaults of topics --------------------------------------------------------------------------


def test_every_topic_key_of_ours_has_a_default_under_log() -> None:
    ours = {key.name for key in CONFIG_KEYS if key.since_cordwood}

    assert {BROKER_NAMES[name] for name in ours} == {f"log.{name}" for name in ours}


def test_broker_keys_become_the_defaults_of_topics() -> None:
    config = parse_topic_defaults(
        {"log.retention.ms": "1d", "message.max.bytes": "2MiB", "log.durability": "os"}
    )

    assert config == TopicConfig(
        retention_ms=86_400_000, max_message_bytes=2 * MIB, durability="os"
    )


def test_defaults_of_topics_render_as_they_are_read() -> None:
    config = TopicConfig(retention_ms=None, cleanup_policy=("compact",), segment_records=10)

    rendered = render_topic_defaults(config)

    assert rendered["log.retention.ms"] == "-1"
    assert rendered["log.cleanup.policy"] == "compact"
    assert parse_topic_defaults(rendered) == config
    assert set(rendered) == {default.key.name for default in TOPIC_DEFAULTS}


def test_a_wrong_default_is_refused_under_the_name_the_operator_wrote() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_topic_defaults({"log.segment.bytes": "12"})

    assert refused.value.key == "log.segment.bytes"
    assert refused.value.reason == "must be 1 MiB to 2147483647"
