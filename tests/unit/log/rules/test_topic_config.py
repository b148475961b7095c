"""Topic configuration: Kafka's keys and defaults, checked before anything uses them."""

import pickle
from dataclasses import fields

import pytest

from cordwood.errors import ConfigError
from cordwood.format.compression import Codec
from cordwood.log.rules.topic_config import CONFIG_KEYS, TopicConfig
from cordwood.quantities import INT32_MAX, INT64_MAX, MIB

KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "errors.deadletterqueue.group.enable": "false",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "remote.copy.lag.bytes": "-1",
    "remote.copy.lag.ms": "0",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
OTHER_DEFAULTS = {
    "preallocate": "auto",  # Kafka's is false
}
OWN_DEFAULTS = {
    "archive.after.ms": "-1",
    "archive.url": "",
    "durability": "disk",
    "key.index": "false",
    "retention.segments": "-1",
    "segment.records": "-1",
}


def test_the_defaults_are_kafkas_and_our_own() -> None:
    assert TopicConfig().effective() == KAFKA_DEFAULTS | OTHER_DEFAULTS | OWN_DEFAULTS


def test_our_own_keys_are_marked_as_such() -> None:
    assert {key.name for key in CONFIG_KEYS if key.since_cordwood} == set(OWN_DEFAULTS)


def test_each_key_names_its_field_and_explains_itself() -> None:
    assert [key.field_name for key in CONFIG_KEYS] == [field.name for field in fields(TopicConfig)]
    assert all(key.doc.endswith(".") and key.rule.startswith("must be") for key in CONFIG_KEYS)


def test_sizes_and_durations_may_have_units() -> None:
    config = TopicConfig.parse({"segment.bytes": "64MiB", "retention.ms": "7d", "segment.ms": 5})

    assert (config.segment_bytes, config.retention_ms, config.segment_ms) == (
        64 * MIB,
        604_800_000,
        5,
    )


@pytest.mark.parametrize("name", ["retention.ms", "retention.bytes", "segment.records"])
@pytest.mark.parametrize("raw", [-1, "-1", None])
def test_minus_one_lifts_a_limit(name: str, raw: object) -> None:
    config = TopicConfig.parse({name: raw})

    assert getattr(config, name.replace(".", "_")) is None
    assert config.effective()[name] == "-1"


def test_what_is_rendered_reads_back() -> None:
    given: dict[str, object] = {
        "cleanup.policy": ["compact", "delete"],
        "retention.ms": None,
        "durability": "os",
        "key.index": True,
        "min.cleanable.dirty.ratio": 0.25,
        "internal.segment.bytes": 100,
        "archive.after.ms": 60_000,
        "leader.replication.throttled.replicas": "0:1,1:1",
    }
    config = TopicConfig.parse(given)

    rendered = config.render()

    assert set(rendered) == set(given)
    assert rendered["cleanup.policy"] == "compact,delete"
    assert TopicConfig.parse(rendered) == config
    assert TopicConfig.parse(config.effective()) == config


def test_only_what_differs_from_the_defaults_is_rendered() -> None:
    defaults = TopicConfig.parse({"retention.ms": "1d", "segment.ms": "1h"})
    config = TopicConfig.parse({"segment.ms": "2h"}, defaults=defaults)

    assert TopicConfig().render() == {}
    assert config.retention_ms == 86_400_000
    assert config.render(defaults=defaults) == {"segment.ms": "7200000"}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("retention.m", "did you mean retention.ms"),
        ("log.retention.ms", "did you mean"),
        ("segment_bytes", "did you mean segment.bytes"),
        ("qqqq", "known keys are archive.after.ms, archive.url, cleanup.policy"),
        ("message.format.version", "removed in Kafka 4.0"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_ones(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TopicConfig.parse({name: "1"})

    assert caught.value.key == name
    assert hint in caught.value.reason


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.bytes", MIB - 1),
        ("segment.bytes", "2GiB"),
        ("internal.segment.bytes", 13),
        ("segment.ms", 0),
        ("segment.index.bytes", 3),
        ("segment.records", 0),
        ("index.interval.bytes", -1),
        ("retention.ms", -2),
        ("retention.bytes", -2),
        ("retention.segments", 0),
        ("local.retention.ms", -3),
        ("max.compaction.lag.ms", 0),
        ("min.cleanable.dirty.ratio", 1.01),
        ("min.cleanable.dirty.ratio", -0.01),
        ("compression.gzip.level", 0),
        ("compression.gzip.level", 10),
        ("compression.lz4.level", 18),
        ("compression.zstd.level", 23),
        ("compression.type", "brotli"),
        ("message.timestamp.type", "createtime"),
        ("cleanup.policy", "archive"),
        ("durability", "none"),
        ("min.insync.replicas", 0),
        ("leader.replication.throttled.replicas", "everyone"),
        ("flush.messages", 0),
        ("flush.ms", INT64_MAX + 1),
    ],
)
def test_a_value_outside_its_rule_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        TopicConfig.parse({name: value})

    assert (caught.value.key, caught.value.value) == (name, value)
    assert str(caught.value).startswith(f"{name} = {value}: must be ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.bytes", MIB),
        ("segment.bytes", INT32_MAX),
        ("internal.segment.bytes", 14),
        ("retention.ms", 0),
        ("compression.gzip.level", -1),
        ("compression.zstd.level", -131072),
        ("min.cleanable.dirty.ratio", 0),
        ("min.cleanable.dirty.ratio", 1),
        ("max.message.bytes", 0),
        ("follower.replication.throttled.replicas", "*"),
    ],
)
def test_the_ends_of_each_range_are_accepted(name: str, value: object) -> None:
    assert TopicConfig.parse({name: value}).effective()[name] is not None


def test_a_config_built_in_code_is_held_to_the_same_rules() -> None:
    with pytest.raises(ConfigError, match=r"segment\.bytes = 12: must be 1 MiB to 2147483647"):
        TopicConfig(segment_bytes=12)


def test_the_least_compaction_lag_may_not_exceed_the_greatest() -> None:
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms"):
        TopicConfig.parse({"min.compaction.lag.ms": "2d", "max.compaction.lag.ms": "1d"})


def test_tiered_storage_is_refused_as_by_a_broker_without_it() -> None:
    with pytest.raises(ConfigError, match=r"archive\.url"):
        TopicConfig.parse({"remote.storage.enable": "true"})


@pytest.mark.parametrize(
    ("policy", "is_compacted", "is_deleted"),
    [
        ("delete", False, True),
        ("compact", True, False),
        ("compact,delete", True, True),
        ("", False, False),
    ],
)
def test_the_policy_may_name_both_either_or_nothing(
    policy: str, is_compacted: bool, is_deleted: bool
) -> None:
    config = TopicConfig.parse({"cleanup.policy": policy})

    assert (config.is_compacted, config.is_deleted) == (is_compacted, is_deleted)


def test_the_internal_segment_size_wins_and_is_shown_only_when_set() -> None:
    config = TopicConfig.parse({"internal.segment.bytes": 100})

    assert config.segment_bytes_effective == 100
    assert config.effective()["internal.segment.bytes"] == "100"
    assert TopicConfig().segment_bytes_effective == 1024 * MIB
    assert "internal.segment.bytes" not in TopicConfig().effective()


@pytest.mark.parametrize(
    ("name", "codec", "level"),
    [
        ("producer", None, None),
        ("uncompressed", Codec.NONE, None),
        ("gzip", Codec.GZIP, -1),
        ("snappy", Codec.SNAPPY, None),
        ("lz4", Codec.LZ4, 9),
        ("zstd", Codec.ZSTD, 3),
    ],
)
def test_the_compression_type_says_codec_and_level(
    name: str, codec: Codec | None, level: int | None
) -> None:
    config = TopicConfig(compression_type=name)

    assert (config.codec, config.compression_level) == (codec, level)


def test_the_timestamp_type_says_whose_time_counts() -> None:
    assert not TopicConfig().is_log_append_time
    assert TopicConfig(message_timestamp_type="LogAppendTime").is_log_append_time


def test_a_config_survives_pickling() -> None:
    config = TopicConfig.parse({"cleanup.policy": "compact", "retention.ms": -1})

    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("given", "value"),
    [("auto", None), ("true", True), (True, True), ("false", False), (False, False)],
)
def test_zeros_ahead_are_wanted_or_not_or_the_log_decides(
    given: object, value: bool | None
) -> None:
    config = TopicConfig.parse({"preallocate": given})

    assert config.preallocate is value
    assert TopicConfig.parse(config.effective()) == config


def test_another_word_about_zeros_ahead_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be true, false or auto"):
        TopicConfig.parse({"preallocate": "maybe"})
