"""The state of one cluster at a glance, from its tables, for an overview of several. No broker is asked."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow.compute as pc

from acktrail.connect.source_batches import LOG_REPLACED, LOST_FROM_TABLES, PRUNED, PRUNED_BEFORE_FIRST_EXPORT
from acktrail.errors import AcktrailError
from acktrail.tables.cluster_check import EXPORTED_TABLES, cluster_of
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.open_runs import SAMPLED, newest_reconciliation, open_runs
from acktrail.times import utc_text

_SHARE: Final = "share"
_GROUP_ID_NOT_FOUND: Final = 69
_UNKNOWN_TOPIC: Final = 3
_CLOSE: Final = dt.timedelta(seconds=1)
"""The log's statistics cut instants off."""
_STALE: Final = dt.timedelta(hours=1)
"""Without an export for that long, records are being lost wherever a group works: Kafka prunes every five minutes."""
_FIELDS: Final = ("newest_record_ms", "exported_at", "share_groups", "gaps", "reconciled_at", "verdicts", "findings")
_Found = dict[str, Any]
LOSSES: Final = (PRUNED, LOST_FROM_TABLES, LOG_REPLACED)
"""Gaps that are losses. The others are what a person asked for, or what was pruned before there was an export."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOverview:
    """None is not known; `unknown` has the reason, by field.

    `newest_record_ms`: the broker's time of the newest state record, ms since the epoch. `exported_at`: when an export
    or an observation last wrote. `share_groups`: those of the newest observation. `gaps`: in the export, since the
    first one; `gap_offsets` are those of them, and `breaks` the gaps where a log was replaced. `reconciled_at`: of the
    newest reconciliation, as `verdicts` (share partitions by verdict). `findings`: open ones by severity, those of the
    branches' newest audits among them.
    """

    cluster_id: str | None = None
    newest_record_ms: int | None = None
    exported_at: dt.datetime | None = None
    share_groups: int | None = None
    gaps: int | None = None
    gap_offsets: int | None = None
    breaks: int | None = None
    reconciled_run_id: str | None = None
    reconciled_at: dt.datetime | None = None
    verdicts: Mapping[str, int] | None = None
    findings: Mapping[str, int] | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def nothing(cls, reason: str) -> ClusterOverview:
        """Nothing is known, for one reason."""
        return cls(unknown=dict.fromkeys(_FIELDS, reason))

    def urgency(self, now: dt.datetime) -> tuple[tuple[bool, ...], float]:
        """Sort key, least urgent first: what a person has to look at, the gravest sign before the others, then how old
        the export is, in seconds."""
        age = dt.timedelta.max if self.exported_at is None else now - self.exported_at
        severities = self.findings or {}
        signs = (
            self.exported_at is None,
            bool(severities.get("critical")),
            age > _STALE,
            bool(severities.get("error")),
            bool(self.gaps),
            bool(severities.get("warning")),
            bool(self.unknown.keys() & {"verdicts", "findings"}),
        )
        return signs, age.total_seconds()


class _NotKnown(Exception):
    """Why something is not known."""


def cluster_overview(tables: Tables) -> ClusterOverview:
    """What `tables` say; what one damaged table hides is unknown, and nothing else."""
    found: _Found = {}
    unknown: dict[str, str] = {}
    parts: tuple[tuple[Callable[[Tables], _Found], tuple[str, ...]], ...] = (
        (_cluster, ("cluster_id",)),
        (_newest_record, ("newest_record_ms",)),
        (_newest_export, ("exported_at",)),
        (_share_groups, ("share_groups",)),
        (_gaps, ("gaps",)),
        (_reconciled, ("reconciled_at", "verdicts")),
        (_findings, ("findings",)),
    )
    for read, fields in parts:
        try:
            found |= read(tables)
        except _NotKnown as why:
            unknown |= dict.fromkeys(fields, str(why))
        except AcktrailError as error:
            unknown |= dict.fromkeys(fields, error.message)
    return ClusterOverview(**found, unknown=unknown)


def _cluster(tables: Tables) -> _Found:
    snapshots = filter(None, map(tables.snapshot, EXPORTED_TABLES))
    named = next(filter(None, map(cluster_of, snapshots)), None)
    if named is None:
        raise _NotKnown("nothing was exported yet")
    return {"cluster_id": named}


def _newest_record(tables: Tables) -> _Found:
    newest = greatest(tables, "state_records", "timestamp_ms")
    if newest is None:
        raise _NotKnown("no state record was exported yet")
    return {"newest_record_ms": newest}


def _newest_export(tables: Tables) -> _Found:
    instants = [greatest(tables, "export_ranges", "exported_at")]
    instants += [greatest(tables, name, "observed_at") for name in SAMPLED]
    newest = max((instant for instant in instants if instant is not None), default=None)
    if newest is None:
        raise _NotKnown("nothing was exported yet")
    return {"exported_at": newest}


def _share_groups(tables: Tables) -> _Found:
    run = _newest_observation(tables)
    if run is None:
        raise _NotKnown("the brokers were never asked: run `acktrail run export` without --no-observe")
    rows = tables.rows("group_observations", {"run_id": run}, columns=["group_id", "group_type", "error_code"])
    seen = {row["group_id"] for row in rows if row["error_code"] != _GROUP_ID_NOT_FOUND}
    described = {row["group_id"]: row["group_type"] for row in rows if not row["error_code"]}
    refused = len(seen - described.keys())
    if refused:
        raise _NotKnown(f"{refused} of {len(seen)} group(s) could not be described in run {run}")
    return {"share_groups": sum((kind or _SHARE).lower() == _SHARE for kind in described.values())}


def no_share_group(tables: Tables, run_id: str) -> str | None:
    """The sentence that the observation `run_id` saw no share group, and when; None: it saw one, or may not have seen
    one. A look that found nothing has a row about the state topic."""
    own, columns = {"run_id": run_id}, ["observed_at", "error_code"]
    if tables.rows("group_observations", own, columns=["group_id"]):
        return None
    looks = tables.rows("offset_observations", own, columns=columns)
    if not looks or {row["error_code"] for row in looks} - {0, _UNKNOWN_TOPIC}:
        return None
    return f"no share group on this cluster at {utc_text(max(row['observed_at'] for row in looks))}"


def _newest_observation(tables: Tables) -> str | None:
    """The run whose answers of the brokers came last; only files are read that may have them."""
    newest: list[tuple[dt.datetime, str]] = []
    for snapshot in filter(None, map(tables.snapshot, SAMPLED)):
        latest = _greatest_of(tables, snapshot, "observed_at")
        if latest is not None:
            said = {path: each["max.observed_at"] for path, each in snapshot.statistics(["max.observed_at"]).items()}
            paths = [path for path, at in said.items() if at is None or _aware(at) >= latest - _CLOSE]
            rows = tables.read_files(snapshot.name, paths, columns=["observed_at", "run_id"])
            newest += zip(rows["observed_at"].to_pylist(), rows["run_id"].to_pylist(), strict=True)
    return max(newest)[1] if newest else None


def _gaps(tables: Tables) -> _Found:
    """Since the first export: what Kafka had pruned before is no fault of the export's."""
    if not tables.exists("export_ranges"):
        raise _NotKnown("nothing was exported yet")
    own = {reason: each for reason, each in export_gaps(tables).items() if reason != PRUNED_BEFORE_FIRST_EXPORT}
    gaps, offsets = (sum(getattr(each, name) for each in own.values()) for name in ("gaps", "offsets"))
    return {"gaps": gaps, "gap_offsets": offsets, "breaks": own[LOG_REPLACED].gaps if LOG_REPLACED in own else 0}


def _reconciled(tables: Tables) -> _Found:
    run, instant = newest_reconciliation(tables)
    verdicts = _counts_of_runs(tables, "reconciliations", () if run is None else (run,), "verdict")
    return {"reconciled_run_id": run, "reconciled_at": instant, "verdicts": verdicts}


def _findings(tables: Tables) -> _Found:
    return {"findings": _counts_of_runs(tables, "findings", open_runs(tables).run_ids, "severity")}


def _counts_of_runs(tables: Tables, name: str, run_ids: Sequence[str], column: str) -> dict[str, int]:
    """Rows of the runs by the value of `column`."""
    if not run_ids:
        raise _NotKnown("nothing was reconciled yet: run `acktrail run reconcile`")
    rows = tables.rows(name, {"run_id": list(run_ids)}, columns=[column])
    return dict(sorted(Counter(row[column] or "unknown" for row in rows).items()))


def greatest(tables: Tables, name: str, column: str) -> Any:
    """The greatest value in a column; None: there is none."""
    snapshot = tables.snapshot(name)
    return None if snapshot is None else _greatest_of(tables, snapshot, column)


def _greatest_of(tables: Tables, snapshot: TableSnapshot, column: str) -> Any:
    """By the log's statistics, which cut off fractions of a ms; files that have none there are read."""
    said = {path: each[f"max.{column}"] for path, each in snapshot.statistics([f"max.{column}"]).items()}
    known = [_aware(value) for value in said.values() if value is not None]
    silent = [path for path, value in said.items() if value is None]
    if silent:
        read = pc.max(tables.read_files(snapshot.name, silent, columns=[column])[column]).as_py()
        known += [] if read is None else [read]
    return max(known, default=None)


def _aware(value: Any) -> Any:
    """Statistics may leave out that their instants are in UTC."""
    return value.replace(tzinfo=dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo is None else value


@dataclass(frozen=True, slots=True, kw_only=True)
class GapsOfReason:
    """All gaps of one reason; `offsets` are in no row. `newest_at`: when the newest was recorded."""

    gaps: int
    offsets: int
    newest_at: dt.datetime | None


def export_gaps(tables: Tables) -> dict[str, GapsOfReason]:
    """By reason; a reason without a gap is left out. Raises ConfigurationError, RetryableError: the table cannot be
    read."""
    columns = ["gap_first", "gap_last", "gap_reason", "exported_at"]
    rows = tables.read("export_ranges", columns=columns, where=pc.field("gap_first").is_valid()).to_pylist()
    found: dict[str, list[dict[str, object]]] = {}
    for row in rows:
        found.setdefault(str(row["gap_reason"]), []).append(row)
    return {reason: _summed(reason, own) for reason, own in sorted(found.items())}


def _summed(reason: str, rows: list[dict[str, object]]) -> GapsOfReason:
    """A break of a log is one offset of the tables that no record of Kafka's ever had."""
    times = [row["exported_at"] for row in rows]
    lost = 0 if reason == LOG_REPLACED else sum(_length(row) for row in rows)
    known = [at for at in times if isinstance(at, dt.datetime)]
    return GapsOfReason(gaps=len(rows), offsets=lost, newest_at=max(known, default=None))


def _length(row: dict[str, object]) -> int:
    first, last = row["gap_first"], row["gap_last"]
    return last - first + 1 if isinstance(first, int) and isinstance(last, int) else 0
