"""A topic as a table, a table of what each customer has spent, and a topic of large orders.

If Cordwood is installed, Spark finds `format("cordwood")` itself: nothing is registered here.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

spark = SparkSession.active()
DATA = spark.conf.get("example.data") or ""
ORDER = "id BIGINT, customer STRING, amount DOUBLE"


@dp.table(name="orders", format="parquet")
def orders() -> DataFrame:
    """Every order, exactly once."""
    records = (
        spark.readStream.format("cordwood")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load(DATA)
    )
    decoded = records.selectExpr(
        f"from_json(CAST(value AS STRING), '{ORDER}') AS placed", "timestamp", "offset"
    )
    return decoded.select("placed.*", "timestamp", "offset")


@dp.materialized_view(name="spending", format="parquet")
def spending() -> DataFrame:
    """The total that each customer has spent."""
    return spark.read.table("orders").groupBy("customer").agg(fn.sum("amount").alias("spent"))


dp.create_sink("large_orders", "cordwood", {"path": DATA, "topic": "large-orders"})


@dp.append_flow(target="large_orders", name="large_orders")
def large_orders() -> DataFrame:
    """Writes orders of 100 and more to another topic, exactly once."""
    large = spark.readStream.table("orders").where("amount >= 100")
    return large.selectExpr("customer AS key", "to_json(struct(id, amount)) AS value")
