"""``acktrail run reconcile``, ``run history`` and ``tables verify``; ``acktrail record state``: the state of share
partitions as of any moment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from acktrail.cli.common_options import TIME, AsJson, TablesOptions, TablesRoot, json_line
from acktrail.cli.progress import showing_activity
from acktrail.config import TablesConfig
from acktrail.errors import UnknownName
from acktrail.times import time_ms, utc_text
from acktrail_jobs import api
from acktrail_jobs.commands.master_option import Master

if TYPE_CHECKING:
    from acktrail.history.replay_resume import TopicAtTime
    from acktrail.tables.delta.store import Tables
    from acktrail_jobs.history.history_run import HistorySummary
    from acktrail_jobs.history.verify_tables import VerifySummary
    from acktrail_jobs.reconcile.reconcile_run import ReconcileSummary


reconcile_app, history_app, verify_app, state_app = (
    typer.Typer(rich_markup_mode=None, add_completion=False) for _ in range(4)
)
_DIFFERENT: Final = 6


@reconcile_app.command("reconcile")
def _reconcile_command(
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    run_id: Annotated[
        str | None, typer.Option("--run-id", help="The observation to reconcile. Default: the newest complete one.")
    ] = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Replay the exported state, and compare it with the brokers.

    The job runs on PySpark. It needs an observation, which stores the brokers' answers; `acktrail run export` makes
    one. It writes share_partition_states, reconciliations (a verdict for each share partition) and findings. It updates
    delivery_history (see `acktrail run history`). It computes the status of every queue: queue_statuses,
    status_changes, queue_trends and run_totals. To reconcile the same run again changes nothing. The job connects to no
    cluster.

    Example: acktrail run reconcile --tables /data/acktrail
    """
    config = TablesConfig.from_environment(tables, tables_options)
    with showing_activity():
        summary = api.reconcile(config, run_id, master, with_history=True)
    typer.echo(json.dumps(asdict(summary)) if as_json else _reconcile_text(config, summary))


def _reconcile_text(tables: TablesConfig, summary: ReconcileSummary) -> str:
    from acktrail.tables.delta.store import Tables
    from acktrail.text_tables import printable, table
    from acktrail.view.cluster_health import no_share_group

    nothing = None if summary.share_partitions else no_share_group(Tables(tables), summary.run_id)
    if nothing is not None:
        return f"run {printable(summary.run_id)}: {nothing}"
    counted = (("verdict", summary.verdicts), ("finding", summary.findings))
    rows: list[tuple[Any, ...]] = [(kind, name, count) for kind, counts in counted for name, count in counts.items()]
    replay = f"all records were replayed: {printable(summary.replayed_all or '')}"
    if summary.went_on_from is not None:
        replay = f"replay continued from run {printable(summary.went_on_from)}"
    counts = f"{summary.share_partitions} share partitions, {summary.moved} moved"
    where = f"; on {printable(summary.ran_on)}" if summary.ran_on else ""
    head = f"run {printable(summary.run_id)}: {counts}; {replay}{where}"
    return f"{head}\n{table(('', 'name', 'count'), rows)}" if rows else head


@history_app.command("history")
def _history_command(
    tables: TablesRoot = None, tables_options: TablesOptions = None, master: Master = None, as_json: AsJson = False
) -> None:
    """Update the history of every record to the end of the export. The job runs on PySpark.

    The job reads the state records that were exported since its last run, and writes delivery_history. `acktrail record
    show`, `acktrail record archived` and `acktrail record rates` read that table. `acktrail run reconcile` also updates
    it. The job connects to no cluster.

    Example: acktrail run history --tables /data/acktrail
    """
    with showing_activity():
        summary = api.build_history(TablesConfig.from_environment(tables, tables_options), master)
    typer.echo(json.dumps(asdict(summary)) if as_json else _history_text(summary))


def _history_text(summary: HistorySummary) -> str:
    if not summary.records:
        return "no new records"
    return (
        f"{summary.records:,} new records on {summary.state_partitions} state partitions made "
        f"{summary.changes:,} changes in {summary.steps} commit(s)"
    )


@verify_app.command("verify")
def _verify_command(
    tables: TablesRoot = None, tables_options: TablesOptions = None, master: Master = None, as_json: AsJson = False
) -> None:
    """Compare saved states of runs with the exported records.

    Reconciliation and history read only new records, and continue from the states that the previous run saved. This
    command replays all records from the beginning, and compares the result with the saved states and with every change
    in the history. Nothing is written. Exit code 6: something differs. If `replay_memory`, `held_states` or
    `delivery_history` differs, delete that table; the next `acktrail run reconcile` writes it again. Never delete
    `state_records`: restore it from the storage's own versions or a backup.

    Example: acktrail tables verify --tables /data/acktrail
    """
    with showing_activity():
        summary = api.verify(TablesConfig.from_environment(tables, tables_options), master)
    typer.echo(json.dumps(asdict(summary)) if as_json else _verify_text(summary))
    if summary.differences:
        raise typer.Exit(_DIFFERENT)


def _verify_text(summary: VerifySummary) -> str:
    from acktrail.text_tables import table

    changes = f"{summary.changes:,} changes made by {summary.records:,} records"
    compared = f"{summary.share_partitions:,} share partitions, {changes}"
    if summary.not_compared:
        compared += f" (of {len(summary.not_compared)} state partitions with dropped records only the raw bytes)"
    if not summary.differences:
        return f"{compared}: all as the records say"
    rows = [(each.table, each.state_partition, each.subject, each.detail) for each in summary.differences]
    return f"{compared}: differences\n{table(('TABLE', 'STATE PARTITION', 'SHARE PARTITION', 'DETAIL'), rows)}"


_PLACE: Final = ("topic_id", "partition", "state_partition")
_PLAIN: Final = (
    *("topic", *_PLACE),
    *("state_epoch", "snapshot_epoch", "leader_epoch", "start_offset", "first_unfinished_offset", "end_offset"),
    *("delivery_complete_count", "available_records", "acknowledged_records", "archiving_records", "archived_records"),
    *("last_record_offset", "last_record_timestamp_ms", "completeness", "completeness_reason"),
)
_SHOWN: Final = {
    "START OFFSET": "start_offset",
    "AVAILABLE": "available_records",
    "ACKNOWLEDGED": "acknowledged_records",
    "ARCHIVED": "archived_records",
    "COMPLETE COUNT": "delivery_complete_count",
    "STATE EPOCH": "state_epoch",
}


@state_app.command("state")
def _state_command(
    group: Annotated[str | None, typer.Argument(help="Share group. Default: all.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", help=f"The moment, inclusive: {TIME}. Default: all exported.")
    ] = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of share partitions at any past moment. It is what a broker held then.

    The command replays the exported records up to that moment: each state partition up to its first record with a later
    timestamp. If exported records are missing, stderr and the `completeness` of each share partition report it. `-`
    (null) means unknown. In the JSON form, `at_least` means that the counts of records are lower bounds, and `notes`
    repeats the messages of stderr. The command connects to no cluster.

    Example: acktrail record state fraud-scoring --at 2026-08-01T12:00:00Z --tables /data/acktrail
    """
    from acktrail.format.columns.arrow_without_pandas import forgo_pandas

    at_ms = None if at is None else time_ms("--at", at)
    forgo_pandas()
    from acktrail.history.replay_resume import states_of_topic, topic_at_time
    from acktrail.tables.delta.store import Tables

    stored = Tables(TablesConfig.from_environment(tables, tables_options))
    moment = topic_at_time(stored, at_ms)
    rows = states_of_topic(stored, moment, group).to_pylist()
    if group is not None and not rows:
        _refuse_unknown_group(stored, group)
    topics = {row["topic_id"]: row["topic"] for row in stored.read("topics", columns=["topic_id", "topic"]).to_pylist()}
    notes = _notes(moment)
    for note in notes:
        typer.echo(note, err=True)
    found = [{**row, "topic": topics.get(row["topic_id"])} for row in rows]
    found.sort(key=lambda row: (row["group_id"], row["topic"] or "", *(row[name] for name in _PLACE)))
    if as_json:
        for row in found:
            typer.echo(json_line(_state_json(row, notes)))
    else:
        typer.echo(_state_text(found))


def _refuse_unknown_group(tables: Tables, group: str) -> None:
    """Raise UnknownName unless a state record, of any time, names the group."""
    import pyarrow.compute as pc

    snapshot = tables.snapshot("state_records")
    known: set[str] = set()
    for batch in snapshot.batches(columns=["group_id"]) if snapshot is not None else ():
        known.update(pc.drop_null(pc.unique(batch.column(0))).to_pylist())
        if group in known:
            return
    raise UnknownName("share group", group, known=known)


def _notes(moment: TopicAtTime) -> list[str]:
    """What the export lacks for the moment."""
    notes = []
    if moment.began_later:
        numbers = ", ".join(map(str, moment.began_later))
        notes.append(
            f"the export of state partitions {numbers} began after that moment: share partitions that had a state then "
            "may be missing"
        )
    asked = moment.observation.observed_at
    if moment.at_ms is not None and moment.exported_at is not None and asked > moment.exported_at:
        time = utc_text(moment.exported_at)
        notes.append(f"the export last brought records at {time}, before that moment: what came after is not known")
    return notes


def _state_json(row: Mapping[str, Any], notes: Sequence[str]) -> dict[str, Any]:
    batches = [list(batch.values()) for batch in row["batches"] or ()]
    return {
        "group": row["group_id"],
        **{name: row[name] for name in _PLAIN},
        "batches": None if row["batches"] is None else batches,
        "at_least": row["completeness"] != "complete",
        "notes": list(notes),
    }


def _state_text(rows: list[dict[str, Any]]) -> str:
    from acktrail.text_tables import table

    cells = []
    for row in rows:
        name = (row["group_id"], row["topic"] or row["topic_id"], row["partition"])
        cells.append((*name, *(row[column] for column in _SHOWN.values()), row["completeness_reason"] or ""))
    return table(("GROUP", "TOPIC", "PARTITION", *_SHOWN, "NOTE"), cells)
