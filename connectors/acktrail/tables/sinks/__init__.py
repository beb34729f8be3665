"""Sinks for rows of any source: Delta tables of any name, plain Parquet files."""
