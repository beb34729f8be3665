"""The tables by SQL: views for people, one text for Spark, DuckDB and polars."""
