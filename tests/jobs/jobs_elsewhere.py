"""Reconcile and build the history of the tables named, where the environment says that Spark is; says where it was."""

from __future__ import annotations

import os
import sys

from acktrail.config import TablesConfig
from acktrail_jobs.commands.pipeline_commands import build_history, reconcile
from acktrail_jobs.session import spark_session

if __name__ == "__main__":
    tables = TablesConfig(uri=sys.argv[1])
    with spark_session(os.environ.get("MASTER")) as session:
        reconcile(tables, "r0")
        build_history(tables)
        is_remote = "connect" in type(session).__module__.split(".")
        sys.stdout.write("connect" if is_remote else "cluster" if "cluster" in session.sparkContext.master else "local")
