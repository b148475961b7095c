"""Which value counts when files, environment and flags disagree, and what is refused."""

from pathlib import Path

import pytest

from cordwood.broker.config.listeners import SecurityProtocol
from cordwood.errors import ConfigError
from cordwood.quantities import INT32_MAX
from cordwood.settings import (
    SETTING_KEYS,
    Assignment,
    Settings,
    flag_assignments,
    load_settings,
    settings_from,
    variable_name,
)

# What Apache Kafka ships as config/server.properties, without its comments.
SHIPPED_BY_KAFKA = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\\
    SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
log.retention.hours=168
#log.retention.bytes=1073741824
#log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def source_of(settings: Settings, name: str) -> str:
    return next(s.source for s in settings.effective if s.key.name == name)


def value_of(settings: Settings, name: str) -> str:
    return next(s.value for s in settings.effective if s.key.name == name)


# --- what counts ---------------------------------------------------------------------------------


def test_without_anything_every_value_is_the_default(workplace: Path) -> None:
    settings = load_settings(environment={})

    assert {setting.source for setting in settings.effective} == {"default"}
    assert settings == settings_from({})


def test_flags_win_over_environment_over_file_over_default(workplace: Path) -> None:
    (workplace / "cordwood.toml").write_text(
        "port = 1\nnum.partitions = 1\nfetch.max.bytes = '1MiB'\n"
    )
    environment = {"CORDWOOD_PORT": "2", "CORDWOOD_NUM_PARTITIONS": "2"}

    settings = load_settings(environment=environment, flags=[Assignment("port", "3", "--port")])

    assert settings.broker.port == 3
    assert settings.broker.num_partitions == 2
    assert settings.broker.fetch_max_bytes == 1024 * 1024
    assert settings.broker.host == "127.0.0.1"
    assert source_of(settings, "port") == "--port"
    assert source_of(settings, "num.partitions") == "CORDWOOD_NUM_PARTITIONS"
    assert source_of(settings, "fetch.max.bytes") == "cordwood.toml"
    assert source_of(settings, "host") == "default"


def test_the_last_of_several_flags_for_a_key_counts(workplace: Path) -> None:
    flags = list(flag_assignments(["port=1", "port=2"]))

    assert load_settings(environment={}, flags=flags).broker.port == 2


def test_tables_and_dotted_names_mean_the_same_in_a_file(workplace: Path) -> None:
    (workplace / "cordwood.toml").write_text(
        '"log.retention.ms" = "7d"\nmetrics.port = 0\n'
        '[log]\ndirs = ["a", "b"]\nsegment.bytes = 1048576\n[log.cleaner]\nthreads = 2\n'
    )

    settings = load_settings(environment={})

    assert settings.topic_defaults.retention_ms == 604_800_000
    assert settings.topic_defaults.segment_bytes == 1_048_576
    assert settings.store.log_dirs == ("a", "b")
    assert settings.store.cleaner.threads == 2
    assert settings.broker.metrics_port == 0


def test_a_file_is_named_by_the_flag_or_by_the_environment(workplace: Path) -> None:
    (workplace / "cordwood.toml").write_text("port = 1\n")
    (workplace / "one.toml").write_text("port = 2\n")
    (workplace / "two.properties").write_text("port=3\n")
    environment = {"CORDWOOD_CONFIG": "one.toml"}

    by_environment = load_settings(environment=environment)
    by_flag = load_settings(environment=environment, file=Path("two.properties"))

    assert by_environment.broker.port == 2
    assert by_flag.broker.port == 3


def test_every_key_can_be_set_in_the_environment_under_a_name_of_its_own(workplace: Path) -> None:
    names = [variable_name(key.name) for key in SETTING_KEYS]

    settings = load_settings(
        environment={
            variable_name(key.name): key.default_text for key in SETTING_KEYS if key.default_text
        }
    )

    assert len(set(names)) == len(names)
    assert settings.broker == settings_from({}).broker
    assert source_of(settings, "log.retention.ms") == "CORDWOOD_LOG_RETENTION_MS"


def test_settings_from_a_mapping_read_no_file_and_no_environment(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workplace / "cordwood.toml").write_text("port = 1\n")
    monkeypatch.setenv("CORDWOOD_PORT", "2")

    settings = settings_from({"num.partitions": 3})

    assert settings.broker.port == 9092
    assert settings.broker.num_partitions == 3


# --- other names for the same --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.minutes": 3, "log.retention.hours": 2}, 180_000),
        ({"log.retention.hours": 2, "log.retention.minutes": 3}, 180_000),
        ({"log.retention.hours": 2, "log.retention.ms": 4}, 4),
        ({"log.retention.hours": "-1"}, None),
    ],
)
def test_the_finest_unit_counts_as_in_kafka(
    given: dict[str, object], retention_ms: int | None
) -> None:
    assert settings_from(given).topic_defaults.retention_ms == retention_ms


def test_a_coarse_unit_in_the_environment_wins_over_a_fine_one_in_the_file(workplace: Path) -> None:
    (workplace / "cordwood.toml").write_text("log.retention.ms = 5\n")

    settings = load_settings(environment={"CORDWOOD_LOG_RETENTION_HOURS": "1"})

    assert settings.topic_defaults.retention_ms == 3_600_000
    assert source_of(settings, "log.retention.ms") == "CORDWOOD_LOG_RETENTION_HOURS"


def test_kafkas_other_names_are_understood() -> None:
    settings = settings_from({"broker.id": 7, "log.dir": "/data", "log.roll.hours": 1})

    assert settings.broker.node_id == 7
    assert settings.store.log_dirs == ("/data",)
    assert settings.topic_defaults.segment_ms == 3_600_000


def test_listeners_have_names_addresses_and_protocols() -> None:
    settings = settings_from(
        {
            "listeners": "CLIENTS://10.0.0.1:19092,CONTROL://10.0.0.1:19093",
            "advertised.listeners": "CLIENTS://broker.example.com:29092",
            "controller.listener.names": "CONTROL",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,CONTROL:PLAINTEXT",
        }
    )

    (clients,) = settings.security.listeners
    assert clients.listener == ("CLIENTS", "10.0.0.1", 19092)
    assert clients.advertised == ("CLIENTS", "broker.example.com", 29092)
    assert clients.protocol is SecurityProtocol.PLAINTEXT


def test_host_and_port_move_the_one_listener_of_a_file(workplace: Path) -> None:
    (workplace / "server.properties").write_text(SHIPPED_BY_KAFKA)

    flags = list(flag_assignments(["port=19092", "advertised.host=broker.example.com"]))
    settings = load_settings(environment={}, file="server.properties", flags=flags)

    (clients,) = settings.security.listeners
    assert clients.listener == ("PLAINTEXT", "0.0.0.0", 19092)
    assert clients.advertised == ("PLAINTEXT", "broker.example.com", 9092)


def test_listeners_given_as_a_flag_replace_host_and_port_of_a_file(workplace: Path) -> None:
    (workplace / "cordwood.toml").write_text("host = '10.0.0.1'\nport = 1")

    flags = list(flag_assignments(["listeners=PLAINTEXT://127.0.0.1:2,SSL://127.0.0.1:3"]))
    settings = load_settings(environment={}, flags=flags)

    assert [at.listener.port for at in settings.security.listeners] == [2, 3]


def test_host_and_port_cannot_move_several_listeners() -> None:
    with pytest.raises(ConfigError, match="is for one listener"):
        settings_from({"listeners": "PLAINTEXT://:1,SSL://:2", "port": 3})


def test_a_key_of_one_listener_has_precedence_there() -> None:
    settings = settings_from(
        {
            "listeners": "INSIDE://:1,OUTSIDE://:2",
            "listener.security.protocol.map": "INSIDE:SASL_SSL,OUTSIDE:SASL_SSL",
            "ssl.client.auth": "required",
            "connections.max.reauth.ms": "1h",
            "listener.name.outside.ssl.client.auth": "none",
            "listener.name.outside.max.connections": "5",
            "listener.name.outside.scram-sha-256.connections.max.reauth.ms": "2h",
            "listener.name.outside.ssl.key.password": "secret",
        }
    )

    inside, outside = settings.security.listeners
    assert inside.tls is not None
    assert outside.tls is not None
    assert inside.sasl is not None
    assert outside.sasl is not None
    assert (inside.tls.ssl_client_auth, outside.tls.ssl_client_auth) == ("required", "none")
    assert (inside.max_connections, outside.max_connections) == (INT32_MAX, 5)
    hour_ms = 3_600_000
    assert inside.sasl.of("SCRAM-SHA-256").connections_max_reauth_ms == hour_ms
    assert outside.sasl.of("SCRAM-SHA-256").connections_max_reauth_ms == 2 * hour_ms
    assert outside.sasl.of("SCRAM-SHA-512").connections_max_reauth_ms == hour_ms
    shown = {setting.key.name: setting.value for setting in settings.effective}
    assert shown["listener.name.outside.ssl.client.auth"] == "none"
    assert shown["listener.name.outside.ssl.key.password"] == "[hidden]"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("listener.name.outside.ssl.client.auth", "none", "there is no listener OUTSIDE"),
        ("listener.name.plaintext.log.dirs", "x", "unknown key of a listener"),
        ("listener.name.plaintext", "x", "unknown key of a listener"),
        ("listener.name.plaintext.plain.ssl.client.auth", "none", "unknown key of a listener"),
        ("listener.name.plaintext.ssl.client.auth", "x", "name.plaintext.ssl.client.auth = x"),
        ("super.users", "admin", "must be type:name"),
        ("listeners", "SASL_PLAINTEXT://:1", "PLAIN sends passwords in clear text"),
    ],
)
def test_wrong_keys_of_security_are_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_from({"sasl.enabled.mechanisms": "PLAIN", name: value})


def test_the_file_that_kafka_ships_works_as_it_is(workplace: Path) -> None:
    (workplace / "server.properties").write_text(SHIPPED_BY_KAFKA)

    settings = load_settings(environment={}, file="server.properties")

    (clients,) = settings.security.listeners
    assert clients.listener == ("PLAINTEXT", "0.0.0.0", 9092)
    assert clients.advertised == ("PLAINTEXT", "localhost", 9092)
    assert settings.broker.socket_send_buffer_bytes == 102_400
    assert settings.store.log_dirs == ("/tmp/kraft-combined-logs",)
    assert settings.topic_defaults.retention_ms == 604_800_000
    idle = {assignment.name for assignment in settings.without_effect}
    assert {"process.roles", "num.network.threads", "offsets.topic.replication.factor"} <= idle


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("prot", "did you mean port"),
        ("log.retention.mss", "did you mean log.retention.ms"),
        ("retention.ms", "is a topic key; the default for all topics is set by log.retention.ms"),
        ("durability", "the default for all topics is set by log.durability"),
        ("ssl.engine.factory.class", "this way of protecting a broker is not available"),
        ("sasl.kerberos.service.name", "this way of protecting a broker is not available"),
        ("listener.name.outside.sasl.kerberos.service.name", "unknown key of a listener"),
        ("remote.log.storage.system.enable", "set log.archive.url"),
        ("xyzzy", "`cordwood config show` lists all keys"),
    ],
)
def test_an_unknown_key_is_refused_with_what_was_probably_meant(name: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings_from({name: "x"}, source="somewhere")

    assert refused.value.key == name
    assert reason in refused.value.reason
    assert refused.value.reason.endswith("(from somewhere)")


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"CORDWOOD_PORT": "many"}, "port = many: must be 0 to 65535 .from CORDWOOD_PORT."),
        ({"CORDWOOD_PROT": "1"}, "prot = 1: unknown key; did you mean port"),
        (
            {"CORDWOOD_LOG_RETENTION_HOURS": "x"},
            "log.retention.hours = x: .*CORDWOOD_LOG_RETENTION_H",
        ),
        (
            {"CORDWOOD_LISTENERS": "TLS://:1"},
            "listeners = TLS: TLS is not a security protocol.*CORDWOOD_LISTENERS",
        ),
        (
            {"CORDWOOD_LOG_SEGMENT_BYTES": "1"},
            "log.segment.bytes = 1: must be 1 MiB .*SEGMENT_BYTES",
        ),
        (
            {
                "CORDWOOD_LOG_CLEANER_MIN_COMPACTION_LAG_MS": "9",
                "CORDWOOD_LOG_CLEANER_MAX_COMPACTION_LAG_MS": "5",
            },
            "min.compaction.lag.ms = 9: .*CORDWOOD_LOG_CLEANER_MIN",
        ),
    ],
)
def test_an_error_says_where_the_value_came_from(
    workplace: Path, environment: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_settings(environment=environment)


def test_variables_of_a_kubernetes_service_named_cordwood_are_passed_over(workplace: Path) -> None:
    environment = {
        "CORDWOOD_PORT": "tcp://10.96.0.1:9092",
        "CORDWOOD_PORT_9092_TCP": "tcp://10.96.0.1:9092",
        "CORDWOOD_PORT_9092_TCP_ADDR": "10.96.0.1",
        "CORDWOOD_SERVICE_HOST": "10.96.0.1",
        "CORDWOOD_SERVICE_PORT_KAFKA": "9092",
        "UNRELATED": "x",
    }

    assert load_settings(environment=environment) == load_settings(environment={})


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.toml", b"port = ", "is not TOML"),
        ("a.toml", b"\xff\xfe", "is not UTF-8"),
        ("a.properties", b"port=\\u12", "is not a properties file"),
        ("a.yaml", b"", "must end in .toml or .properties"),
        ("a.toml", b"#" * 1_100_000, "is larger than 1048576 bytes"),
        ("a.toml", b"[[log]]\ndirs = 'x'\n", "unknown key"),
    ],
)
def test_a_file_that_cannot_be_understood_is_refused(
    workplace: Path, name: str, content: bytes, reason: str
) -> None:
    (workplace / name).write_bytes(content)

    with pytest.raises(ConfigError, match=reason):
        load_settings(environment={}, file=name)


def test_a_file_that_is_not_there_is_refused(workplace: Path) -> None:
    with pytest.raises(ConfigError, match=r"config = none\.toml: cannot be read: No such file"):
        load_settings(environment={}, file="none.toml")


@pytest.mark.parametrize("text", ["port", "=1", ""])
def test_a_flag_without_key_and_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be key=value"):
        list(flag_assignments([text]))


def test_values_are_shown_as_kafka_prints_them() -> None:
    settings = settings_from({"log.retention.ms": "7d", "log.dirs": ["a", "b"]})

    assert value_of(settings, "log.retention.ms") == "604800000"
    assert value_of(settings, "log.dirs") == "a,b"
    assert value_of(settings, "metrics.port") == "-1"
