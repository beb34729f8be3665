"""Register the views of some tables in a session that has Spark's Delta connector. Write the rows of each as an Arrow
file, and print, by view, its version and whether the connector reads it. Root, folder and master are arguments."""

from __future__ import annotations

import json
import sys

import pyarrow.feather as feather

from acktrail.config import TablesConfig
from acktrail_jobs.session import spark_session
from acktrail_jobs.views import register_views

if __name__ == "__main__":
    root, results, master = sys.argv[1:]
    found: dict[str, tuple[int, bool]] = {}
    with spark_session(master) as spark:
        for name, version in register_views(spark, TablesConfig(uri=root)).items():
            if version is not None:
                ((plan,),) = spark.sql(f"EXPLAIN SELECT * FROM {name}").collect()
                found[name] = version, "DeltaFileIndex" in plan
                feather.write_feather(spark.table(name).toArrow(), f"{results}/{name}.arrow")
    sys.stdout.write(json.dumps(found))
