"""Read every table of a root with Spark's Delta connector, as its users do; write what was read as Arrow files. Needs
PySpark and no acktrail: jars, root and the folder to write to are arguments."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.feather as feather
from pyspark.sql import SparkSession

if __name__ == "__main__":
    jars, root, results = sys.argv[1:]
    settings = {
        "spark.jars": jars,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
    }
    with SparkSession.builder.master("local[2]").config(map=settings).getOrCreate() as spark:
        for table in sorted(path.parent for path in Path(root).glob("*/_delta_log")):
            found = spark.read.format("delta").load(str(table)).toArrow()
            feather.write_feather(found, f"{results}/{table.name}.arrow")
