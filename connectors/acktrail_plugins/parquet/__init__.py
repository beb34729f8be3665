"""Rows in plain Parquet files, in a folder or a bucket."""
