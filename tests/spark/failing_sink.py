"""A sink that fails, or takes the whole of Spark with it, at a chosen moment of one batch.

    staged      the tasks are done, nothing has been published
    published   the batch is in the store, and Spark has not been told

The classes are made in a function so that Spark's workers get them with the query: they cannot
import the tests.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource


def failing_sink(moment: str, batch: int, *, killed_pid: int | None = None) -> type[DataSource]:
    """The source `varve-failing`, which fails at that moment of that batch, or kills a process."""
    from varve.spark.source import VarveDataSource
    from varve.spark.store_writer import StoreStreamWriter

    def fail() -> None:
        import os
        import signal
        import time

        if killed_pid is not None:
            os.kill(killed_pid, signal.SIGKILL)
            time.sleep(60)
        raise RuntimeError(f"failed once it was {moment}")

    class FailingWriter(StoreStreamWriter):
        def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
            if batchId == batch and moment == "staged":
                fail()
            StoreStreamWriter.commit(self, messages, batchId)
            if batchId == batch and moment == "published":
                fail()

    class FailingSink(VarveDataSource):
        @classmethod
        def name(cls) -> str:
            return "varve-failing"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
            writer: Any = VarveDataSource.streamWriter(self, schema, overwrite)
            return FailingWriter(writer._options, writer._columns)

    return FailingSink
