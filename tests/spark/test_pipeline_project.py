"""The project that `cordwood spark init-pipeline` writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import ConfigError
from cordwood.spark.decoding.type_text import parse_schema
from cordwood.spark.java_home import find_java_home
from cordwood.spark.jobs.pipeline_plan import plan_project
from cordwood.spark.jobs.pipeline_project import render_ddl


def fill(data: Path) -> None:
    with cordwood.open(data) as store:
        topic = store.create_topic("Shop.users")
        for number in range(6):
            value = json.dumps({"id": number, "tags": ["a"]}).encode()
            topic.append(value, key=b"user-%d" % (number % 3))
        topic.append(None, key=b"user-0")


def test_a_topic_with_tombstones_gets_a_table_of_its_present_state(tmp_path: Path) -> None:
    fill(tmp_path / "data")

    project = plan_project([str(tmp_path / "data")], "Shop.users", str(tmp_path / "p"), "infer")

    assert project.table == "shop_users"
    text = project.files()["transformations/shop_users.py"]
    assert "`id` BIGINT, `tags` ARRAY<STRING>" in text
    assert "shop_users_current" in text
    compile(text, "shop_users.py", "exec")


def test_a_compacted_topic_gets_that_table_before_it_has_any_record(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("users", config={"cleanup.policy": "compact"})
        store.create_topic("events")

    for topic, is_changelog in (("users", True), ("events", False)):
        project = plan_project([str(tmp_path / "data")], topic, str(tmp_path / "p"), "infer")
        assert project.is_changelog == is_changelog


def test_ddl_is_rendered_as_it_is_parsed() -> None:
    ddl = "`a` INT, `b` STRUCT<`c`: ARRAY<STRING>, `d`: MAP<STRING, DECIMAL(9,2)>>, `e` TIMESTAMP"

    assert render_ddl(parse_schema(ddl)) == ddl


def test_a_path_that_spark_cannot_read_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "data")

    with pytest.raises(ConfigError, match="cannot hold"):
        plan_project([str(tmp_path / "data")], "Shop.users", f"{tmp_path}/a;b", "infer")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_project_runs(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    data, home = tmp_path / "data", tmp_path / "project"
    fill(data)
    arguments = ["-m", "cordwood", "spark", "init-pipeline", "Shop.users", str(home)]
    made = subprocess.run(
        [sys.executable, *arguments, "--at", str(data)], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    assert f"cd {home} && SPARK_CONF_DIR=conf" in made.stderr
    environment = {
        **os.environ,
        "SPARK_CONF_DIR": str(home / "conf"),
        "SPARK_REMOTE": "local[2]",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    java_home = find_java_home(os.environ)
    if java_home is not None:
        environment["JAVA_HOME"] = java_home

    ran = subprocess.run(
        [sys.executable, "-m", "pyspark.pipelines.cli", "run"],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )

    assert ran.returncode == 0, ran.stderr[-3000:]
    rows = pq.read_table(home / "warehouse" / "shop_users").to_pylist()
    assert sorted(row["offset"] for row in rows) == list(range(7))
    current = pq.read_table(home / "warehouse" / "shop_users_current").to_pylist()
    assert {row["key"]: row["value"]["id"] for row in current} == {b"user-1": 4, b"user-2": 5}
