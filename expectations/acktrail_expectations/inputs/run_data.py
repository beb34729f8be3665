"""Which runs the tables know, and the rows that one validation reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.stored_offsets import StoredOffsets, stored_offsets
from acktrail.errors import ConfigurationError, InputError, UnknownName
from acktrail.tables.cluster_check import reads_as_own
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot, reconciliation_commit
from acktrail.tables.exported.raw_bytes import COMPARED_COLUMNS
from acktrail.tables.exported.record_files import RecordFiles
from acktrail.tables.exported.stored_log import newest_shifts
from acktrail_expectations.inputs.observed_cluster import ObservedCluster, observed_cluster
from acktrail_expectations.inputs.validation_positions import (
    LOOK_BACK,
    ValidationPositions,
    advanced,
    at_or_above,
    offset_slices,
    read_positions,
    record_tables,
)
from acktrail_expectations.results import ValidationSummary
from acktrail_expectations.suites.export_ranges import RANGE_COLUMNS
from acktrail_expectations.suites.reconciliations import RECONCILIATION_COLUMNS
from acktrail_expectations.suites.share_partition_states import STATE_COLUMNS
from acktrail_expectations.suites.state_partitions import OBSERVED_COLUMNS, ExportedSoFar, state_topic_observed
from acktrail_expectations.suites.state_records import RECORD_COLUMNS

_GROUP_COLUMNS: Final = ("cluster_id", "group_id", "configs")
_OFFSET_COLUMNS: Final = ("cluster_id", *OBSERVED_COLUMNS)
_NAMED: Final = ("share_partition_states", "reconciliations", "export_ranges")
_RUN_TIME_COLUMNS: Final = (
    ("reconciliations", "observed_at"),
    ("share_partition_states", "observed_at"),
    ("offset_observations", "observed_at"),
    ("export_ranges", "exported_at"),
)
"""Tables that name runs, each with its column of times; a run may have rows in any of them."""

_COUNTED: Final = (
    "export_ranges", "group_observations", "offset_observations", "share_partition_states", "reconciliations"
)  # fmt: skip
_RULE_ON_EVERY_ROW: Final = "share_partition_once"
"""A rule that compares every row of its table, in two suites."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """One run's rows, and the records and ranges that no run before it validated.

    `observed`: its rows of ``OFFSET_OBSERVATIONS``. `since`: where those begin. `stored`: the offsets of stored
    records, from a little below `since`; `files`: theirs, oldest first. `why_bytes_not_compared`: why the records are
    not compared with their raw bytes; None: they are.
    """

    store: Tables
    run_id: str
    cluster_id: str | None
    cluster: ObservedCluster
    observed: pa.Table
    since: ValidationPositions
    stored: StoredOffsets
    files: tuple[str, ...]
    ranges: pa.Table
    why_bytes_not_compared: str | None

    @classmethod
    def read(cls, store: Tables, run_id: str, *, every_record: bool) -> RunData:
        """What is to be validated for `run_id`; `every_record`: also what was validated before."""
        groups = _own(store, run_id, "group_observations", _GROUP_COLUMNS)
        offsets = _own(store, run_id, "offset_observations", _OFFSET_COLUMNS)
        cluster = observed_cluster(groups, offsets)
        topics = state_topic_observed(offsets)
        positions = read_positions(store.snapshot("quality_results"), _state_partitions(store, cluster), topics)
        since = replace(positions, records={}, ranges={}) if every_record else positions
        # of those not validated yet, also the one that ends just below them on each state partition
        ends_from = {partition: offset - 1 for partition, offset in since.ranges.items()}
        unvalidated = at_or_above(ends_from, "last_offset", "gap_last")
        ranges = store.read("export_ranges", columns=RANGE_COLUMNS, where=_of_run(run_id) | unvalidated)
        begin = _first_offsets_to_read(since.records, ranges)
        snapshot = store.snapshot("state_records")
        files = () if snapshot is None else RecordFiles(store, snapshot).reaching(begin)
        return cls(
            store=store,
            run_id=run_id,
            cluster_id=_cluster_id(store, run_id, groups, offsets),
            cluster=cluster,
            observed=offsets,
            since=since,
            stored=_stored(store, files, begin),
            files=files,
            ranges=ranges,
            why_bytes_not_compared=_why_bytes_not_compared(snapshot, every_record=every_record),
        )

    @property
    def _columns(self) -> list[str]:
        """What is read of the records."""
        return list(dict.fromkeys((*RECORD_COLUMNS, *(() if self.why_bytes_not_compared else COMPARED_COLUMNS))))

    @property
    def gaps(self) -> pa.Table:
        """Offsets that are known to be lost permanently: few rows in a table of any size."""
        columns = ["state_partition", "gap_first", "gap_last"]
        return self.store.read("export_ranges", columns=columns, where=pc.field("gap_first").is_valid())

    @property
    def records(self) -> Iterator[pa.Table]:
        """The records to validate after some before them, in pieces that follow each other; file by file where their
        records are in the order of their offsets."""
        since, columns = self.since.records, self._columns
        if not self.stored.in_order:
            for rows in offset_slices(self.stored, since):
                yield self.store.read("state_records", columns=columns, where=rows)
            return
        with_new = [p for p, runs in self.stored.runs.items() if runs.ends_above(since.get(p, 0))]
        if not with_new:
            return
        begin = {p: since[p] - LOOK_BACK for p in with_new if p in since}
        rows = pc.field("state_partition").isin(with_new) & at_or_above(begin, "offset")
        batches = self.store.file_batches("state_records", self.files, columns=columns, where=rows, sparing=True)
        yield from record_tables(batches)

    @property
    def states(self) -> pa.Table:
        return _own(self.store, self.run_id, "share_partition_states", STATE_COLUMNS)

    @property
    def reconciliations(self) -> pa.Table:
        return _own(self.store, self.run_id, "reconciliations", RECONCILIATION_COLUMNS)

    @property
    def exported(self) -> ExportedSoFar:
        """How far each state partition was exported, by Kafka's offsets, and how many there were at first."""
        shifts = newest_shifts(self.store)
        ends = advanced(_ends(self.ranges), self.since.ranges)
        return ExportedSoFar(
            ends={partition: end - shifts.get(partition, 0) for partition, end in ends.items()},
            partition_counts=self.since.partition_counts,
        )

    @property
    def validated(self) -> ValidationPositions:
        """Where the next run begins."""
        return ValidationPositions(
            records=advanced(self.stored.ends(), self.since.records),
            ranges=advanced(_ends(self.ranges), self.since.ranges),
            sequence=self.since.sequence,
            partition_counts={**state_topic_observed(self.observed), **self.since.partition_counts},
        )


def _of_run(run_id: str) -> pc.Expression:
    return pc.field("run_id") == run_id


def _own(store: Tables, run_id: str, name: str, columns: tuple[str, ...]) -> pa.Table:
    return store.read(name, columns=columns, where=_of_run(run_id))


def _ends(ranges: pa.Table) -> dict[int, int]:
    """One past the last offset that `ranges` cover, by state partition."""
    last = pa.table(
        {"state_partition": ranges["state_partition"], "last": pc.coalesce(ranges["last_offset"], ranges["gap_last"])}
    )
    highest = last.group_by("state_partition").aggregate([("last", "max")]).to_pylist()
    return {row["state_partition"]: row["last_max"] + 1 for row in highest if row["last_max"] is not None}


def _why_bytes_not_compared(snapshot: TableSnapshot | None, *, every_record: bool) -> str | None:
    """Decoding them again costs a quarter of a validation, so that only a validation of every record does it."""
    if snapshot is not None and not reads_as_own(snapshot):
        return "the records are in another dialect: they are not compared with their raw bytes"
    return None if every_record else "records are compared with their raw bytes by acktrail validate --all"


def _stored(store: Tables, files: tuple[str, ...], begin: Mapping[int, int]) -> StoredOffsets:
    columns, rows = ("state_partition", "offset"), at_or_above(begin, "offset")
    return stored_offsets(
        store.file_batches("state_records", files, columns=columns, where=rows, sparing=True) if files else (), begin
    )


def _first_offsets_to_read(since: Mapping[int, int], ranges: pa.Table) -> dict[int, int]:
    """First offset to read by state partition: `LOOK_BACK` below `since`, and the ranges to validate."""
    firsts = ranges.group_by("state_partition").aggregate([("first_offset", "min")]).to_pylist()
    least = {row["state_partition"]: row["first_offset_min"] for row in firsts if row["first_offset_min"] is not None}
    return {p: max(0, min(offset - LOOK_BACK, least.get(p, offset))) for p, offset in since.items()}


def _state_partitions(store: Tables, cluster: ObservedCluster) -> list[int]:
    """The state partitions: as observed, else all that were ever exported."""
    if cluster.state_partition_count is not None:
        return list(range(cluster.state_partition_count))
    exported = store.read("export_ranges", columns=["state_partition"])["state_partition"]
    return list(exported.unique().to_pylist())


def _cluster_id(store: Tables, run_id: str, *observations: pa.Table) -> str | None:
    """The cluster that the run's rows name."""
    named = (_own(store, run_id, name, ("cluster_id",)) for name in _NAMED)
    for rows in (*observations, *named):
        found = pc.unique(rows["cluster_id"]).drop_null().to_pylist()
        if found:
            return str(found[0])
    return None


def choose_run(store: Tables, run_id: str | None) -> str:
    """`run_id` if any table knows it; for None the newest run, a reconciled one before one that only exported.

    Raises:
        UnknownName: no table knows `run_id`.
        ConfigurationError: there is no run.
    """
    if run_id is not None and any(_own(store, run_id, name, ("run_id",)).num_rows for name, _ in _RUN_TIME_COLUMNS):
        return run_id
    known: set[str] = set()
    for name, column in _RUN_TIME_COLUMNS:
        runs = _run_times(store, name, column)
        if runs and run_id is None:
            return max((instant, run) for run, instant in runs.items())[1]
        known |= runs.keys()
    if run_id is not None:
        raise UnknownName("run", run_id, nearest=get_close_matches(run_id, sorted(known), n=3))
    raise ConfigurationError(f"no run in the tables at {store.root}", hint="run `acktrail export` first")


def _run_times(store: Tables, name: str, column: str) -> dict[str, datetime]:
    """Every run with its newest instant, read piece by piece."""
    snapshot = store.snapshot(name)
    newest: dict[str, datetime] = {}
    for batch in () if snapshot is None else snapshot.batches(columns=["run_id", column]):
        rows = pa.Table.from_batches([batch]).group_by("run_id").aggregate([(column, "max")]).to_pylist()
        for row in rows:
            if row["run_id"] is not None and row[f"{column}_max"] is not None:
                newest[row["run_id"]] = max(row[f"{column}_max"], newest.get(row["run_id"], row[f"{column}_max"]))
    return newest


def count_rows(store: Tables, run_id: str) -> dict[str, int]:
    """The number of rows that each table has of a run."""
    return {name: _own(store, run_id, name, ("run_id",)).num_rows for name in _COUNTED}


def is_current(summary: ValidationSummary, rows: Mapping[str, int]) -> bool:
    """Whether a recorded validation covers all present rows of its run.

    Where the validation did not record the number of rows, its results on states and reconciliations show it.
    """
    if summary.run_rows is not None:
        known: object = json.loads(summary.run_rows)
        return known == dict(rows)
    counted = {r.suite: r.element_count for r in summary.results if r.expectation == _RULE_ON_EVERY_ROW}
    return all(count == rows.get(suite) for suite, count in counted.items())


def require_reconciled(store: Tables, run_id: str, rows: Mapping[str, int]) -> None:
    """See that a run was reconciled, to its end.

    Raises:
        InputError: it was not, or only in part.
    """
    states, verdicts = rows["share_partition_states"], rows["reconciliations"]
    hint = f"run `acktrail reconcile --run-id {run_id}` first"
    if verdicts < states:
        raise InputError(f"run {run_id!r}: {verdicts} of {states} share partitions are reconciled", hint=hint)
    if verdicts:
        return
    named = _own(store, run_id, "offset_observations", ("cluster_id",))["cluster_id"]
    found_nothing = reconciliation_commit(next(iter(named.drop_null().to_pylist()), None), run_id)
    if store.transaction_version("reconciliations", found_nothing) is not None:
        return
    if not rows["group_observations"] and not rows["offset_observations"]:
        hint = "it observed nothing: run `acktrail export --observe`, then `acktrail reconcile`"
    raise InputError(f"run {run_id!r} was not reconciled: there is no verdict to validate", hint=hint)
