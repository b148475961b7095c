"""The demo: a broker, its clients, Spark, kills and a report. See `__main__`."""
