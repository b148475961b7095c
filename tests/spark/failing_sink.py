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
    """The source `cordwood-failing`, which fails at a moment of a batch, or kills a process."""
    from cordwood.spark.data_source import CordwoodDataSource
    from cordwood.spark.sink.store_writer import StoreStreamWriter

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

    class FailingSink(CordwoodDataSource):
        @classmethod
        def name(cls) -> str:
            return "cordwood-failing"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
            writer: Any = CordwoodDataSource.streamWriter(self, schema, overwrite)
            return FailingWriter(writer._options, writer._columns)

    return FailingSink
