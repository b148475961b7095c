"""Kafka's tools and brokers for the tests of this folder; each test here is marked `interop`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cordwood
from interop.java_tools import JavaTools, save_loaded_classes
from interop.kafka_peer import (
    QUICK_START,
    KafkaBroker,
    KafkaTools,
    KafkaUnavailableError,
    StartBroker,
)
from interop.kafka_sample import BROKER, KafkaDirectories, ask_kafka, write_kafka_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if str(item.path).startswith(f"{here}/"):
            item.add_marker("interop")


@pytest.fixture(scope="session")
def _found() -> KafkaTools:
    try:
        return KafkaTools.find()
    except KafkaUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def quick_jvm(_found: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """JVM options for tools that run often."""
    return save_loaded_classes(_found, tmp_path_factory.mktemp("jvm") / "classes.jsa")


@pytest.fixture(scope="session")
def kafka(_found: KafkaTools, quick_jvm: tuple[str, ...]) -> KafkaTools:
    """Kafka's tools, which start quickly."""
    return _found


@pytest.fixture(scope="session")
def kafka_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The only session of the process, with Spark's Kafka source.

    Tests that use it are in the same xdist group, `spark-kafka`.
    """
    pytest.importorskip("pyspark")
    from interop.spark_kafka import find_jars, open_session

    try:
        with open_session(find_jars(), tmp_path_factory.mktemp("spark")) as session:
            yield session
    except KafkaUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def broker() -> Iterator[cordwood.Broker]:
    """The broker that is judged: one for the tests of a module, each with topics of its own."""
    # Records dated long ago stay, however slow the machine is.
    with cordwood.Broker(config={"log.retention.ms": -1}) as running:
        yield running


@pytest.fixture(scope="module")
def tools(kafka: KafkaTools, quick_jvm: tuple[str, ...], broker: cordwood.Broker) -> JavaTools:
    """Kafka's tools, pointed at `broker`."""
    return JavaTools(kafka, broker.bootstrap_servers, jvm_options=quick_jvm)


@pytest.fixture
def start_broker(kafka: KafkaTools, tmp_path: Path) -> Iterator[StartBroker]:
    """Starts brokers, by default over `tmp_path / "kafka-logs"`; ends those still running."""
    with ExitStack() as brokers:

        def start(log_dir: Path = tmp_path / "kafka-logs", **properties: str) -> KafkaBroker:
            settings = {key.replace("_", "."): value for key, value in properties.items()}
            broker = KafkaBroker(
                kafka,
                log_dirs=[log_dir],
                work_dir=tmp_path / "broker",
                properties=settings,
                jvm_options=QUICK_START,
            )
            return brokers.enter_context(broker)

        yield start


@pytest.fixture(scope="session")
def kafka_directories(
    kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaDirectories]:
    """What a broker wrote: as a kill left it, as it was after a clean stop, and in use again."""
    root = tmp_path_factory.mktemp("kafka")
    live = root / "live"

    def broker() -> KafkaBroker:
        return KafkaBroker(
            kafka,
            log_dirs=[live],
            work_dir=root / "broker",
            properties=BROKER,
            jvm_options=QUICK_START,
        )

    with broker() as first:
        places = write_kafka_topics(first.bootstrap_servers, live)
        truth = ask_kafka(first.bootstrap_servers, places)
        first.kill()
    shutil.copytree(live, root / "killed")
    with broker() as second:
        second.stop()
    shutil.copytree(live, root / "stopped")
    with broker() as third:
        yield KafkaDirectories(
            live=live,
            killed=root / "killed",
            stopped=root / "stopped",
            servers=third.bootstrap_servers,
            truth=truth,
        )
