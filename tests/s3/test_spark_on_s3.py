"""Spark's jobs over the S3 protocol: archives are read, tables are written, by executors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import cordwood

from .test_archive_on_s3 import CONFIG, fill

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("spark"),
]


def run_job(endpoint: str, *arguments: object) -> dict[str, Any]:
    """A job as people run it, with the settings of the store in its environment."""
    finished = subprocess.run(
        [
            sys.executable, "-m", "cordwood", "spark", *map(str, arguments), "--json",
            "--master", "local[2]", "--conf", "spark.ui.enabled=false",
            "--conf", "spark.driver.bindAddress=127.0.0.1",
        ],
        env={
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "AWS_ENDPOINT_URL": f"http://{endpoint}",
            "AWS_REGION": "us-east-1",
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr[-3000:]
    found: dict[str, Any] = json.loads(finished.stdout)
    return found


def test_an_archive_is_read_by_its_url(tmp_path: Path, s3_url: str, s3_endpoint: str) -> None:
    fill(tmp_path / "data", s3_url)

    counted = run_job(s3_endpoint, "stats", "orders", "--at", s3_url)
    checked = run_job(s3_endpoint, "verify", "--at", s3_url)

    assert counted["totals"]["records"] == 200  # the rest is not archived yet
    assert checked["totals"]["records"] == 200
    assert checked["problems"] == []


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_in_s3_has_each_offset_once(
    tmp_path: Path, s3_url: str, s3_endpoint: str, kind: str
) -> None:
    data = tmp_path / "data"
    with cordwood.open(data) as store:
        topic = store.create_topic("orders", config=CONFIG)
        topic.append_many([(None, b"%d" % n) for n in range(100)])
    bucket = f"s3://{urlsplit(s3_url).netloc}"
    table = {
        "delta": ("--table", f"{bucket}/orders", "--property", "AWS_ALLOW_HTTP=true"),
        "iceberg": (
            "--table", "shop.orders", "--warehouse", f"{bucket}/lake",
            "--property", f"uri=sqlite:///{tmp_path}/catalog.db",
            "--property", f"s3.endpoint=http://{s3_endpoint}",
        ),
    }[kind]  # fmt: skip
    arguments = ("export", "orders", "--at", data, "--format", kind, *table)

    first = run_job(s3_endpoint, *arguments)
    with cordwood.open(data) as store:
        store.topic("orders").append(b"100")
    second = run_job(s3_endpoint, *arguments)

    assert [first["totals"]["records"], second["totals"]["records"]] == [100, 1]
    dry = run_job(s3_endpoint, *arguments, "--dry-run")
    assert dry["totals"]["offsets"] == 0
