"""The Delta sink: rows and positions of all source partitions in one commit. Data files of state records that others
wrote (``put_files``) are committed as rows are."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import ForeignCluster
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.log_positions import LogSpan, SourcePartition
from acktrail.tables.cluster_check import OWN_DIALECT, create_for, create_records_for, ensure_root, ensure_same_cluster
from acktrail.tables.commit_order import NUMBERS, next_number
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_layout import cast_to_schema
from acktrail.tables.records import export_ranges
from acktrail.tables.records.continuity import ensure_whole
from acktrail_connect.contract import SinkTask
from acktrail_connect.source_batches import Commit, SourceBatch

_LASTING: Final = ("topic", "partition_count", "is_internal")
"""What is kept of a topic that may not be described any more."""
_Topic = Mapping[str, Any]
_FEW_ROWS: Final = 1_000
"""A piece costs as much to write as about this number of rows: smaller ones are put together first."""


@dataclass(slots=True, kw_only=True)
class _Pending:
    """What was put since the last flush; `rows` is how many."""

    rows: int = 0
    records: list[pa.Table] = field(default_factory=list)
    files: list[pa.Table] = field(default_factory=list)
    """Data files that have the rows of all spans already."""
    positions: dict[SourcePartition, int] = field(default_factory=dict)
    spans: dict[SourcePartition, tuple[LogSpan, ...]] = field(default_factory=dict)
    observations: dict[str, dict[str, list[pa.Table]]] = field(default_factory=dict)
    """By table and app id: one app id is one source partition's one phase of one run."""
    listings: list[pa.Table] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    """Numbers about the logs (``log_marks``), by app id."""


class DeltaSink(SinkTask):
    """Writes one cluster's batches into `tables` (``connect.contract.SinkTask``). Not thread-safe.

    A batch with a position brings ``state_records`` and a span. Rows and the positions of all source partitions are one
    commit of ``state_records``; ``export_ranges`` follows it and is repaired at the next start if a crash came between.
    A batch without a position brings observations, one batch for each run, or each phase of a run where the table has
    phases: one that this sink flushed is a ValueError, one that the tables have from another sink is dropped. Its
    ``topics`` are a complete listing.

    Columns `cluster_id` and `run_id` are filled in where a batch leaves them out. `dialect` is that of the records'
    raw bytes. `clock` gives UTC instants.

    Raises (all methods):
        ForeignCluster: the tables are another cluster's, or another incarnation's of the state topic.
        DamagedTables: the tables lost commits or files that they had.
        ConcurrentCommit, OutcomeUnknown, ConfigurationError, RetryableError: as ``Tables.append``.
    """

    def __init__(
        self,
        tables: Tables,
        *,
        cluster_id: str,
        run_id: str,
        dialect: str = OWN_DIALECT,
        clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        self._tables, self._dialect, self._clock = tables, dialect, clock
        self._cluster_id, self._run_id = cluster_id, run_id
        self._pending = _Pending()
        self._committed: dict[SourcePartition, int | None] = {}
        self._marks: dict[str, int | None] = {}
        self._own_topics: set[str | None] = set()
        self._observed: set[tuple[str, str]] = set()
        self._stored: export_ranges.TableLogs | None = None
        self._has_ranges = False
        self._started = False

    def start(self) -> None:
        """Check that the tables belong to this cluster or can be created, and complete what a crash interrupted. Every
        other method does it first."""
        if not self._started:
            ensure_root(self._tables, self._cluster_id)
            ensure_same_cluster(self._tables, self._cluster_id)
            ensure_whole(self._tables)
            export_ranges.copy_ranges(self._tables)
            if not self._tables.exists("state_records"):
                self._tables.prepare()
            self._started = True

    def position(self, source_partition: SourcePartition) -> int | None:
        """The next offset `source_partition` is to read; None when it never committed."""
        self.start()
        if source_partition not in self._committed:
            self._committed[source_partition] = self.stored.position(source_partition)
        return self._committed[source_partition]

    @property
    def stored(self) -> export_ranges.TableLogs:
        """As of the newest commit: its own flushes are in it."""
        self.start()
        if self._stored is None:
            self._stored = export_ranges.TableLogs(self._tables, self._tables.followed("state_records"))
        return self._stored

    @property
    def pending_rows(self) -> int:
        """Rows put since the last flush."""
        return self._pending.rows

    def put(self, batch: SourceBatch) -> None:
        """Take a batch; an idle one (nothing read, no gap, position unmoved) leaves no trace. Raises ValueError (when
        the batch contradicts itself or what was put before)."""
        self.start()
        self._check_cluster(batch.rows.values())
        if batch.position is None:
            self._put_observation(batch)
        elif isinstance(batch.position, int):
            self._put_records(batch, batch.position)
        else:
            raise ValueError(f"{batch.source_partition}: the position of state records is a number")

    def put_files(self, batches: Iterable[SourceBatch], files: pa.Table, numbers: Mapping[str, int]) -> None:
        """Take state records that lie in data files already (``WRITTEN_FILES``), and no others in the same commit:
        `batches` without rows have their spans. `numbers`: app transactions of the commit, where there is one. Raises
        ValueError as ``put``."""
        self.start()
        pending = self._pending
        for batch in batches:
            assert isinstance(batch.position, int)
            self._put_records(batch, batch.position, is_written=True)
        lie, taken = pc.sum(files["rows"]).as_py() or 0, sum(_count(spans) for spans in pending.spans.values())
        if lie != taken or any(rows.num_rows for rows in pending.records):
            raise ValueError(f"data files have {lie} rows, but their spans have {taken}")
        pending.files.append(files)
        pending.marks |= numbers if pending.positions else {}

    def flush(self) -> Commit:
        """Commit everything put so far. After an error nothing is pending: start the source at its positions again."""
        self.start()
        pending, self._pending, self._stored = self._pending, _Pending(), None
        rows: dict[str, int] = {}
        try:
            if pending.positions or pending.marks:
                rows |= self._commit_records(pending)
            rows |= self._commit_observations(pending)
        except BaseException:  # only the tables know what landed
            for known in (self._committed, self._marks, self._observed):
                known.clear()
            self._has_ranges = self._started = False
            raise
        self._committed |= pending.positions
        return Commit(rows=rows, positions=dict(pending.positions))

    def _put_records(self, batch: SourceBatch, position: int, *, is_written: bool = False) -> None:
        pending, span = self._pending, batch.span
        before = (
            pending.positions[batch.source_partition]
            if batch.source_partition in pending.positions
            else self.position(batch.source_partition)
        )
        if span is None:
            raise ValueError(f"{batch.source_partition}: a batch with a position needs a span")
        self._note(export_ranges.log_marks(batch.source_partition, span))
        if not span.records and span.gap_first is None and before in (None, position):
            return
        rows = batch.rows.get("state_records")
        if rows is None:
            rows = TABLES["state_records"].empty_table()
        count = span.records if is_written else rows.num_rows
        _check_span(batch.source_partition, span, count, before, position)
        if span.topic_id not in self._own_topics:
            create_records_for(self._tables, self._cluster_id, span.topic_id, self._dialect)
            self._own_topics.add(span.topic_id)
        pending.records.append(rows)
        pending.rows += count
        pending.positions[batch.source_partition] = position
        pending.spans[batch.source_partition] = export_ranges.merge_spans(
            pending.spans.get(batch.source_partition, ()), span
        )

    def _note(self, marks: Mapping[str, int]) -> None:
        """Keep the numbers about the logs that the tables do not have yet."""
        for app_id, number in marks.items():
            if app_id not in self._marks:
                self._marks[app_id] = self.stored.position(SourcePartition(app_id))
            if self._marks.get(app_id) != number:
                self._pending.marks[app_id] = number

    def _put_observation(self, batch: SourceBatch) -> None:
        for name, rows in batch.rows.items():
            stamped = self._stamped(name, rows)
            self._pending.rows += stamped.num_rows
            if name == "topics":
                self._pending.listings.append(stamped)
            elif stamped.num_rows:
                own, app_id = self._pending.observations.setdefault(name, {}), _phase(batch.source_partition, stamped)
                if (name, app_id) in self._observed:
                    raise ValueError(f"{app_id}: an observation must be one batch, and this one was committed already")
                own.setdefault(app_id, []).append(stamped)

    def _commit_records(self, pending: _Pending) -> dict[str, int]:
        records = self._stamped("state_records", placed(pending.records))
        spans = [span for own in pending.spans.values() for span in own]
        ranges = export_ranges.range_rows(
            spans, cluster_id=self._cluster_id, run_id=self._run_id, exported_at=self._clock()
        )
        rows, write = (
            (pa.concat_tables(pending.files), self._tables.commit_files)
            if pending.files
            else (records, self._tables.append)
        )
        write(
            "state_records",
            rows,
            transactions={
                **{str(source_partition): position for source_partition, position in pending.positions.items()},
                **pending.marks,
            },
            expected={source_partition: self._committed[source_partition] for source_partition in pending.positions},
            metadata={export_ranges.RANGES: export_ranges.ranges_text(ranges)},
            at=self._tables.followed("state_records"),
        )
        self._marks |= pending.marks
        if not self._has_ranges:
            create_for(self._tables, "export_ranges", self._cluster_id)
            self._has_ranges = True
        copied = export_ranges.copy_ranges(self._tables)
        return {"state_records": _count(spans), "export_ranges": copied} if pending.positions else {}

    def _commit_observations(self, pending: _Pending) -> dict[str, int]:
        number, records = next_number(self._tables, self._clock()), self._tables.followed("state_records")
        apps = dict.fromkeys(app_id for by_app in pending.observations.values() for app_id in by_app)
        order = {
            app_id: {"run_number": number + place, "records_version": None if records is None else records.version}
            for place, app_id in enumerate(apps)
        }
        rows = {name: self._append_new(name, by_app, order) for name, by_app in pending.observations.items()}
        for listing in pending.listings:
            create_for(self._tables, "topics", self._cluster_id)
            rows["topics"] = rows.get("topics", 0) + renew_topics(self._tables, listing, self._cluster_id)
        return rows

    def _append_new(
        self, name: str, by_app: Mapping[str, list[pa.Table]], order: Mapping[str, Mapping[str, int | None]]
    ) -> int:
        """Append the phases that the table does not have yet, in one commit, with their `order` by app id."""
        snapshot = create_for(self._tables, name, self._cluster_id)
        new = [app_id for app_id in by_app if snapshot.transaction_version(app_id) is None]
        parts = [_filled(part, order[app_id]) for app_id in new for part in by_app[app_id]]
        rows, marks = pa.concat_tables([TABLES[name].empty_table(), *parts]), dict.fromkeys(new, 1)
        if new:
            if name == NUMBERS:
                marks[NUMBERS] = max(order[app_id]["run_number"] or 0 for app_id in new)
            self._tables.append(name, rows, transactions=marks, expected=dict.fromkeys(new))
        self._observed |= {(name, app_id) for app_id in by_app}
        return rows.num_rows

    def _stamped(self, name: str, rows: pa.Table) -> pa.Table:
        for column, text in (("cluster_id", self._cluster_id), ("run_id", self._run_id)):
            if column not in rows.column_names:
                rows = rows.append_column(column, pa.repeat(text, rows.num_rows))
            elif rows[column].null_count:
                index = rows.column_names.index(column)
                rows = rows.set_column(index, column, pc.fill_null(rows[column], text))
        return cast_to_schema(rows, TABLES[name])

    def _check_cluster(self, tables: Iterable[pa.Table]) -> None:
        for rows in tables:
            found = pc.unique(rows["cluster_id"]).to_pylist() if "cluster_id" in rows.column_names else []
            foreign = [cluster_id for cluster_id in found if cluster_id not in (None, self._cluster_id)]
            if foreign:
                raise ForeignCluster(
                    f"rows of cluster {foreign[0]} cannot be written into tables of cluster {self._cluster_id}",
                    hint="use another root for the tables of that cluster",
                    data={"kept": self._cluster_id, "found": foreign[0]},
                )


def _filled(rows: pa.Table, values: Mapping[str, int | None]) -> pa.Table:
    """`rows` with one of `values` in all of a column, where they have that column."""
    for index, name in enumerate(rows.column_names):
        if name in values:
            rows = rows.set_column(index, name, pa.repeat(pa.scalar(values[name], pa.int64()), rows.num_rows))
    return rows


def renew_topics(tables: Tables, listing: pa.Table, cluster_id: str) -> int:
    """Take a complete listing (columns of ``TOPICS``) in one commit; gives the number of rows written.

    A topic id keeps `first_seen_at`. One that the listing lacks is ``deleted``, or ``recreated`` when the
    listing has its name under another id; one that may not be described (``not_authorized``) keeps the name and size
    that were seen before. An empty listing is ignored: every cluster has topics.
    """
    if not listing.num_rows:
        return 0
    known = tables.read("topics", where=pc.field("cluster_id") == cluster_id).to_pylist()
    present = named(known, listing.to_pylist())
    changed = departed(known, present)
    tables.upsert("topics", pa.Table.from_pylist([*present, *changed], schema=TABLES["topics"]))
    return len(present) + len(changed)


def named(known: Iterable[_Topic], listing: Iterable[_Topic]) -> list[dict[str, Any]]:
    """`listing`, where topics that may not be described have what is `known` of them."""
    before = {row["topic_id"]: {name: row[name] for name in _LASTING} for row in known}
    return [
        {**row, **before.get(row["topic_id"], {})} if row["status"] == "not_authorized" else dict(row)
        for row in listing
    ]


def departed(known: Iterable[_Topic], listing: Iterable[_Topic]) -> list[dict[str, Any]]:
    """The rows of `known` that `listing` changes: topic ids that are no longer there."""
    present = {row["topic_id"]: row for row in listing}
    run_id = next((row["run_id"] for row in present.values()), None)
    successors = {row["topic"]: topic_id for topic_id, row in present.items()}
    changed = []
    for row in known:
        successor = successors.get(row["topic"])
        status = "deleted" if successor is None else "recreated"
        if row["topic_id"] in present or (row["status"], row["successor_topic_id"]) == (status, successor):
            continue
        changed.append({**row, "status": status, "successor_topic_id": successor, "run_id": run_id})
    return changed


def placed(records: Iterable[pa.Table]) -> pa.Table:
    """State records by state partition: a reader of some of them skips the row groups of others."""
    ordered = sorted(records, key=lambda rows: rows["state_partition"][0].as_py() if rows.num_rows else -1)
    parts = pa.concat_tables([TABLES["state_records"].empty_table(), *ordered], promote_options="default")
    return parts.combine_chunks() if parts.num_rows < len(ordered) * _FEW_ROWS else parts


def _count(spans: Iterable[LogSpan]) -> int:
    return sum(span.records for span in spans)


def _check_span(
    source_partition: SourcePartition, span: LogSpan, count: int, before: int | None, position: int
) -> None:
    """A batch's span must agree with the number of its rows, and begin at the position before it."""
    if count != span.records:
        raise ValueError(f"{source_partition}: {count} rows, but the span has {span.records}")
    if before is not None and position <= before:
        raise ValueError(f"{source_partition}: position {position} is not after {before}")
    first = span.first_offset if span.first_offset is not None else position
    last = span.last_offset if span.last_offset is not None else position - 1
    if (before is not None and first < before) or last >= position:
        raise ValueError(
            f"{source_partition}: offsets {first} to {last} are not between positions {before} and {position}"
        )


def _phase(source_partition: SourcePartition, rows: pa.Table) -> str:
    """The app id of an observation: its source partition, its run and, where the table has one, its phase."""
    names = [name for name in ("run_id", "phase") if name in rows.column_names]
    found = rows.select(names).group_by(names).aggregate([]).to_pylist()
    if len(found) != 1 or None in found[0].values():
        raise ValueError(f"{source_partition}: an observation is of one run, and of one phase of it")
    return "/".join((source_partition, *(found[0][name] for name in names)))
