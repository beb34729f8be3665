"""Which observation a job works on, and what the cluster answered in it, as columns beside share partitions.

Here, too: how far each state partition was exported when it ended, with gaps and records in doubt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import ConfigurationError, InputError, UnknownName
from acktrail.format.columns.schemas.table_schemas import INSTANT, INT64, STRING
from acktrail.format.columns.share_partition_keys import first_matches, key_codes
from acktrail.model.log_positions import DROPPED_BY_RETENTION, PRUNED_BEFORE_FIRST_EXPORT
from acktrail.model.share_partition import KEY_COLUMNS, STATE_TOPIC
from acktrail.replay.stored_offsets import OffsetRuns
from acktrail.tables.commit_order import exported_before
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import one_of
from acktrail.tables.open_findings import SAMPLED
from acktrail.tables.records.export_ranges import newest_shifts, read_ranges

PHASES: Final = ("before", "after")
_SHARE_GROUP: Final = "share"
OFFSET_COLUMNS: Final = (
    *("phase", *KEY_COLUMNS, "topic", "log_start_offset", "log_end_offset"),
    *("start_offset", "lag", "error_code", "error"),
)
_GROUPS: Final = ("phase", "group_id", "group_type", "group_state", "error_code", "error")
_TOPICS: Final = ("topic_id", "topic", "status", "last_seen_at")
_GROUP_NOT_FOUND: Final = 69
_NOT_AUTHORIZED: Final = {
    29: "TOPIC_AUTHORIZATION_FAILED",
    30: "GROUP_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
}
_REFUSED_CODES: Final = pa.array([*_NOT_AUTHORIZED], pa.int16())
_REFUSED_TEXTS: Final = f"^({'|'.join(_NOT_AUTHORIZED.values())})"
_BEFORE_THE_FIRST: Final = pa.array([PRUNED_BEFORE_FIRST_EXPORT, DROPPED_BY_RETENTION])
"""Gaps before the first offset, where nothing is known anyway."""
_OF_EVERY_ROW: Final = {"cluster_id": STRING, "run_id": STRING, "observed_at": INSTANT, "run_number": INT64}
QUARANTINE_COLUMNS: Final = ("state_partition", "offset", "group_id", "decode_status")
_FROM_THE_START: Final[Mapping[int, int]] = MappingProxyType({})
QUARANTINED: Final = pc.field("decode_status") != "decoded"
"""Records that could not be decoded. Files without any are skipped by their statistics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLog:
    """One state partition's log: where it began and ended before the export, and where it ended after it; in offsets of
    the tables, which differ from Kafka's once the log was replaced."""

    log_start_before: int | None = None
    log_end_before: int | None = None
    log_end_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A complete observation. `after_began_at` and `observed_at`: when the first and the last answer of the `after`
    sample came in. `run_number`, `records_version`: as in ``offset_observations``. `state_logs` by state partition;
    empty: there was no state topic, or it could not be described. `is_counted`: whether these are all state partitions;
    after an import of files this is not known."""

    cluster_id: str | None
    run_id: str
    after_began_at: datetime
    observed_at: datetime
    run_number: int = 0
    records_version: int | None = None
    state_logs: Mapping[int, StateLog] = field(default_factory=dict)
    is_counted: bool = True

    @property
    def state_partition_count(self) -> int | None:
        """Partitions of the state topic; None: not known."""
        return len(self.state_logs) or None if self.is_counted else None

    def columns(self, count: int) -> dict[str, pa.Array]:
        """`cluster_id`, `run_id`, `observed_at` and `run_number` of `count` rows."""
        return {name: pa.repeat(pa.scalar(getattr(self, name), kind), count) for name, kind in _OF_EVERY_ROW.items()}

    @property
    def exported_before(self) -> pc.Expression:
        """The rows of ``export_ranges`` of the observation's own export, and those committed before it ended."""
        return exported_before(self.run_id, self.records_version, self.after_began_at)


def newest_run(tables: Tables) -> str:
    """The run id of the newest observation with both samples. Raises ConfigurationError (there is none)."""
    runs = _sampled_runs(tables)
    complete = [run for run, phases in runs.items() if set(PHASES) <= phases.keys()]
    if not complete:
        hint = "`acktrail run export` makes one"
        raise ConfigurationError(f"no complete observation in the tables at {tables.root}", hint=hint)
    return max(complete, key=lambda run: (runs[run]["after"], run))


def read_observation(tables: Tables, run_id: str) -> Observation:
    """The observation `run_id`. Raises UnknownName (it observed nothing), InputError (it has no answers of the brokers
    from after the export)."""
    columns, own = ["cluster_id", "phase", "observed_at", "run_number", "records_version"], pc.field("run_id") == run_id
    sampled = pa.concat_tables(tables.read(name, columns=columns, where=own) for name in SAMPLED)
    if not sampled.num_rows:
        raise UnknownName("observation", run_id, known=sorted(_sampled_runs(tables)))
    after = sampled.filter(pc.equal(sampled["phase"], "after"))
    if not after.num_rows:
        hint = "wait until the export has finished, or name another observation"
        raise InputError(f"observation {run_id!r} has no answers of the brokers from after the export", hint=hint)
    times = pc.min_max(after["observed_at"]).as_py()
    number, version = (pc.max(after[name]).as_py() for name in columns[-2:])
    observation = Observation(
        cluster_id=after["cluster_id"][0].as_py(),
        run_id=run_id,
        after_began_at=times["min"],
        observed_at=times["max"],
        run_number=number,
        records_version=version,
    )
    state_logs, is_counted = _state_logs(tables, run_id, observation.exported_before)
    return replace(observation, state_logs=state_logs, is_counted=is_counted)


def _sampled_runs(tables: Tables) -> dict[str, dict[str, int]]:
    """The number by run and phase, read piece by piece: a table holds every observation ever made."""
    runs: dict[str, dict[str, int]] = {}
    for snapshot in filter(None, map(tables.snapshot, SAMPLED)):
        for batch in snapshot.batches(columns=["run_id", "phase", "run_number"]):
            sides = pa.Table.from_batches([batch]).group_by(["run_id", "phase"], use_threads=False)
            for row in sides.aggregate([("run_number", "max")]).to_pylist():
                phases = runs.setdefault(row["run_id"], {})
                phases[row["phase"]] = max(row["run_number_max"], phases.get(row["phase"], 0))
    return runs


def _state_logs(tables: Tables, run_id: str, known: pc.Expression) -> tuple[dict[int, StateLog], bool]:
    """By state partition, and whether these are all; `known`: rows of ``export_ranges`` with the shifts of logs."""
    asked = (pc.field("run_id") == run_id) & (pc.field("topic") == STATE_TOPIC) & pc.field("group_id").is_null()
    columns = ["phase", "partition", "log_start_offset", "log_end_offset"]
    found = tables.read("offset_observations", columns=columns, where=asked).to_pylist()
    rows = [row for row in found if row["partition"] is not None]
    sides = {(row["partition"], row["phase"]): row for row in rows}
    shifts = newest_shifts(tables, known)

    def offset(number: int, phase: str, name: str) -> int | None:
        found = sides.get((number, phase), {}).get(name)
        return None if found is None else found + shifts.get(number, 0)

    logs = {
        number: StateLog(
            log_start_before=offset(number, "before", "log_start_offset"),
            log_end_before=offset(number, "before", "log_end_offset"),
            log_end_after=offset(number, "after", "log_end_offset"),
        )
        for number, _ in sides
    }
    return logs, len(rows) == len(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptions:
    """The two samples of one observation; of several rows with one key in a phase the first counts.

    `shares`: described share partitions; a null topic id: the cluster did not name it. `logs`: log offsets by topic id
    and partition. `groups`: share groups. `group_errors`: errors that stand for every share partition of a group. These
    have the columns of their tables. `topics`: name and status of each topic id, the newest first.
    """

    shares: pa.Table
    logs: pa.Table
    groups: pa.Table
    group_errors: pa.Table
    topics: pa.Table

    def only_described(self, replayed: pa.Table) -> pa.Table:
        """The keys (``KEY_COLUMNS``) of share partitions that were described and are not in `replayed`, each once."""
        columns = self.shares.select(KEY_COLUMNS)
        distinct = columns.take(pa.array(np.unique(key_codes(columns.columns), return_index=True)[1]))
        return distinct.filter(pc.is_null(first_matches(distinct, replayed)))

    def beside(self, keys: pa.Table) -> dict[str, pa.Array]:
        """Columns for each row of `keys` (``KEY_COLUMNS``), null where nothing was answered. `topic`,
        `described_topic`, `topic_status`, `group_state`; and for each phase, with its name at the end: `is_listed` (its
        group described it), `start_offset` (null: not initialized), `lag`, `error` (why the description failed),
        `is_group_present` (null: the group could not be queried), `is_authorized`, and the log's start and end."""
        own = self.topics.take(first_matches(keys, self.topics, ["topic_id"]))
        described = self.shares["topic"].take(first_matches(keys, self.shares))
        samples = {phase: self._sample(keys, phase) for phase in PHASES}
        states = [samples[phase].pop("group_state") for phase in reversed(PHASES)]
        present = [samples[phase].pop("group_answered") for phase in reversed(PHASES)]
        return {
            "topic": own["topic"],
            "topic_status": own["status"],
            "described_topic": described,
            "group_state": pc.if_else(present[0], *states),
            **{f"{name}_{phase}": column for phase in PHASES for name, column in samples[phase].items()},
        }

    def _sample(self, keys: pa.Table, phase: str) -> dict[str, pa.Array]:
        share = _of_phase(self.shares, phase, keys, KEY_COLUMNS)
        log = _of_phase(self.logs, phase, keys, ("topic_id", "partition"))
        group = _of_phase(self.groups, phase, keys, ("group_id",))
        errors = _of_phase(self.group_errors, phase, keys, ("group_id",))
        code, group_error = group["error_code"], _error_texts(errors)
        is_present = pc.if_else(_has_error(group), pa.scalar(None, pa.bool_()), pa.scalar(value=True))
        is_absent = pc.or_(pc.is_null(group["phase"]), _is(pc.equal(code, _GROUP_NOT_FOUND)))
        refused = [pc.is_in(codes, value_set=_REFUSED_CODES) for codes in (share["error_code"], code)]
        refused.append(_is(pc.match_substring_regex(group_error, _REFUSED_TEXTS)))
        return {
            "is_listed": pc.is_valid(share["phase"]),
            "start_offset": share["start_offset"],
            "lag": share["lag"],
            "error": pc.coalesce(_error_texts(share), group_error),
            "is_group_present": pc.if_else(is_absent, pa.scalar(value=False), is_present),
            "is_authorized": pc.invert(pc.or_(pc.or_(refused[0], refused[1]), refused[2])),
            "log_start_offset": log["log_start_offset"],
            "log_end_offset": log["log_end_offset"],
            "group_state": group["group_state"],
            "group_answered": pc.is_valid(group["phase"]),
        }


def read_descriptions(tables: Tables, run_id: str) -> Descriptions:
    """The samples of observation `run_id`, without its share partitions (``described_shares`` of its files)."""
    own = pc.field("run_id") == run_id
    of_whole = pc.field("group_id").is_null() | pc.field("partition").is_null()
    offsets = tables.read("offset_observations", columns=OFFSET_COLUMNS, where=own & of_whole)
    groups = tables.read("group_observations", columns=_GROUPS, where=own)
    of_group, has_error = pc.is_valid(offsets["group_id"]), _has_error(offsets)
    kinds = pc.utf8_lower(pc.if_else(_is(pc.not_equal(groups["group_type"], "")), groups["group_type"], _SHARE_GROUP))
    return Descriptions(
        shares=offsets.slice(0, 0),
        logs=offsets.filter(pc.invert(of_group)),
        groups=groups.filter(pc.equal(kinds, _SHARE_GROUP)),
        group_errors=offsets.filter(pc.and_(pc.and_(of_group, pc.is_null(offsets["partition"])), has_error)),
        topics=tables.read("topics", columns=_TOPICS).sort_by([("last_seen_at", "descending")]),
    )


def described_shares(tables: Tables, run_id: str, paths: Sequence[str]) -> pa.Table:
    """``OFFSET_COLUMNS`` of the share partitions that observation `run_id` described, in some files of
    ``offset_observations``. Without a topic id and an error a row says only that the topic is not there."""
    own = (pc.field("run_id") == run_id) & pc.field("group_id").is_valid() & pc.field("partition").is_valid()
    rows = tables.read_files("offset_observations", paths, columns=OFFSET_COLUMNS, where=own)
    return rows.filter(pc.or_(pc.is_valid(rows["topic_id"]), _has_error(rows)))


def with_topics(states: pa.Table, described: Descriptions) -> pa.Table:
    """`states` with the newest name of each topic id; null where it was never seen."""
    names = described.topics["topic"].take(first_matches(states, described.topics, ["topic_id"]))
    return states.set_column(states.column_names.index("topic"), "topic", names)


def _of_phase(rows: pa.Table, phase: str, keys: pa.Table, key: tuple[str, ...]) -> Mapping[str, pa.ChunkedArray]:
    """The first of `rows` in that phase for each of `keys`, nulls where there is none."""
    own = rows.filter(pc.equal(rows["phase"], phase))
    matches = first_matches(keys, own, key)
    if "topic_id" in key and key != KEY_COLUMNS:
        matches = pc.if_else(pc.is_valid(keys["topic_id"]), matches, pa.scalar(None, pa.int64()))
    return own.take(matches)


def _error_texts(rows: Mapping[str, pa.ChunkedArray]) -> pa.ChunkedArray:
    """The error of each row, by its code where it has no text; null without an error."""
    said = pc.if_else(_is(pc.not_equal(rows["error"], "")), rows["error"], pa.scalar(None, pa.string()))
    coded = pc.binary_join_element_wise("error", pc.cast(rows["error_code"], pa.string()), " ")
    return pc.if_else(_has_error(rows), pc.coalesce(said, coded), pa.scalar(None, pa.string()))


def _has_error(rows: Mapping[str, pa.ChunkedArray]) -> pa.ChunkedArray:
    """Whether a row has Kafka's error, or, where no broker was asked, a text that says why."""
    return pc.coalesce(pc.not_equal(rows["error_code"], 0), pc.is_valid(rows["error"]))


def _is(mask: pa.ChunkedArray) -> pa.ChunkedArray:
    """`mask`, false where it is null."""
    return pc.fill_null(mask, fill_value=False)


class Gap(NamedTuple):
    """Offsets of a state partition, both inclusive, that the tables have no records of, and why, where that is
    noted."""

    first_offset: int
    last_offset: int
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """One state partition at one observation. `exported`: the offsets that commits name. `end_offset`: the
    observation's replay stops before it; None when nothing was exported. `quarantined`: how many records below it could
    not be decoded, the newest at `quarantined_offset`. `unattributed_offset`: the newest of them that names no share
    partition."""

    state_partition: int
    log: StateLog
    end_offset: int | None = None
    exported: OffsetRuns = field(default_factory=OffsetRuns.empty, compare=False)
    gaps: tuple[Gap, ...] = ()
    quarantined: int = 0
    quarantined_offset: int | None = None
    unattributed_offset: int | None = None

    def records_from(self, position: int) -> int:
        """About how many records there are from `position` on: offsets that were exported, without gaps."""
        return self.exported.count(position, (self.end_offset or 0) - 1)

    @property
    def incomplete(self) -> str | None:
        """Why the export may lack records that existed when the observation began; None when it has them all."""
        start, end = self.log.log_start_before, self.log.log_end_before
        if end is None:
            return f"the log end of state partition {self.state_partition} was not seen before the export"
        if end == start or (self.end_offset or 0) >= end:
            return None
        reached = "has not begun" if self.end_offset is None else f"ends at offset {self.end_offset}"
        return (
            f"the export of state partition {self.state_partition} {reached}, "
            f"but its log ended at {end} when the observation began"
        )

    @property
    def incomplete_without_state(self) -> str | None:
        """The same for a share partition that no record names."""
        return self.incomplete or (None if self.unattributed_offset is None else self.unattributed_text)

    @property
    def unattributed_text(self) -> str:
        """What `unattributed_offset` means for every share partition."""
        return (
            f"the record at offset {self.unattributed_offset} of state partition {self.state_partition} "
            "names no share partition; it may be this one's"
        )


def read_coverage(tables: Tables, observation: Observation) -> dict[int, Coverage]:
    """Coverage of each state partition of the state topic, and of each that was ever exported."""
    coverages = coverage_of(tables, observation)
    snapshot = tables.snapshot("state_records")
    if snapshot is None:
        return coverages
    return count_quarantined(coverages, snapshot.batches(columns=QUARANTINE_COLUMNS, where=QUARANTINED))


def coverage_of(tables: Tables, observation: Observation) -> dict[int, Coverage]:
    """``read_coverage`` by the ranges ``exported_before`` the observation; quarantined records are not counted."""
    ranges = read_ranges(tables).filter(observation.exported_before)
    coverages = {}
    for number in sorted({*observation.state_logs, *ranges["state_partition"].to_pylist()}):
        log, own = observation.state_logs.get(number, StateLog()), ranges.filter(pc.field("state_partition") == number)
        exported = own.filter(pc.field("first_offset").is_valid())
        runs = OffsetRuns.of(exported["first_offset"].to_numpy(), exported["last_offset"].to_numpy() + 1)
        end = runs.last_end
        if end is not None and log.log_end_after is not None:
            end = min(end, log.log_end_after)
        coverages[number] = Coverage(
            state_partition=number, log=log, end_offset=end, exported=runs, gaps=_gaps(own, runs)
        )
    return coverages


def _gaps(ranges: pa.Table, runs: OffsetRuns) -> tuple[Gap, ...]:
    """The gaps that the exporter noted, and any other offsets between two of its commits."""
    is_before = one_of("gap_reason", _BEFORE_THE_FIRST)
    noted = ranges.filter(pc.field("gap_first").is_valid() & ~is_before)
    pairs = {*zip(noted["gap_first"].to_pylist(), noted["gap_last"].to_pylist(), strict=True)}
    pairs |= {*zip(runs.end[:-1].tolist(), (runs.first[1:] - 1).tolist(), strict=True)}
    return tuple(Gap(*pair) for pair in sorted(pairs))


def count_quarantined(
    coverages: Mapping[int, Coverage], batches: Iterable[pa.RecordBatch], positions: Mapping[int, int] = _FROM_THE_START
) -> dict[int, Coverage]:
    """`coverages` with quarantined records counted: `batches` of ``QUARANTINE_COLUMNS`` where ``QUARANTINED``. Those
    before `positions` (by state partition) are counted already."""
    found = dict(coverages)
    for row in (row for batch in batches for row in batch.to_pylist()):
        number, offset = row["state_partition"], row["offset"]
        known = found.get(number)
        if known is None or not positions.get(number, 0) <= offset < (known.end_offset or 0):
            continue
        unattributed = known.unattributed_offset
        # a broker skips a type it does not know
        is_skipped = row["group_id"] is not None or row["decode_status"] == "unknown_type"
        found[number] = replace(
            known,
            quarantined=known.quarantined + 1,
            quarantined_offset=max(offset, known.quarantined_offset or 0),
            unattributed_offset=unattributed if is_skipped else max(offset, unattributed or 0),
        )
    return found
