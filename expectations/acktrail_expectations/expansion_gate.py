"""The gate of partition expansions: the newest observations, all expansions with their fences, and what the audit
proves of groups."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.expansion.lost_proofs import OPEN_COLUMNS, OPEN_VERDICTS
from acktrail.errors import ConcurrentCommit, ConfigurationError, UnknownName
from acktrail.model.rules.catalogue import EXPANSION_SUITE
from acktrail.tables.cluster_overview import greatest
from acktrail.tables.delta.store import Tables
from acktrail_expectations.gate import pass_gate
from acktrail_expectations.gx.suite_check import NO_ROW, RowLabel, SuiteCheck, evaluate
from acktrail_expectations.inputs.observation_slices import OBSERVATIONS, observation_slices
from acktrail_expectations.quality_totals import record_totals
from acktrail_expectations.results import QualityResult, ValidationSummary, merged, record, recorded
from acktrail_expectations.row_labels import DESTINATION, EXPANSION, OBSERVED_PARTITION, OBSERVED_TOPIC, SOURCE
from acktrail_expectations.suites.frame_columns import frame_of
from acktrail_expectations.suites.ordering_audits import (
    AUDIT_COLUMNS,
    ORDERING_CHECKS,
    START_CHECKS,
    START_COLUMNS,
    ordering_frame,
)
from acktrail_expectations.suites.partition_expansions import (
    EXPANSION_CHECKS,
    EXPANSION_COLUMNS,
    FENCE_CHECKS,
    FENCE_COLUMNS,
    expansions_frame,
    fences_frame,
)
from acktrail_expectations.suites.partition_observations import (
    LEADER_EPOCH_CHECKS,
    TOPIC_OBSERVATION_CHECKS,
    epoch_ms,
    leader_epochs_frame,
    topic_observations_frame,
)

PARTITION_EXPANSION_CHECKS: Final = (
    *(*TOPIC_OBSERVATION_CHECKS, *LEADER_EPOCH_CHECKS, *EXPANSION_CHECKS),
    *(*FENCE_CHECKS, *ORDERING_CHECKS, *START_CHECKS),
)
"""All rules of the suite ``partition_expansions``."""

_AUDITED: Final = ("partition_expansions", "expansion_fences", "ordering_audits", "start_audits")
_COUNTER: Final = "expansion validations"
_VALIDATED_MS: Final = "observations validated, ms"
_CLOSE: Final = dt.timedelta(seconds=1)
"""The log's statistics cut instants off."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_OF_EXPANSIONS: Final = pc.field("suite") == EXPANSION_SUITE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """The observation that is validated. `since`: the newest instant that an earlier validation saw."""

    run_id: str
    cluster_id: str | None
    observed_at: dt.datetime
    rows: int
    since: dt.datetime | None


def pass_expansion_gate(summary: ValidationSummary) -> None:
    """Let partition expansions pass unless a critical expectation failed. Raises QualityGateFailed: one did."""
    hint = f"acktrail validate --expansions --json; the results are in quality_results under run id {summary.run_id}"
    pass_gate(summary, hint)


def validate_observation(
    store: Tables, run_id: str | None = None, *, ordered: Sequence[str] = (), now: dt.datetime | None = None
) -> ValidationSummary:
    """The results of the suite ``partition_expansions``, recorded under run id ``expansions-RUN``: once, and again when
    the tables or `ordered` have changed since.

    Observations are those after the last validation up to the run's, beside those of the two hours before;
    all expansions, fences and audits are looked at. `now`: what instants are compared with. Raises UnknownName,
    ConfigurationError: there is no such observation, or none.
    """
    run = _chosen(store, run_id)
    summary_id, basis = f"expansions-{run.run_id}", _basis(store, run, ordered)
    known = recorded(store, summary_id)
    if known is not None and known.run_rows == basis:
        record_totals(store, _COUNTER, None, _OF_EXPANSIONS)
        return known
    results = merged(_results(store, run, ordered, dt.datetime.now(dt.UTC) if now is None else now))
    summary = ValidationSummary(cluster_id=run.cluster_id, run_id=summary_id, results=results, run_rows=basis)
    newest = max(run.observed_at, run.since or run.observed_at)
    before = store.transaction_version("quality_results", _COUNTER)
    try:
        summary = record(store, summary, _COUNTER, before, {_VALIDATED_MS: epoch_ms(newest)})
    except ConcurrentCommit:
        return replace(summary, recorded=False)
    record_totals(store, _COUNTER, summary, _OF_EXPANSIONS)
    return summary


def _chosen(store: Tables, run_id: str | None) -> _Run:
    columns = ("run_id", "cluster_id", "observed_at")
    where = pc.field("run_id") == run_id
    if run_id is None:
        newest = greatest(store, OBSERVATIONS, "observed_at")
        if newest is None:
            hint = "run `acktrail expand observe` first"
            raise ConfigurationError(f"no topic was observed in the tables at {store.root}", hint=hint)
        where = pc.field("observed_at") >= pa.scalar(newest - _CLOSE)
    rows = store.read(OBSERVATIONS, columns=columns, where=where).sort_by([("observed_at", "descending")])
    if not rows.num_rows:
        raise UnknownName("observation", run_id or "")
    first = rows.slice(0, 1).to_pylist()[0]
    validated = store.transaction_version("quality_results", _VALIDATED_MS)
    return _Run(
        run_id=first["run_id"],
        cluster_id=first["cluster_id"],
        observed_at=first["observed_at"],
        rows=pc.sum(pc.equal(rows["run_id"], first["run_id"])).as_py() or 0,
        since=None if validated is None else _EPOCH + dt.timedelta(milliseconds=validated),
    )


def _basis(store: Tables, run: _Run, ordered: Sequence[str]) -> str:
    """What the results depend on: rows of the run, versions of the tables that an audit replaces, `ordered`."""
    snapshots = {name: store.snapshot(name) for name in _AUDITED}
    versions = {name: None if found is None else found.version for name, found in snapshots.items()}
    return json.dumps({OBSERVATIONS: run.rows, "versions": versions, "ordered": sorted(ordered)})


def _results(store: Tables, run: _Run, ordered: Sequence[str], now: dt.datetime) -> Iterator[QualityResult]:
    for checks, frame, label, why_empty in _frames(store, run, ordered, now):
        for result in evaluate(EXPANSION_SUITE, checks, frame, label):
            yield replace(result, reason=why_empty) if result.reason == NO_ROW else result


def _frames(
    store: Tables, run: _Run, ordered: Sequence[str], now: dt.datetime
) -> Iterator[tuple[tuple[SuiteCheck, ...], pd.DataFrame, RowLabel, str]]:
    """Rules, the frame that they look at, how its rows are named, and why it is empty."""
    no_topic = "the run described no topic"
    positions_at = _positions_at(store, run.run_id)
    for part in observation_slices(store, run.observed_at, run.since):
        topics = topic_observations_frame(
            part.rows, run_id=run.run_id, since=part.since, positions_at=positions_at, now=now
        )
        yield TOPIC_OBSERVATION_CHECKS, topics, OBSERVED_TOPIC, no_topic
        epochs = leader_epochs_frame(part.rows, run_id=run.run_id, since=part.since)
        yield LEADER_EPOCH_CHECKS, epochs, OBSERVED_PARTITION, no_topic
    fences = store.read("expansion_fences", columns=FENCE_COLUMNS)
    expansions = store.read("partition_expansions", columns=EXPANSION_COLUMNS)
    yield EXPANSION_CHECKS, expansions_frame(expansions, fences, now=now), EXPANSION, "no expansion was found"
    is_open = pc.field("verdict").isin(OPEN_VERDICTS)
    unproven = store.read("ordering_audits", columns=OPEN_COLUMNS, where=is_open)
    yield FENCE_CHECKS, fences_frame(fences, unproven), SOURCE, "no expansion with a fence was found"
    audits = store.read("ordering_audits", columns=AUDIT_COLUMNS)
    yield ORDERING_CHECKS, ordering_frame(audits, ordered=ordered), DESTINATION, "no group was audited"
    starts = frame_of(store.read("start_audits", columns=START_COLUMNS))
    yield START_CHECKS, starts, DESTINATION, "no group was audited on a partition that was added"


def _positions_at(store: Tables, run_id: str) -> dt.datetime | None:
    """When a run began to read groups."""
    rows = store.read("group_positions", columns=["observed_at"], where=pc.field("run_id") == run_id)
    found: dt.datetime | None = pc.min(rows["observed_at"]).as_py()
    return found
