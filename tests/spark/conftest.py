"""One Spark session for the whole run: starting one takes longer than most tests."""

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent

# Spark compiles every query twice, to bytecode and to machine code, which pays off after millions
# of rows. These tests have a few rows for each query.
_QUICK_START = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m",
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(f"{HERE}/"):
            item.add_marker("spark")
            # Where tests are spread over processes, these stay together.
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A local session of two cores, as `cordwood.spark.session` makes it."""
    import cordwood.spark

    home = tmp_path_factory.mktemp("spark")
    session = cordwood.spark.session(
        "cordwood tests",
        master="local[2]",
        config={
            "spark.ui.enabled": False,
            "spark.ui.showConsoleProgress": False,
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            "spark.local.dir": str(home / "local"),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            **_QUICK_START,
        },
    )
    yield session
    session.stop()
    with warnings.catch_warnings():
        # The sockets to the JVM are closed by the garbage collector, which says so.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
