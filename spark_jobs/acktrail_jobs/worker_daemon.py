"""The process that Spark forks its Python workers from, with Arrow imported once for all of them, and without pandas,
which no worker of acktrail's uses.

A pandas UDF still works there; Arrow takes its results as plain sequences."""

from __future__ import annotations

from importlib import import_module

from pyspark.daemon import manager

from acktrail.format.columns.arrow_without_pandas import forgo_pandas

if __name__ == "__main__":
    forgo_pandas()
    for module in ("pyarrow.parquet", "pyspark.worker", "acktrail.tables.delta.store"):
        import_module(module)
    manager()
