"""Spark's own source and sink for Kafka, in a Spark of this process."""

from __future__ import annotations

import gc
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import cordwood.spark
from interop.kafka_peer import KafkaUnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POM = Path(__file__).with_name("spark") / "pom.xml"


def find_jars() -> list[Path]:
    """The jars from CORDWOOD_SPARK_KAFKA_LIBS or the user's cache."""
    match = re.search(r"<spark\.version>([^<]+)<", _POM.read_text())
    assert match is not None, _POM
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    standard = Path(cache, "cordwood", f"spark-kafka-{match[1]}", "libs")
    libraries = Path(os.environ.get("CORDWOOD_SPARK_KAFKA_LIBS") or standard).expanduser()
    jars = sorted(libraries.glob("*.jar"))
    if not any(jar.name.startswith("spark-sql-kafka-") for jar in jars):
        raise KafkaUnavailableError(
            f"the jars of Spark's Kafka source are not in {libraries}: run script/interop"
        )
    return jars


@contextmanager
def open_session(jars: list[Path], home: Path) -> Iterator[SparkSession]:
    """A local session that knows ``format("kafka")``, in a process that has had none before.

    It has four slots: a query in real-time mode keeps one for each of its partitions. Jars are
    given to a JVM at its start, and a process has one JVM for all its sessions.
    """
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        raise KafkaUnavailableError("Spark runs in this process already, without the Kafka source")
    session = cordwood.spark.session(
        "cordwood interop",
        master="local[4]",
        config={
            "spark.jars": ",".join(map(str, jars)),
            "spark.ui.enabled": False,
            "spark.ui.showConsoleProgress": False,
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            "spark.local.dir": str(home / "local"),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        },
    )
    try:
        yield session
    finally:
        session.stop()
        with warnings.catch_warnings():
            # The sockets to the JVM are closed by the garbage collector, which says so.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
