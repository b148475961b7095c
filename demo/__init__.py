"""The demonstration: a broker, its clients, Spark, a kill and a picture. See `__main__`."""
