"""Configurations over the wire: every key shown with its source, and changed if it is dynamic."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from cordwood.broker.config_owners import ConfigOwners, ResourceType
from cordwood.broker.error_codes import ErrorCode
from cordwood.broker.handlers.topic_configs import Operation, TopicConfigsHandler
from cordwood.broker.net.requests.request import RunsOn
from cordwood.log.rules.topic_config import CONFIG_KEYS, TopicConfig
from cordwood.log.store.store import Store
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import Fields
from fakes.handler_calls import IDENTITY, HandlerCalls, dynamic, versions
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, open_store

DESCRIBE = ApiKey.DESCRIBE_CONFIGS
ALTER = ApiKey.ALTER_CONFIGS
INCREMENTAL = ApiKey.INCREMENTAL_ALTER_CONFIGS
LIST = ApiKey.LIST_CONFIG_RESOURCES
TOPIC, BROKER, GROUP = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP


@pytest.fixture
def store() -> Iterator[Store]:
    defaults: dict[str, object] = {"retention.ms": "1d"}
    with open_store(SimulatedFileSystem(), defaults=defaults) as store:
        store.create_topic("orders", config={"segment.ms": "1h", "retention.bytes": "-1"})
        yield store


def client(store: Store) -> HandlerCalls:
    owners = ConfigOwners(store, IDENTITY, dynamic(store))
    return HandlerCalls([TopicConfigsHandler(owners)])


@pytest.fixture
def call(store: Store) -> HandlerCalls:
    return client(store)


def resource(kind: int, name: str, **fields: Any) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, **fields}


# --- DescribeConfigs ----------------------------------------------------------------------------


def describe(call: HandlerCalls, kind: int, name: str, **fields: Any) -> dict[str, Fields]:
    wanted = resource(kind, name, configuration_keys=None)
    [result] = call(DESCRIBE, {"resources": [wanted], **fields}).results
    assert result.error_code == ErrorCode.none
    return {config.name: config for config in result.configs}


@pytest.mark.parametrize("version", versions(DESCRIBE))
def test_every_key_of_a_topic_is_shown_in_every_version(call: HandlerCalls, version: int) -> None:
    wanted = resource(TOPIC, "orders", configuration_keys=None)

    answer = call(DESCRIBE, {"resources": [wanted]}, version=version)

    [result] = answer.results
    assert (result.error_code, result.resource_type, result.resource_name) == (0, 2, "orders")
    shown = {config.name for config in result.configs}
    assert shown == {key.name for key in CONFIG_KEYS if not key.is_internal}


def test_a_value_says_where_it_is_from(call: HandlerCalls) -> None:
    shown = describe(call, TOPIC, "orders")

    found = {name: (shown[name].value, shown[name].config_source) for name in shown}
    assert found["segment.ms"] == ("3600000", 1)  # set for the topic
    assert found["retention.bytes"] == ("-1", 1)  # set too, though to what it would have been
    assert found["retention.ms"] == ("86400000", 4)  # set for the broker
    assert found["segment.bytes"] == ("1073741824", 5)  # nobody's choice
    assert not any(config.read_only or config.is_sensitive for config in shown.values())


def test_synonyms_are_all_the_places_a_value_could_be_from(call: HandlerCalls) -> None:
    shown = describe(call, TOPIC, "orders", include_synonyms=True)

    def synonyms(name: str) -> list[tuple[str, str, int]]:
        return [(s.name, s.value, s.source) for s in shown[name].synonyms]

    assert synonyms("segment.ms") == [
        ("segment.ms", "3600000", 1),
        ("log.roll.ms", "604800000", 5),
    ]
    assert synonyms("retention.ms") == [
        ("log.retention.ms", "86400000", 4),
        ("log.retention.ms", "604800000", 5),
    ]
    assert synonyms("max.message.bytes") == [("message.max.bytes", "1048588", 5)]


def test_synonyms_and_texts_come_only_when_asked_for(call: HandlerCalls) -> None:
    plain = describe(call, TOPIC, "orders")
    told = describe(call, TOPIC, "orders", include_documentation=True)

    assert plain["segment.ms"].synonyms == ()
    assert plain["segment.ms"].documentation is None
    assert told["segment.ms"].documentation.startswith("Roll a segment")


@pytest.mark.parametrize(
    ("name", "config_type"),
    [
        ("preallocate", 1),
        ("compression.type", 2),
        ("segment.bytes", 3),
        ("max.message.bytes", 3),
        ("retention.ms", 5),
        ("retention.bytes", 5),
        ("min.cleanable.dirty.ratio", 6),
        ("cleanup.policy", 7),
    ],
)
def test_types_are_kafkas(call: HandlerCalls, name: str, config_type: int) -> None:
    assert describe(call, TOPIC, "orders")[name].config_type == config_type


@pytest.mark.parametrize(
    ("keys", "shown"),
    [(["segment.ms", "no.such"], ["segment.ms"]), ([], None), (None, None)],
)
def test_only_the_keys_asked_for_are_shown(
    call: HandlerCalls, keys: list[str] | None, shown: list[str] | None
) -> None:
    wanted = resource(TOPIC, "orders", configuration_keys=keys)

    [result] = call(DESCRIBE, {"resources": [wanted]}).results

    names = [config.name for config in result.configs]
    assert names == shown or (shown is None and len(names) > 30)


def test_a_topic_that_is_not_there_or_cannot_be(call: HandlerCalls) -> None:
    wanted = [resource(TOPIC, name, configuration_keys=None) for name in ("nope", "a/b", "orders")]

    answer = call(DESCRIBE, {"resources": wanted})

    assert [(r.resource_name, r.error_code) for r in answer.results] == [
        ("nope", ErrorCode.unknown_topic_or_partition),
        ("a/b", ErrorCode.invalid_topic_exception),
        ("orders", ErrorCode.none),
    ]


def test_the_broker_shows_its_keys_and_which_can_be_changed(call: HandlerCalls) -> None:
    shown = describe(call, BROKER, "7", include_synonyms=True)

    found = {name: (shown[name].value, shown[name].config_source) for name in shown}
    assert found["node.id"] == ("7", 4)
    assert found["fetch.max.bytes"] == ("57671680", 5)
    assert found["log.retention.ms"] == ("86400000", 4)
    assert found["log.dirs"] == (DATA, 4)
    assert [(s.value, s.source) for s in shown["node.id"].synonyms] == [("7", 4), ("1", 5)]
    assert [name for name in ("node.id", "log.dirs", "log.archive.url") if shown[name].read_only]
    assert not shown["log.retention.ms"].read_only
    assert not shown["log.cleaner.threads"].read_only


def test_the_broker_has_the_keys_that_tools_look_for(call: HandlerCalls) -> None:
    shown = describe(call, BROKER, "7")

    assert len(shown) == len({config.name for config in shown.values()})
    assert {
        name: shown[name].value
        for name in (
            "broker.id",
            "listeners",
            "advertised.listeners",
            "default.replication.factor",
            "offsets.topic.replication.factor",
            "inter.broker.listener.name",
            "num.network.threads",
            "log.retention.hours",
            "log.retention.minutes",
            "replica.lag.time.max.ms",
            "process.roles",
            "log.dir",
        )
    } == {
        "broker.id": "7",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "advertised.listeners": None,
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "inter.broker.listener.name": None,
        "num.network.threads": "3",
        "log.retention.hours": "168",
        "log.retention.minutes": None,
        "replica.lag.time.max.ms": "30000",
        "process.roles": "broker,controller",
        "log.dir": None,
    }


def test_nothing_was_set_for_all_brokers_at_once(call: HandlerCalls) -> None:
    assert describe(call, BROKER, "") == {}


def test_a_group_shows_what_the_broker_is_set_to(call: HandlerCalls) -> None:
    shown = describe(call, GROUP, "billing", include_synonyms=True)

    assert {name: (shown[name].value, shown[name].read_only) for name in shown} == {
        "consumer.heartbeat.interval.ms": ("5000", False),
        "consumer.session.timeout.ms": ("45000", False),
    }
    [synonym] = shown["consumer.session.timeout.ms"].synonyms
    assert synonym.name == "group.consumer.session.timeout.ms"


@pytest.mark.parametrize(
    ("kind", "name"), [(BROKER, "8"), (BROKER, "x"), (GROUP, ""), (8, "7"), (99, "")]
)
def test_other_resources_have_no_configuration(call: HandlerCalls, kind: int, name: str) -> None:
    wanted = resource(kind, name, configuration_keys=None)

    [result] = call(DESCRIBE, {"resources": [wanted]}).results

    assert result.error_code == ErrorCode.invalid_request
    assert result.error_message


def test_asked_for_twice_a_resource_is_shown_once(call: HandlerCalls) -> None:
    wanted = resource(TOPIC, "orders", configuration_keys=None)

    assert len(call(DESCRIBE, {"resources": [wanted] * 3}).results) == 1


# --- IncrementalAlterConfigs --------------------------------------------------------------------


def change(name: str, operation: int, value: str | None = None) -> dict[str, Any]:
    return {"name": name, "config_operation": operation, "value": value}


def alter(call: HandlerCalls, *changes: dict[str, Any], **fields: Any) -> Fields:
    wanted = resource(TOPIC, "orders", configs=list(changes))
    answer = call(INCREMENTAL, {"resources": [wanted], **fields})
    [response] = answer.responses
    assert isinstance(response, Fields)
    return response


@pytest.mark.parametrize("version", versions(INCREMENTAL))
def test_keys_are_set_and_put_back_in_every_version(
    call: HandlerCalls, store: Store, version: int
) -> None:
    changes = [change("segment.ms", Operation.DELETE), change("flush.ms", Operation.SET, "5")]
    wanted = resource(TOPIC, "orders", configs=changes)

    [response] = call(INCREMENTAL, {"resources": [wanted]}, version=version).responses

    assert (response.error_code, response.error_message) == (ErrorCode.none, None)
    assert (response.resource_type, response.resource_name) == (TOPIC, "orders")
    assert store.registry.overrides("orders") == {"retention.bytes": "-1", "flush.ms": "5"}
    assert store.topic("orders").partition(0).config.flush_ms == 5


def test_lists_grow_and_shrink(call: HandlerCalls, store: Store) -> None:
    alter(call, change("cleanup.policy", Operation.APPEND, "compact,delete"))
    grown = store.topic("orders").config.cleanup_policy
    alter(call, change("cleanup.policy", Operation.SUBTRACT, "delete"))
    shrunk = store.topic("orders").config.cleanup_policy

    assert (grown, shrunk) == (("delete", "compact"), ("compact",))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([change("flush.ms", Operation.APPEND, "1")], ErrorCode.invalid_config),
        ([change("no.such", Operation.APPEND, "1")], ErrorCode.invalid_config),
        ([change("no.such", Operation.SET, "1")], ErrorCode.invalid_config),
        ([change("no.such", Operation.DELETE)], ErrorCode.invalid_config),
        ([change("flush.ms", Operation.SET, "soon")], ErrorCode.invalid_config),
        ([change("flush.ms", Operation.SET, None)], ErrorCode.invalid_request),
        ([change("flush.ms", 9, "1")], ErrorCode.invalid_request),
        (
            [change("flush.ms", Operation.SET, "1"), change("flush.ms", Operation.DELETE)],
            ErrorCode.invalid_request,
        ),
    ],
)
def test_what_cannot_be_changes_nothing(
    call: HandlerCalls, store: Store, changes: list[dict[str, Any]], code: int
) -> None:
    before = store.topic("orders").config

    response = alter(call, change("segment.bytes", Operation.SET, "2097152"), *changes)

    assert response.error_code == code
    assert response.error_message
    assert store.topic("orders").config == before


@pytest.mark.parametrize(("value", "code"), [("9", ErrorCode.none), ("x", 40)])
def test_only_checking_changes_nothing(
    call: HandlerCalls, store: Store, value: str, code: int
) -> None:
    before = store.topic("orders").config

    response = alter(call, change("flush.ms", Operation.SET, value), validate_only=True)

    assert response.error_code == code
    assert store.topic("orders").config == before


def alter_other(
    call: HandlerCalls, kind: int, name: str, *changes: dict[str, Any], **fields: Any
) -> tuple[int, str | None]:
    wanted = resource(kind, name, configs=list(changes))
    [response] = call(INCREMENTAL, {"resources": [wanted], **fields}).responses
    return response.error_code, response.error_message


@pytest.mark.parametrize("api", [ALTER, INCREMENTAL])
def test_a_static_key_of_the_broker_is_named_in_the_refusal(
    call: HandlerCalls, store: Store, api: ApiKey
) -> None:
    configs = [{"name": "log.retention.ms", "value": "1"}, {"name": "node.id", "value": "2"}]
    wanted = resource(BROKER, "7", configs=configs)

    [response] = call(api, {"resources": [wanted]}).responses

    assert response.error_code == ErrorCode.invalid_request
    assert "node.id" in response.error_message
    assert store.registry.defaults.retention_ms == 86_400_000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log.retention.ms", "soon"),
        ("log.cleaner.dedupe.buffer.size", "1"),
        ("log.cleaner.io.buffer.load.factor", "1"),
        ("num.io.threads", "0"),
        ("num.network.threads", "many"),
        ("log.archive.url", "file:///etc"),
        ("archive.url.prefixes", "file:///"),
        ("listeners", "PLAINTEXT://:1"),
        ("no.such", "1"),
    ],
)
def test_what_the_broker_cannot_be_changes_nothing(
    call: HandlerCalls, store: Store, name: str, value: str
) -> None:
    good = change("log.segment.bytes", Operation.SET, "2097152")

    code, message = alter_other(call, BROKER, "", good, change(name, Operation.SET, value))

    assert code == ErrorCode.invalid_request
    assert message
    assert name in message
    assert describe(call, BROKER, "") == {}
    assert store.topic("orders").config.segment_bytes == 1 << 30


def test_a_broker_s_defaults_change_for_topics_that_exist_and_for_new_ones(
    call: HandlerCalls, store: Store
) -> None:
    changes = [
        change("log.flush.interval.ms", Operation.SET, "7"),
        change("log.roll.ms", Operation.SET, "9000"),
        change("log.cleanup.policy", Operation.APPEND, "compact"),
    ]

    assert alter_other(call, BROKER, "", *changes)[0] == ErrorCode.none

    config = store.topic("orders").partition(0).config
    assert (config.flush_ms, config.segment_ms) == (7, 3_600_000)  # the topic has its own
    assert config.cleanup_policy == ("delete", "compact")
    assert store.create_topic("new").config.segment_ms == 9000


def test_a_topic_that_would_become_wrong_keeps_the_broker_as_it_is(
    call: HandlerCalls, store: Store
) -> None:
    store.create_topic("archived", config={"archive.url": "file:///a"})
    compacted = change("log.cleanup.policy", Operation.SET, "compact")

    code, message = alter_other(call, BROKER, "7", compacted)

    assert code == ErrorCode.invalid_request
    assert message
    assert store.topic("orders").config.cleanup_policy == ("delete",)
    assert store.registry.defaults.cleanup_policy == ("delete",)


def test_every_layer_of_a_value_is_told_with_its_source(call: HandlerCalls) -> None:
    alter_other(call, BROKER, "", change("log.retention.ms", Operation.SET, "2d"))
    alter_other(call, BROKER, "7", change("log.retention.ms", Operation.SET, "3d"))
    alter_other(call, BROKER, "", change("background.threads", Operation.SET, "20"))
    layers = [
        ("log.retention.ms", "259200000", 2),
        ("log.retention.ms", "172800000", 3),
        ("log.retention.ms", "86400000", 4),
        ("log.retention.ms", "604800000", 5),
    ]

    broker = describe(call, BROKER, "7", include_synonyms=True)
    shared = describe(call, BROKER, "", include_synonyms=True)
    topic = describe(call, TOPIC, "orders", include_synonyms=True)

    for entry in (broker["log.retention.ms"], topic["retention.ms"]):
        assert (entry.value, entry.config_source) == ("259200000", 2)
        assert [(s.name, s.value, s.source) for s in entry.synonyms] == layers
    assert {name: (e.value, e.config_source, e.read_only) for name, e in shared.items()} == {
        "background.threads": ("20", 3, False),
        "log.retention.ms": ("172800000", 3, False),
    }
    assert broker["background.threads"].value == "20"


def test_a_deleted_setting_gives_way_to_the_next_layer(call: HandlerCalls, store: Store) -> None:
    alter_other(call, BROKER, "", change("log.flush.interval.ms", Operation.SET, "2"))
    alter_other(call, BROKER, "7", change("log.flush.interval.ms", Operation.SET, "3"))

    alter_other(call, BROKER, "7", change("log.flush.interval.ms", Operation.DELETE))
    shared = store.topic("orders").config.flush_ms
    wanted = resource(BROKER, "", configs=[])
    call(ALTER, {"resources": [wanted]})  # replaces all settings with none

    assert shared == 2
    assert store.topic("orders").config.flush_ms == TopicConfig().flush_ms


def test_the_cleaner_is_changed_while_it_runs(call: HandlerCalls, store: Store) -> None:
    changes = [
        change("log.cleaner.threads", Operation.SET, "2"),
        change("log.cleaner.io.max.bytes.per.second", Operation.SET, "1MiB"),
    ]

    alter_other(call, BROKER, "7", *changes)

    assert store.cleaner.config.threads == 2
    assert store.cleaner.config.io_max_bytes_per_second == 1 << 20


def test_settings_can_be_checked_only(call: HandlerCalls, store: Store) -> None:
    wanted = change("log.flush.interval.ms", Operation.SET, "2")

    assert alter_other(call, BROKER, "", wanted, validate_only=True)[0] == ErrorCode.none
    session = change("consumer.session.timeout.ms", Operation.SET, "50000")
    assert alter_other(call, GROUP, "g", session, validate_only=True)[0] == ErrorCode.none

    assert describe(call, BROKER, "") == {}
    assert describe(call, GROUP, "g")["consumer.session.timeout.ms"].value == "45000"


def test_settings_survive_a_restart() -> None:
    fs = SimulatedFileSystem()
    with open_store(fs) as store:
        call = client(store)
        alter_other(call, BROKER, "7", change("log.flush.interval.ms", Operation.SET, "2"))
        alter_other(call, GROUP, "g", change("consumer.session.timeout.ms", Operation.SET, "50s"))
    fs = fs.crash(Random(1))

    with open_store(fs) as store:
        call = client(store)

        assert store.create_topic("new").config.flush_ms == 2
        assert describe(call, BROKER, "7")["log.flush.interval.ms"].config_source == 2
        assert describe(call, GROUP, "g")["consumer.session.timeout.ms"].value == "50000"
        assert listed(call(LIST, {"resource_types": [32]})) == [(32, "g")]


# --- groups -------------------------------------------------------------------------------------


def test_a_group_has_settings_of_its_own(call: HandlerCalls) -> None:
    changes = [
        change("consumer.session.timeout.ms", Operation.SET, "60000"),
        change("consumer.heartbeat.interval.ms", Operation.SET, "15000"),
    ]

    assert alter_other(call, GROUP, "billing", *changes) == (ErrorCode.none, None)

    shown = describe(call, GROUP, "billing", include_synonyms=True)
    session = shown["consumer.session.timeout.ms"]
    assert (session.value, session.config_source) == ("60000", 8)
    assert [(s.name, s.source) for s in session.synonyms] == [
        ("consumer.session.timeout.ms", 8),
        ("group.consumer.session.timeout.ms", 5),
    ]
    assert describe(call, GROUP, "other")["consumer.session.timeout.ms"].value == "45000"


@pytest.mark.parametrize(
    ("group", "name", "value", "code"),
    [
        ("g", "consumer.session.timeout.ms", "44999", ErrorCode.invalid_config),
        ("g", "consumer.session.timeout.ms", "60001", ErrorCode.invalid_config),
        ("g", "consumer.heartbeat.interval.ms", "4999", ErrorCode.invalid_config),
        ("g", "consumer.heartbeat.interval.ms", "15001", ErrorCode.invalid_config),
        ("g", "consumer.heartbeat.interval.ms", "x", ErrorCode.invalid_config),
        ("g", "share.session.timeout.ms", "45000", ErrorCode.invalid_config),
        ("", "consumer.session.timeout.ms", "50000", ErrorCode.invalid_request),
    ],
)
def test_the_settings_of_a_group_have_limits(
    call: HandlerCalls, group: str, name: str, value: str, code: ErrorCode
) -> None:
    assert alter_other(call, GROUP, group, change(name, Operation.SET, value))[0] == code
    assert describe(call, GROUP, "g")["consumer.session.timeout.ms"].config_source == 5


@pytest.mark.parametrize("api", [ALTER, INCREMENTAL])
def test_each_resource_is_answered_for_itself(
    call: HandlerCalls, store: Store, api: ApiKey
) -> None:
    store.create_topic("other")
    configs = [{"name": "flush.ms", "value": "1"}]
    wanted = [
        resource(TOPIC, "orders", configs=configs),
        resource(TOPIC, "nope", configs=configs),
        resource(8, "7", configs=configs),
        resource(BROKER, "12", configs=configs),
        resource(GROUP, "billing", configs=configs),
        resource(TOPIC, "other", configs=configs),
        resource(TOPIC, "other", configs=[]),
    ]

    answer = call(api, {"resources": wanted})

    assert {(r.resource_type, r.resource_name): r.error_code for r in answer.responses} == {
        (2, "orders"): ErrorCode.none,
        (2, "nope"): ErrorCode.unknown_topic_or_partition,
        (8, "7"): ErrorCode.invalid_request,
        (4, "12"): ErrorCode.invalid_request,
        (32, "billing"): ErrorCode.invalid_config,
        (2, "other"): ErrorCode.invalid_request,
    }
    assert len(answer.responses) == 6
    assert store.registry.overrides("other") == {}


# --- AlterConfigs -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ALTER))
def test_the_given_keys_replace_all_that_were_set(
    call: HandlerCalls, store: Store, version: int
) -> None:
    wanted = resource(TOPIC, "orders", configs=[{"name": "flush.ms", "value": "5"}])

    [response] = call(ALTER, {"resources": [wanted]}, version=version).responses

    assert response.error_code == ErrorCode.none
    assert store.registry.overrides("orders") == {"flush.ms": "5"}


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ([{"name": "flush.ms", "value": None}], ErrorCode.invalid_request),
        ([{"name": "flush.ms", "value": "soon"}], ErrorCode.invalid_config),
        ([{"name": "no.such", "value": "1"}], ErrorCode.invalid_config),
    ],
)
def test_what_cannot_be_replaces_nothing(
    call: HandlerCalls, store: Store, configs: list[dict[str, Any]], code: int
) -> None:
    before = store.registry.overrides("orders")

    wanted = resource(TOPIC, "orders", configs=configs)
    [response] = call(ALTER, {"resources": [wanted]}).responses

    assert response.error_code == code
    assert store.registry.overrides("orders") == before


def test_a_replacement_can_be_checked_only(call: HandlerCalls, store: Store) -> None:
    before = store.registry.overrides("orders")
    wanted = resource(TOPIC, "orders", configs=[])

    [response] = call(ALTER, {"resources": [wanted], "validate_only": True}).responses

    assert response.error_code == ErrorCode.none
    assert store.registry.overrides("orders") == before


# --- ListConfigResources ------------------------------------------------------------------------


def listed(answer: Fields) -> list[tuple[int, str]]:
    return [(item.resource_type, item.resource_name) for item in answer.config_resources]


@pytest.mark.parametrize("types", [[], [2, 4, 8, 16, 32]])
def test_topics_and_the_broker_have_configurations(call: HandlerCalls, types: list[int]) -> None:
    answer = call(LIST, {"resource_types": types})

    assert answer.error_code == ErrorCode.none
    assert listed(answer) == [(2, "orders"), (4, "7")]


def test_only_the_types_asked_for_are_listed(call: HandlerCalls) -> None:
    assert listed(call(LIST, {"resource_types": [4]})) == [(4, "7")]
    assert listed(call(LIST, {"resource_types": [16]})) == []


def test_the_first_version_knew_only_client_metrics(call: HandlerCalls) -> None:
    answer = call(LIST, {}, version=0)

    assert (answer.error_code, answer.config_resources) == (ErrorCode.none, ())


def test_a_type_that_nobody_knows_is_refused(call: HandlerCalls) -> None:
    answer = call(LIST, {"resource_types": [3]})

    assert answer.error_code == ErrorCode.unsupported_version


def test_all_of_it_is_work_for_the_workers(call: HandlerCalls) -> None:
    assert {route.runs_on for route in call.routes.values()} == {RunsOn.WORKER}
