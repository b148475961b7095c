"""How many tasks a shuffle is cut into.

Spark cuts every shuffle into `spark.sql.shuffle.partitions` tasks, 200 by default. Its adaptive
execution joins small ones, but not those of a result that is kept in memory. A task costs a few
milliseconds even if it has nothing to do.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS_PER_TASK: Final = 100_000


def narrowed(df: "DataFrame", rows_max: int, *keys: str) -> "DataFrame":
    """`df`, shuffled by `keys` into as many tasks as `rows_max` rows need.

    As it is if these are not fewer than Spark would use anyway: then the operation that needs the
    shuffle may reduce the rows before it.
    """
    width = -(-rows_max // _ROWS_PER_TASK)
    default = df.sparkSession.conf.get("spark.sql.shuffle.partitions")
    if default is None or width >= int(default):
        return df
    return df.repartition(max(width, 1), *keys)
