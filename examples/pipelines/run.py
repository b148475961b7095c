"""Run the pipeline of this directory twice, with new orders in between, and show the results.

    python run.py [WORK]

All files go to WORK, by default a new directory. To run it with your own paths:

    SPARK_CONF_DIR=conf SPARK_REMOTE=local[2] spark-pipelines run
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

import cordwood
from cordwood.spark.java_home import find_java_home

HERE = Path(__file__).resolve().parent
EXAMPLE_HOME = "/srv/cordwood"


def main(work: Path) -> None:
    project = prepare(work)
    data = work / "data"
    with cordwood.open(data) as store:
        store.create_topic("orders", partitions=2)
        store.create_topic("large-orders")
    for first in (0, 6):
        place_orders(data, first)
        run_pipeline(project)
        show(work, data)


def prepare(work: Path) -> Path:
    """Copy the project, with the paths in its files changed to `work`."""
    project = work / "project"
    shutil.copytree(HERE, project, ignore=shutil.ignore_patterns("run.py", "__pycache__"))
    for name in ("spark-pipeline.yml", "conf/spark-defaults.conf"):
        path = project / name
        path.write_text(path.read_text().replace(EXAMPLE_HOME, str(work)))
    (work / "pipeline").mkdir()
    return project


def place_orders(data: Path, first: int) -> None:
    with cordwood.open(data) as store:
        for number in range(first, first + 6):
            customer = ("ada", "bob", "eve")[number % 3]
            order = {"id": number, "customer": customer, "amount": 30.0 * (number + 1)}
            store.topic("orders").append(json.dumps(order).encode(), key=customer.encode())


def run_pipeline(project: Path) -> None:
    environment = {
        **os.environ,
        "SPARK_CONF_DIR": str(project / "conf"),
        "SPARK_REMOTE": "local[2]",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    java_home = find_java_home(os.environ)
    if java_home is not None:
        environment["JAVA_HOME"] = java_home
    subprocess.run(
        [sys.executable, "-m", "pyspark.pipelines.cli", "run"],
        cwd=project,
        env=environment,
        check=True,
    )


def show(work: Path, data: Path) -> None:
    warehouse = work / "pipeline" / "warehouse"
    orders = sorted(row["id"] for row in pq.read_table(warehouse / "orders").to_pylist())
    print(f"table orders: {len(orders)} rows, ids {orders[0]} to {orders[-1]}")
    spending = pq.read_table(warehouse / "spending").to_pylist()
    shown = {row["customer"]: row["spent"] for row in spending}
    print(f"table spending: {dict(sorted(shown.items()))}")
    with cordwood.open(data, read_only=True) as store:
        records = list(store.topic("large-orders").partition(0).read())
    ids = sorted(json.loads(record.value or b"{}")["id"] for record in records)
    print(f"topic large-orders: {len(ids)} records, ids {ids}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
