"""A broker inside a test: started, restarted, killed, several at once."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

import cordwood
from cordwood.errors import ConfigError, DirectoryLockedError, LogClosedError
from cordwood.testing import Broker
from fakes.own_threads import OwnThreads

pytest_plugins = ["pytester"]

# By its module, whether or not an installation has registered it under its name.
PLUGIN = ("-p", "no:cordwood", "-p", "cordwood.pytest_plugin")


def produce(broker: Broker, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def consume(broker: Broker, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        messages = consumer.consume(count, timeout=30)
        consumer.commit(asynchronous=False)
        return [message.value() for message in messages]
    finally:
        consumer.close()


def topic_names(broker: Broker) -> set[str]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return set(admin.list_topics(timeout=30).topics)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with cordwood.Broker(topics=["orders"]) as running:
        yield running


def test_what_a_client_produces_another_consumes(broker: Broker) -> None:
    produce(broker, "orders", b"one", b"two")

    assert consume(broker, "orders", 2) == [b"one", b"two"]


def test_clients_and_the_store_see_the_same_records(broker: Broker) -> None:
    broker.store.topic("orders").append(b"from inside")
    produce(broker, "orders", b"from outside")

    values = [record.value for record in broker.store.topic("orders").partition(0).read(0)]

    assert values == [b"from inside", b"from outside"]


def test_topics_are_there_from_the_start_and_when_created() -> None:
    with cordwood.Broker(topics={"orders": 3}) as broker:
        broker.create_topic("more", config={"retention.ms": "1h"})

        assert topic_names(broker) == {"orders", "more"}
        assert broker.store.topic("orders").partition_count == 3


def test_a_temporary_directory_goes_with_its_broker() -> None:
    broker = cordwood.Broker().start()
    directory = Path(broker.data_dir)
    assert directory.is_dir()

    broker.stop()

    assert not directory.exists()
    with pytest.raises(LogClosedError):
        _ = broker.data_dir


def test_a_directory_of_ones_own_stays_and_can_be_served_again(tmp_path: Path) -> None:
    with cordwood.Broker(tmp_path / "data", topics=["orders"]) as broker:
        produce(broker, "orders", b"kept")
    with cordwood.Broker(tmp_path / "data") as broker:
        assert consume(broker, "orders", 1) == [b"kept"]

    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_appends_are_on_the_disk_in_a_directory_of_ones_own_and_quick_in_a_temporary_one(
    tmp_path: Path,
) -> None:
    def durability_of(broker: Broker) -> str:
        with broker:
            return broker.create_topic("orders").config.durability

    assert durability_of(cordwood.Broker()) == "os"
    assert durability_of(cordwood.Broker(tmp_path / "a")) == "disk"
    assert durability_of(cordwood.Broker(durability="disk")) == "disk"
    assert durability_of(cordwood.Broker(tmp_path / "b", durability="os")) == "os"
    assert durability_of(cordwood.Broker(config={"log.durability": "disk"})) == "disk"


def test_a_restart_keeps_the_address_the_records_and_the_groups(broker: Broker) -> None:
    produce(broker, "orders", b"one", b"two")
    assert consume(broker, "orders", 1) == [b"one"]
    address = broker.bootstrap_servers

    broker.restart()

    assert broker.bootstrap_servers == address
    assert consume(broker, "orders", 1) == [b"two"]


def test_a_killed_broker_recovers_what_was_acknowledged(broker: Broker) -> None:
    produce(broker, "orders", b"one", b"two")

    broker.kill()
    assert not broker.is_running
    broker.start()

    assert [status.was_clean for status in broker.store.directories.status()] == [False]
    assert consume(broker, "orders", 2) == [b"one", b"two"]


def test_several_run_side_by_side() -> None:
    with cordwood.Broker(topics=["a"]) as first, cordwood.Broker(topics=["b"]) as second:
        produce(first, "a", b"first")
        produce(second, "b", b"second")

        assert first.port != second.port
        assert topic_names(first) == {"a"}
        assert topic_names(second) == {"b"}


def test_starting_and_stopping_can_be_repeated() -> None:
    broker = cordwood.Broker()
    broker.stop()
    assert broker.start() is broker
    assert broker.start() is broker
    broker.stop()
    broker.stop()

    assert not broker.is_running
    with pytest.raises(LogClosedError, match="the broker is closed"):
        _ = broker.bootstrap_servers


def test_it_can_be_told_like_any_broker() -> None:
    with cordwood.Broker(config={"num.partitions": 4, "log.retention.ms": "1h"}) as broker:
        produce(broker, "made-on-demand", b"x")

        topic = broker.store.topic("made-on-demand")
        assert topic.partition_count == 4
        assert topic.config.retention_ms == 3_600_000


def test_a_wrong_key_is_refused_before_anything_is_started() -> None:
    with pytest.raises(ConfigError, match=r"did you mean num\.partitions"):
        cordwood.Broker(config={"num.partition": 4})
    with pytest.raises(TypeError, match="topics must be a list of names"):
        cordwood.Broker(topics="orders")


def test_neither_files_nor_the_environment_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cordwood.toml").write_text("nonsense = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CORDWOOD_PORT", "1")

    with cordwood.Broker() as broker:
        assert broker.port != 1


def test_a_port_that_is_taken_is_refused_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = cordwood.Broker(tmp_path, port=taken.getsockname()[1])

        with pytest.raises(ConfigError, match="cannot listen on it"):
            broker.start()

    cordwood.open(tmp_path).close()


def test_a_directory_that_is_in_use_is_refused(tmp_path: Path) -> None:
    with cordwood.open(tmp_path), pytest.raises(DirectoryLockedError):
        cordwood.Broker(tmp_path).start()


def test_no_thread_and_no_socket_outlives_it() -> None:
    with OwnThreads() as threads:
        with cordwood.Broker(topics=["orders"], config={"metrics.port": 0}) as broker:
            produce(broker, "orders", b"x")
            port = broker.port
        left = [name for name in threads.names if name.startswith("cordwood")]

    assert left == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=30)


def test_a_broker_that_listens_everywhere_is_reached_on_loopback() -> None:
    everywhere = {"host": "0.0.0.0", "advertised.host": "127.0.0.1"}
    with cordwood.Broker(config=everywhere | {"insecure.listeners.allowed": True}) as broker:
        assert broker.bootstrap_servers.startswith("127.0.0.1:")
        assert topic_names(broker) == set()


def test_a_broker_that_lets_everybody_in_from_everywhere_must_be_allowed_to() -> None:
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0:0.*insecure\.listeners\.allowed=true"):
        cordwood.Broker(config={"host": "0.0.0.0"})


# --- the pytest plugin ---------------------------------------------------------------------------


def test_the_fixtures_give_brokers_to_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        def test_a_broker_of_its_own(cordwood_broker):
            assert cordwood_broker.store.topics() == []

        @pytest.mark.cordwood_broker(topics={"orders": 3}, config={"num.partitions": 2})
        def test_as_the_marker_says(cordwood_broker):
            assert cordwood_broker.store.topic("orders").partition_count == 3

        def test_one_for_all(cordwood_broker_session):
            cordwood_broker_session.create_topic("mine")

        def test_the_same_for_all(cordwood_broker_session, cordwood_broker):
            assert cordwood_broker_session.store.topics() == ["mine"]
            assert cordwood_broker.port != cordwood_broker_session.port

        def test_as_many_as_wanted(cordwood_broker_factory, tmp_path):
            first = cordwood_broker_factory()
            second = cordwood_broker_factory(tmp_path, topics=["a"])
            assert first.is_running
            assert second.store.topics() == ["a"]
        """
    )

    result = pytester.runpytest_subprocess(*PLUGIN, "--strict-markers", "-q")

    result.assert_outcomes(passed=5)


def test_the_plugin_costs_nothing_where_no_broker_is_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_loaded():
            assert not [name for name in sys.modules if name.startswith("cordwood.broker")]
            assert "cordwood.log.store.store" not in sys.modules
        """
    )

    result = pytester.runpytest_subprocess(*PLUGIN, "-q")

    result.assert_outcomes(passed=1)
