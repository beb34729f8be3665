"""The stream without Spark, which only carries its work to executors and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Event
from typing import Any

import pyarrow as pa

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.times import new_run_id
from acktrail_connect.contract import LeaseTerms
from acktrail_connect.export.export_run import ExportRun, ExportSummary, Written
from acktrail_connect.sinks.writer_lease import sink_lease
from acktrail_connect.stream.state_stream import (
    WRITTEN,
    StateStreamReader,
    StreamPlan,
    TableStream,
    write_share,
    written_records,
)


class StreamHere(TableStream):
    """A query is one micro-batch, whose tasks run in this process."""

    def _follow(self, session: Callable[[], Any], trigger: Mapping[str, Any]) -> None:  # Spark's
        self._hold()
        reader = StateStreamReader(self.plan)
        tasks = reader.partitions({}, reader.latestOffset())

        def write(cluster_id: str) -> Written:
            self.plan.prepare()
            found = [batch for task in tasks for batch in write_share(self.plan, reader.read(task))]
            return written_records(pa.Table.from_batches(found, WRITTEN), cluster_id)

        self.run.commit_written(f"stream/{new_run_id()}", 0, write)


def stream_here(kafka: KafkaConfig, tables: TablesConfig) -> ExportSummary:
    """``acktrail run stream --no-observe``."""
    run = ExportRun(kafka, tables)
    lease = sink_lease(tables, LeaseTerms(connector="", owner="s", ttl_s=30, reads_logs=True))
    plan = StreamPlan(kafka=kafka, tables=tables, run_id=run.summary().run_id)
    stream = StreamHere(run=run, plan=plan, checkpoint="", lease=lease, stop=Event())
    with run.open():
        stream.drain(lambda: None)  # type: ignore[arg-type, return-value]  # no query asks for a session
    lease.release()
    return run.checked_summary()
