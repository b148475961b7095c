"""A topic as a table, what each customer has spent, and the large orders as a topic again.

Spark finds `format("cordwood")` by itself where Cordwood is installed: nothing is registered here.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

spark = SparkSession.active()
DATA = spark.conf.get("example.data") or ""
ORDER = "id BIGINT, customer STRING, amount DOUBLE"


@dp.table(name="orders", format="parquet")
def orders() -> DataFrame:
    """Every order, once, as it comes."""
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
    """What each customer has spent so far."""
    return spark.read.table("orders").groupBy("customer").agg(fn.sum("amount").alias("spent"))


dp.create_sink("large_orders", "cordwood", {"path": DATA, "topic": "large-orders"})


@dp.append_flow(target="large_orders", name="large_orders")
def large_orders() -> DataFrame:
    """Orders of 100 and more, to a topic of their own, exactly once."""
    large = spark.readStream.table("orders").where("amount >= 100")
    return large.selectExpr("customer AS key", "to_json(struct(id, amount)) AS value")
