"""Lakehouse tables that jobs write and read: Parquet, Delta and Iceberg behind one interface."""
