"""The gate of partition expansions: new looks, all expansions with their fences, and what is proven of groups."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import ConcurrentCommit, ConfigurationError, UnknownName
from acktrail.tables.cluster_overview import greatest
from acktrail.tables.delta.store import Tables
from acktrail_expansion.quality.expansion_suite import LOOK_COLUMNS, SUITE, look_frame, suite_frames
from acktrail_expansion.settings import OrderedGroups, ordered_groups
from acktrail_expectations.gate import pass_gate
from acktrail_expectations.gx.suite_check import NO_ROW, evaluate
from acktrail_expectations.quality_totals import record_totals
from acktrail_expectations.results import ValidationSummary, record, recorded

MOST_ROWS: Final = 2_000_000
"""Of ``partition_observations`` in one validation, about: the newest ones."""
_LOOKS: Final = "partition_observations"
_AUDITED: Final = ("partition_expansions", "expansion_fences", "expansion_verdicts")
_COUNTER: Final = "expansion validations"
_VALIDATED_MS: Final = "observations validated, ms"
_AT_MOST: Final = dt.timedelta(days=1)
"""How far before the newest look others are validated; the audit reads all of them in any case."""
_LOOK_BACK: Final = dt.timedelta(hours=2)
"""How far before those looks are read, to compare with."""
_CLOSE: Final = dt.timedelta(seconds=1)
"""The log's statistics cut instants off."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_OF_SUITE: Final = pc.field("suite") == SUITE
_AT: Final = pc.field("observed_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """The look that is validated. `since`: looks until then were validated before."""

    run_id: str
    cluster_id: str | None
    observed_at: dt.datetime
    rows: int
    since: dt.datetime


def pass_expansion_gate(summary: ValidationSummary) -> None:
    """Let partition expansions pass unless a critical expectation failed. Raises QualityGateFailed: one did."""
    pass_gate(summary, f"what to do: docs/rules.md; the results are in quality_results under run id {summary.run_id}")


def check_expansions(
    tables: Tables, run_id: str | None = None, *, ordered: Sequence[str] | None = None, now: dt.datetime | None = None
) -> ValidationSummary:
    """The results of the suite for the look `run_id` (None: the newest), recorded under run id ``expansions-RUN``:
    once, and again when the tables or `ordered` have changed since.

    Looks are validated from the one after the last validation on, of at most a day. `ordered`: globs of the groups that
    need order; None: ACKTRAIL_ORDERED_GROUPS. Raises UnknownName, ConfigurationError: there is no such look, or none.
    """
    look, needs = _chosen(tables, run_id), ordered_groups() if ordered is None else OrderedGroups(tuple(ordered))
    summary_id, basis = f"expansions-{look.run_id}", _basis(tables, look, needs)
    known = recorded(tables, summary_id)
    if known is not None and known.run_rows == basis:
        record_totals(tables, _COUNTER, None, _OF_SUITE)
        return known
    before = tables.transaction_version("quality_results", _COUNTER)
    looks = look_frame(_new_looks(tables, look), look.run_id, look.since)
    results = tuple(
        replace(result, reason=why_empty) if result.reason == NO_ROW else result
        for checks, frame, label, why_empty in suite_frames(tables, looks, needs, now or dt.datetime.now(dt.UTC))
        for result in evaluate(SUITE, checks, frame, label)
    )
    summary = ValidationSummary(cluster_id=look.cluster_id, run_id=summary_id, results=results, run_rows=basis)
    newest = (max(look.observed_at, look.since) - _EPOCH) // dt.timedelta(milliseconds=1)
    try:
        summary = record(tables, summary, _COUNTER, before, {_VALIDATED_MS: newest})
    except ConcurrentCommit:
        return replace(summary, recorded=False)
    record_totals(tables, _COUNTER, summary, _OF_SUITE)
    return summary


def _chosen(tables: Tables, run_id: str | None) -> _Look:
    where = pc.field("run_id") == run_id
    if run_id is None:
        newest = greatest(tables, _LOOKS, "observed_at")
        if newest is None:
            hint = "run `acktrail expand check TOPIC` first"
            raise ConfigurationError(f"no topic was looked at in the tables at {tables.root}", hint=hint)
        where = pa.scalar(newest - _CLOSE) <= _AT
    rows = tables.read(_LOOKS, columns=("run_id", "cluster_id", "observed_at"), where=where)
    if not rows.num_rows:
        raise UnknownName("look", run_id or "")
    first = rows.sort_by([("observed_at", "descending")]).slice(0, 1).to_pylist()[0]
    validated = tables.transaction_version("quality_results", _VALIDATED_MS)
    return _Look(
        **first,
        rows=pc.sum(pc.equal(rows["run_id"], first["run_id"])).as_py() or 0,
        since=max(_EPOCH + dt.timedelta(milliseconds=validated or 0), first["observed_at"] - _AT_MOST),
    )


def _basis(tables: Tables, look: _Look, ordered: OrderedGroups) -> str:
    """What the results depend on: rows of the look, versions of the tables that an audit replaces, `ordered`."""
    snapshots = {name: tables.snapshot(name) for name in _AUDITED}
    versions = {name: None if found is None else found.version for name, found in snapshots.items()}
    return json.dumps({_LOOKS: look.rows, "versions": versions, "ordered": sorted(ordered.globs)})


def _new_looks(tables: Tables, look: _Look) -> pa.Table:
    """Those that were not validated, up to `look`, with those of two hours before."""
    begin = min(look.since, look.observed_at) - _LOOK_BACK
    within = (pa.scalar(begin) <= _AT) & (pa.scalar(look.observed_at) >= _AT)
    topics = tables.read(
        _LOOKS, columns=("observed_at", "partition_count"), where=within & (pc.field("partition") == 0)
    ).sort_by([("observed_at", "descending")])
    too_many = pc.greater(pc.cumulative_sum(topics["partition_count"], skip_nulls=True), MOST_ROWS)
    first = pc.index(too_many, pa.scalar(value=True)).as_py()
    if first >= 0:
        within &= topics["observed_at"][first] < _AT
    return tables.read(_LOOKS, columns=LOOK_COLUMNS, where=within)
