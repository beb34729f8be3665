"""``acktrail run stream``: the export by Spark, for those who outgrow one machine."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import Annotated

import typer

from acktrail.activity import stop_on_signals
from acktrail.cli.common_options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot
from acktrail.cli.progress import showing_activity
from acktrail.config import KafkaConfig, TablesConfig, environment, spark_master
from acktrail.errors import InputError
from acktrail.times import new_run_id
from acktrail_connect.commands.export import RunId, show_summary
from acktrail_jobs.commands.master_option import Master
from acktrail_jobs.engine import IN_PROCESS, translated

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("stream")
def _command(
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    every: Annotated[
        float | None, typer.Option("--every", min=0, help="Run until Ctrl-C: seconds between two micro-batches.")
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", help="Spark's checkpoint. Default: _acktrail/stream under a folder of tables."),
    ] = None,
    observation: Annotated[
        bool,
        typer.Option("--observe/--no-observe", help="Query the brokers before and after the export. Not with --every."),
    ] = True,
    most: Annotated[
        int, typer.Option("--max-offsets", min=1, help="The largest number of offsets in a micro-batch.")
    ] = 1_000_000,
    run_id: RunId = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Export state records with Structured Streaming, exactly once. Spark's executors read the topic and write the
    tables.

    The stream writes the same tables as `acktrail run export` and the Connect worker. Each continues where another one
    ended. Worker and stream share a lease, so only one of them works at a time. The command ends at the present end of
    the topic; with --every it continues until Ctrl-C. If it is killed at any moment, no record is lost or doubled.
    Nothing in the cluster is changed.

    Example: acktrail run stream --bootstrap-server broker-1:9092 --tables /data/acktrail --master spark://master:7077
    """
    from acktrail_connect.contract import LeaseTerms
    from acktrail_connect.export.export_run import ExportRun
    from acktrail_connect.sinks.writer_lease import sink_lease
    from acktrail_connect.stream.state_stream import StreamPlan, TableStream
    from acktrail_jobs.session import CONNECT, spark_session

    kafka = KafkaConfig.from_environment(bootstrap_server, client_config)
    target = TablesConfig.from_environment(tables, tables_options)
    place = checkpoint or _default_checkpoint(target)
    if master == IN_PROCESS:
        raise InputError("the stream needs Spark", hint="`acktrail run export` does the same without Spark")
    run_id, master = run_id or new_run_id(), master or (None if spark_master() == IN_PROCESS else spark_master())
    if master.startswith(CONNECT) if master else "SPARK_REMOTE" in environment():
        raise InputError("a stream needs a driver of its own", hint="name a master, or use spark-submit")
    with showing_activity(), translated(), stop_on_signals() as stop, ExitStack() as after:
        run = ExportRun(kafka, target, run_id=run_id, stop=stop)
        lease = sink_lease(
            target, LeaseTerms(connector="", owner=f"{socket.gethostname()}:{place}", ttl_s=30.0, reads_logs=True)
        )
        after.callback(lease.release)
        session = cache(lambda: after.enter_context(spark_session(master)))
        stream = TableStream(
            run=run,
            plan=StreamPlan(kafka=kafka, tables=target, run_id=run_id, most=most),
            checkpoint=place,
            lease=lease,
            stop=stop,
        )
        if every is not None:
            stream.keep_up(session, every)
        else:
            with run.open():
                is_sampled = observation and run.sample("before", reads_state=False)
                stream.drain(session)
                if is_sampled and not stop.is_set():
                    run.sample("after", reads_state=False)
    show_summary(replace(run.summary(), status="stopped") if stop.is_set() else run.summary(), as_json=as_json)
    run.checked_summary()


def _default_checkpoint(tables: TablesConfig) -> str:
    from acktrail.tables.delta.table_root import table_root

    root = table_root(tables)
    if not root.is_local:
        raise InputError(
            "tables in object storage need --checkpoint", hint="give a place that Spark itself can write to"
        )
    return f"{root.uri}/_acktrail/stream"
