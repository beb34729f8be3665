"""Everything that runs save for the next one, computed again from all records and compared.

For example::

    ``replay_memory`` has start offset 7         records 3:0 to 3:41 give 6: a difference, with the share partition
    ``delivery_history`` lacks a change          its state record is named: the first one of each state partition
    bytes of 3:41 say 7, its columns 8           that record is named

The history is built 200,000 records at a time: the changes that 3:0 to 3:199999 make are those in ``delivery_history``;
so are those of the next range, and so on; the states after the last one are those in ``held_states``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.activity import doing
from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, DamagedTables
from acktrail.format.columns.record_columns import CHANGE_COLUMNS, HELD_COLUMNS, share_partition_of
from acktrail.format.columns.schemas.table_schemas import INT32, INT64, STRING, schema
from acktrail.history.history_tables import CHANGES, HELD, change_positions, saved_positions, saved_rows
from acktrail.history.observed_run import read_coverage, read_observation
from acktrail.history.partition_replay import SAVED_COLUMNS
from acktrail.history.replay_resume import TopicAtTime, topic_at_time
from acktrail.history.saved_states import REPLAY, SavedStates, read_saved
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.tables.cluster_check import reads_as_own
from acktrail.tables.delta.store import Tables
from acktrail.tables.records.continuity import ensure_whole
from acktrail.tables.records.damage_report import CONTRADICTIONS, contradictions
from acktrail.tables.records.export_ranges import RANGES_TABLE
from acktrail.tables.records.record_files import RECORDS, records_between
from acktrail.tables.upkeep.retention import recorded_ends
from acktrail_jobs.frames import JobSession, collected, collected_pieces
from acktrail_jobs.history.history_run import HISTORY_INPUTS, apply_records, commit_spans
from acktrail_jobs.pieces import pieces_of
from acktrail_jobs.reconcile.frames_of_run import STATES, ReplayedRun, replayed_states

_REBUILT: Final = schema(
    (INT32, "state_partition"), (INT64, "records", "changes"), (STRING, "table", "subject", "detail")
)
"""A row counts what was compared, or is the first difference of a state partition."""
_RECORDS_AT_ONCE: Final = 200_000
_IN_LOG: Final = ("record_offset", *KEY_COLUMNS, "first_offset")
_Row = dict[str, Any]
_ADDRESS: Final = ("state_partition", "group_id", "topic_id", "partition")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something that is stored and is not what the records say. `subject`: a coordinator key, or a state partition."""

    table: str
    state_partition: int
    subject: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySummary:
    """What was compared: share partitions of the saved replay, changes of the history and the records that made them.
    `differences` has the first one of each state partition in each table. `not_compared`: state partitions whose first
    records the retention dropped, so that what they made cannot be made again; their raw bytes were compared."""

    share_partitions: int
    records: int
    changes: int
    differences: tuple[Difference, ...] = ()
    not_compared: tuple[int, ...] = ()


def verify(tables: TablesConfig, spark: JobSession) -> VerifySummary:
    """Replay all records of ``replay_memory`` again, build ``delivery_history`` again, decode every raw key and value
    again, and compare. Writes nothing. Raises DamagedTables (a table cannot be read, or lost something),
    ConfigurationError (no run saved anything yet)."""
    stored = Tables(tables)
    ensure_whole(stored)
    saved, has_history = read_saved(stored, REPLAY), stored.exists(CHANGES)
    if not saved.positions and not has_history:
        raise ConfigurationError(
            f"nothing to verify in the tables at {stored.root}", hint="run `acktrail run reconcile` first"
        )
    if saved.unusable is not None and stored.exists(REPLAY.name):
        raise DamagedTables(
            f"tables at {stored.root}: {saved.unusable}",
            hint="the next `acktrail run reconcile` writes it again",
            table=REPLAY.name,
        )
    moment = topic_at_time(stored)
    ranges = stored.snapshot(RANGES_TABLE)
    dropped = frozenset(() if ranges is None else recorded_ends(stored, ranges))
    records = sum(coverage.records_from(0) for coverage in moment.coverages.values())
    doing(f"decoding about {records:,} records again")
    contradicting = _contradicting(spark, stored)
    doing(f"replaying about {records:,} records again")
    again = _replayed_again(spark, stored, saved, moment)
    doing(f"building the history of about {records:,} records again")
    rebuilt = _rebuilt_history(spark, stored, moment, dropped) if has_history else _REBUILT.empty_table()
    own = saved.rows(stored)
    different = rebuilt.filter(pc.field("table").is_valid()).select(Difference.__slots__)
    return VerifySummary(
        share_partitions=own.num_rows,
        records=pc.sum(rebuilt["records"]).as_py() or 0,
        changes=pc.sum(rebuilt["changes"]).as_py() or 0,
        differences=(
            *_of_records(contradicting),
            *(each for each in export_differences(stored, saved) if each.state_partition not in dropped),
            *(each for each in _of_memory(own, again) if each.state_partition not in dropped),
            *(Difference(**row) for row in different.sort_by("state_partition").to_pylist()),
        ),
        not_compared=tuple(sorted(dropped)),
    )


def export_differences(stored: Tables, saved: SavedStates) -> Iterator[Difference]:
    """State partitions where the saved facts about the export differ from what the records say."""
    if not saved.positions:
        return
    for number, coverage in read_coverage(stored, read_observation(stored, saved.run_id)).items():
        if replace(coverage, **(saved.exported.get(number) or {})) != coverage:
            yield Difference(
                table=REPLAY.name,
                state_partition=number,
                subject=f"state partition {number}",
                detail="the saved facts about its export differ",
            )


def _replayed_again(spark: JobSession, stored: Tables, saved: SavedStates, moment: TopicAtTime) -> pa.Table:
    """Replay from the first record up to where the saved states end, and return the states there."""
    coverages = {
        number: replace(moment.coverages[number], end_offset=end)
        for number, end in saved.positions.items()
        if number in moment.coverages
    }
    run = ReplayedRun(config=stored.config, observation=moment.observation, coverages=coverages)
    return collected(spark, "replay all state records", replayed_states(spark, run), STATES).select(SAVED_COLUMNS.names)


def _rebuilt_history(spark: JobSession, stored: Tables, moment: TopicAtTime, without: frozenset[int]) -> pa.Table:
    """Rows of ``_REBUILT``, `without` some state partitions."""
    saved, built = saved_positions(stored), change_positions(stored, moment.coverages)
    wanted = [(n, end, saved.get(n, 0)) for n, end in built.items() if end and n not in without]
    pieces = pieces_of(wanted, lambda each: each[1])
    return collected_pieces(spark, "build the history again", pieces, partial(recheck_history, stored.config), _REBUILT)


def _contradicting(spark: JobSession, stored: Tables) -> pa.Table:
    """Rows of ``CONTRADICTIONS``: records whose decoded columns are not what their bytes say."""
    records = stored.snapshot(RECORDS)
    if records is None or not reads_as_own(records):
        return CONTRADICTIONS.empty_table()
    pieces = pieces_of(records.files(), lambda file: file.rows or 0)
    paths = [[file.path for file in piece] for piece in pieces]
    return collected_pieces(
        spark, "decode raw bytes again", paths, partial(_contradictions, stored.config), CONTRADICTIONS
    )


def _contradictions(config: TablesConfig, paths: Sequence[str]) -> Iterator[pa.Table]:
    return contradictions(Tables(config), paths)


def _of_records(rows: pa.Table) -> Iterator[Difference]:
    """The first record of each state partition whose bytes and columns differ."""
    last_first = rows.sort_by([("offset", "descending")]).to_pylist()
    for number, row in sorted({row["state_partition"]: row for row in last_first}.items()):
        yield Difference(
            table=RECORDS,
            state_partition=number,
            subject=f"offset {row['offset']}",
            detail=f"raw bytes and decoded columns differ: {row['columns']}",
        )


def _of_memory(own: pa.Table, again: pa.Table) -> Iterator[Difference]:
    for number in sorted({*own["state_partition"].to_pylist(), *again["state_partition"].to_pylist()}):
        kept, found = (rows.filter(pc.field("state_partition") == number) for rows in (own, again))
        different = first_difference(kept, found, order=_ADDRESS)
        if different is not None:
            yield Difference(
                table=REPLAY.name,
                state_partition=number,
                subject=share_partition_of(different).coordinator_key,
                detail="its state differs",
            )


def recheck_history(config: TablesConfig, built: Sequence[tuple[int, int, int]]) -> Iterator[pa.Table]:
    """Rows of ``_REBUILT`` of some state partitions, each with the offset up to which its history is built, and
    that up to which its states are saved."""
    tables = Tables(config)
    for number, end, saved in built:
        rows = _compared(tables, number, end, has_saved=saved == end)
        yield pa.Table.from_pylist(list(rows), schema=_REBUILT)


def first_difference(found: pa.Table, expected: pa.Table, order: Sequence[str]) -> dict[str, Any] | None:
    """The first row, by `order`, that only one of two tables has; None where they are equal."""
    names = [(name, "ascending") for name in order]
    ours, theirs = (rows.sort_by(names).combine_chunks() for rows in (found, expected))
    if ours.equals(theirs):
        return None
    pairs = zip(ours.to_pylist(), theirs.to_pylist(), strict=False)
    longer = (ours if ours.num_rows > theirs.num_rows else theirs).slice(min(ours.num_rows, theirs.num_rows), 1)
    rows: list[_Row] = [*(mine for mine, other in pairs if mine != other), *longer.to_pylist()]
    return rows[0]


def _compared(tables: Tables, number: int, end: int, *, has_saved: bool) -> Iterator[_Row]:
    """Rows of ``_REBUILT`` for one state partition, range by range up to the first difference."""
    held, begin, bound = HELD_COLUMNS.empty_table(), 0, 0
    while bound < end:
        bound = min(end, bound + _RECORDS_AT_ONCE)
        where = records_between({number: begin}, {number: bound})
        records = tables.read(RECORDS, columns=HISTORY_INPUTS, where=where).sort_by("offset")
        made, held, ends = apply_records(records, held, {number: begin}, {}, partial(commit_spans, tables))
        reached = ends.get(number, begin)
        yield {"records": records.num_rows, "changes": made.num_rows}
        where = records_between({number: begin}, {number: reached}, "record_offset")
        stored = tables.read(CHANGES, columns=CHANGE_COLUMNS.names, where=where)
        different = first_difference(stored, made.cast(CHANGE_COLUMNS), _IN_LOG)
        if different is not None:
            yield _difference(CHANGES, number, different, f"at state record {number}:{different['record_offset']}")
            return
        begin = reached
    saved = saved_rows(tables, pc.field("state_partition") == number) if has_saved else held
    different = first_difference(saved, held, KEY_COLUMNS)
    if different is not None:
        yield _difference(HELD, number, different, "its state")


def _difference(table: str, number: int, row: _Row, detail: str) -> _Row:
    key = share_partition_of(row).coordinator_key
    return {"table": table, "state_partition": number, "subject": key, "detail": f"{detail} differs"}
