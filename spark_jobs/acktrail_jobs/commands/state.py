"""``acktrail record state``: the state of share partitions as of any moment, out of the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from acktrail.cli.common_options import TIME, AsJson, TablesOptions, TablesRoot
from acktrail.config import TablesConfig
from acktrail.errors import UnknownName
from acktrail.times import utc_text

if TYPE_CHECKING:
    from acktrail.reconcile.replay_resume import TopicAtTime
    from acktrail.tables.delta.store import Tables


app = typer.Typer(rich_markup_mode=None, add_completion=False)
_PLAIN: Final = (
    *("state_partition", "state_epoch", "snapshot_epoch", "leader_epoch", "start_offset", "first_unfinished_offset"),
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


@app.command("state")
def _command(
    group: Annotated[str | None, typer.Argument(help="Share group. Default: all.")] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", help=f"The moment, inclusive: {TIME}. Default: all exported."),
    ] = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of every share partition as a broker held it at any past moment.

    Replays the exported records up to the moment: each state partition up to its first record with a later time. What
    the export lacks is reported on stderr, and by `completeness` of each share partition. `-` (null) is not known.
    In the JSON form `at_least` means that its counts of records are least ones, and `notes` repeats what stderr says.
    Reads no cluster.

    Example: acktrail record state fraud-scoring --at 2026-08-01T12:00:00Z --tables /data/acktrail
    """
    from acktrail.cli.arrow_without_pandas import forgo_pandas
    from acktrail.times import time_ms

    at_ms = None if at is None else time_ms("--at", at)
    forgo_pandas()
    from acktrail.reconcile.replay_resume import states_of_topic, topic_at_time
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
    place = itemgetter("group_id", "topic", "topic_id", "partition", "state_partition")
    found = [{**row, "topic": topics.get(row["topic_id"])} for row in rows]
    found.sort(key=lambda row: place({**row, "topic": row["topic"] or ""}))
    if as_json:
        from acktrail.cli.common_options import json_line

        for row in found:
            typer.echo(json_line(_json(row, notes)))
    else:
        typer.echo(_text(found))


def _refuse_unknown_group(tables: Tables, group: str) -> None:
    """Raise UnknownName unless a state record, of any time, names the group."""
    import pyarrow.compute as pc

    snapshot = tables.snapshot("state_records")
    known: set[str] = set()
    for batch in snapshot.batches(columns=["group_id"]) if snapshot is not None else ():
        known.update(pc.drop_null(pc.unique(batch.column(0))).to_pylist())
        if group in known:
            return
    raise UnknownName("share group", group, nearest=get_close_matches(group, known, n=3))


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


def _json(row: Mapping[str, Any], notes: Sequence[str]) -> dict[str, Any]:
    batches = [list(batch.values()) for batch in row["batches"] or ()]
    return {
        "group": row["group_id"],
        "topic": row["topic"],
        "topic_id": row["topic_id"],
        "partition": row["partition"],
        **{name: row[name] for name in _PLAIN},
        "batches": None if row["batches"] is None else batches,
        "at_least": row["completeness"] != "complete",
        "notes": list(notes),
    }


def _text(rows: list[dict[str, Any]]) -> str:
    from acktrail.plain_tables import table

    cells = []
    for row in rows:
        name = (row["group_id"], row["topic"] or row["topic_id"], row["partition"])
        cells.append((*name, *(row[column] for column in _SHOWN.values()), row["completeness_reason"] or ""))
    return table(("GROUP", "TOPIC", "PARTITION", *_SHOWN, "NOTE"), cells)
