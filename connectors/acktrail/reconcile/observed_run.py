"""Which observation a job works on, and what the state topic looked like in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import ConfigurationError, InputError, UnknownName
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.stored_log import offset_shifts

_SAMPLED: Final = ("offset_observations", "group_observations")
_PHASES: Final = ("before", "after")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLog:
    """One state partition's log: where it began and ended before the export, and where it ended after it; in offsets of
    the tables, which differ from Kafka's once the log was replaced."""

    log_start_before: int | None = None
    log_end_before: int | None = None
    log_end_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A complete observation.

    `after_began_at` and `observed_at`: when the first and the last answer of the `after` sample came in. `state_logs`
    by state partition; empty: there was no state topic, or it could not be described.
    """

    cluster_id: str | None
    run_id: str
    after_began_at: datetime
    observed_at: datetime
    state_logs: Mapping[int, StateLog] = field(default_factory=dict)

    @property
    def state_partition_count(self) -> int | None:
        """Partitions of the state topic."""
        return len(self.state_logs) or None


def newest_run(tables: Tables) -> str:
    """The run id of the newest observation with both samples.

    Raises:
        ConfigurationError: when there is none.
    """
    runs = _sampled_runs(tables)
    complete = [run for run, phases in runs.items() if set(_PHASES) <= phases.keys()]
    if not complete:
        raise ConfigurationError(
            f"no complete observation in the tables at {tables.root}", hint="run `acktrail export` against the cluster"
        )
    return max(complete, key=lambda run: (runs[run]["after"], run))


def read_observation(tables: Tables, run_id: str) -> Observation:
    """The observation `run_id`.

    Raises:
        UnknownName: for a run that observed nothing.
        InputError: when it has no sample from after the export.
    """
    columns, own = ["cluster_id", "phase", "observed_at"], pc.field("run_id") == run_id
    sampled = pa.concat_tables(tables.read(name, columns=columns, where=own) for name in _SAMPLED)
    if not sampled.num_rows:
        known = sorted(_sampled_runs(tables))
        raise UnknownName("observation", run_id, nearest=get_close_matches(run_id, known, n=3))
    after = sampled.filter(pc.equal(sampled["phase"], "after"))
    if not after.num_rows:
        raise InputError(
            f"observation {run_id!r} has no sample from after the export", hint="let the export finish, or name another"
        )
    times = pc.min_max(after["observed_at"]).as_py()
    logs = _state_logs(tables, run_id)
    shifts = offset_shifts(tables, logs, own | (pc.field("exported_at") <= times["min"]))
    return Observation(
        cluster_id=after["cluster_id"][0].as_py(),
        run_id=run_id,
        after_began_at=times["min"],
        observed_at=times["max"],
        state_logs={number: _shifted(log, shifts.get(number, 0)) for number, log in logs.items()},
    )


def _sampled_runs(tables: Tables) -> dict[str, dict[str, datetime]]:
    """The newest instant by run and phase."""
    runs: dict[str, dict[str, datetime]] = {}
    for name in _SAMPLED:
        for row in _sides(tables, name):
            phases = runs.setdefault(row["run_id"], {})
            phases[row["phase"]] = max(row["observed_at_max"], phases.get(row["phase"], row["observed_at_max"]))
    return runs


def _sides(tables: Tables, name: str) -> Iterable[dict[str, Any]]:
    """Each run and phase with its newest instant, read piece by piece: a table holds every observation ever made."""
    snapshot = tables.snapshot(name)
    if snapshot is None:
        return []
    sides: pa.Table | None = None
    for batch in snapshot.batches(columns=["run_id", "phase", "observed_at"]):
        piece = _newest(pa.Table.from_batches([batch]), "observed_at")
        sides = piece if sides is None else _newest(pa.concat_tables([sides, piece]), "observed_at_max")
    found: list[dict[str, Any]] = [] if sides is None else sides.to_pylist()
    return found


def _newest(rows: pa.Table, column: str) -> pa.Table:
    newest = rows.group_by(["run_id", "phase"], use_threads=False).aggregate([(column, "max")])
    return newest.select(["run_id", "phase", f"{column}_max"]).rename_columns(["run_id", "phase", "observed_at_max"])


def _state_logs(tables: Tables, run_id: str) -> dict[int, StateLog]:
    asked = (pc.field("run_id") == run_id) & (pc.field("topic") == STATE_TOPIC) & pc.field("group_id").is_null()
    columns = ["phase", "partition", "log_start_offset", "log_end_offset"]
    sides: dict[int, dict[str, dict[str, Any]]] = {}
    for row in tables.read("offset_observations", columns=columns, where=asked).to_pylist():
        sides.setdefault(row["partition"], {})[row["phase"]] = row
    return {partition: _state_log(*(found.get(phase, {}) for phase in _PHASES)) for partition, found in sides.items()}


def _shifted(log: StateLog, shift: int) -> StateLog:
    offsets = {name: getattr(log, name) for name in StateLog.__slots__}
    return StateLog(**{name: None if offset is None else offset + shift for name, offset in offsets.items()})


def _state_log(before: Mapping[str, Any], after: Mapping[str, Any]) -> StateLog:
    return StateLog(
        log_start_before=before.get("log_start_offset"),
        log_end_before=before.get("log_end_offset"),
        log_end_after=after.get("log_end_offset"),
    )
