"""The state of every share partition at any past moment, out of the exported records."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import ConfigurationError
from acktrail.reconcile.coverage import (
    QUARANTINE_COLUMNS,
    QUARANTINED,
    Coverage,
    count_quarantined,
    coverage_of,
)
from acktrail.reconcile.observed_run import Observation
from acktrail.reconcile.replay_resume import ReplayStart, replay_of
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.export_ranges import read_ranges

_FOR_EVER: Final = dt.datetime.max.replace(tzinfo=dt.UTC)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LATEST_MS: Final = 253_402_300_799_999


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAtTime:
    """What each state partition held at `at_ms` (None: at the end of the export), as far as it was exported.

    A state partition is cut before its first record with a later time, as Kafka's own lookup of an offset by time does.
    `began_later`: state partitions whose export began after the moment, and not with their first record: share
    partitions that had a state then may be missing. `exported_at`: the newest commit of the exporter; what was written
    after it is not known.
    """

    at_ms: int | None
    observation: Observation
    coverages: Mapping[int, Coverage]
    began_later: tuple[int, ...] = ()
    exported_at: dt.datetime | None = None


def topic_at_time(tables: Tables, at_ms: int | None = None) -> TopicAtTime:
    """What the tables hold of the state topic as of `at_ms`, ms since the epoch, inclusive; None: all of it. Raises
    ConfigurationError (nothing was exported)."""
    snapshot = tables.snapshot("state_records")
    if snapshot is None:
        raise ConfigurationError(f"no records in the tables at {tables.root}", hint="run `acktrail run export` first")
    observed_at = _FOR_EVER if at_ms is None else _EPOCH + dt.timedelta(milliseconds=min(at_ms, _LATEST_MS))
    observation = Observation(cluster_id=None, run_id="", after_began_at=_FOR_EVER, observed_at=observed_at)
    exports = _exports(tables)
    cuts = {} if at_ms is None else _cuts(tables, at_ms)
    coverages = {number: _before(found, cuts.get(number)) for number, found in coverage_of(tables, observation).items()}
    later = (e["state_partition"] for e in exports if e["first_offset_min"] and e["exported_at_min"] > observed_at)
    return TopicAtTime(
        at_ms=at_ms,
        observation=observation,
        coverages=count_quarantined(coverages, snapshot.batches(columns=QUARANTINE_COLUMNS, where=QUARANTINED)),
        began_later=tuple(sorted(later)),
        exported_at=max((e["exported_at_max"] for e in exports), default=None),
    )


def states_of_topic(tables: Tables, moment: TopicAtTime, group_id: str | None = None) -> pa.Table:
    """Rows of ``REPLAYED``: every share partition (of a group) that had a state, or may have had one, at `moment`."""
    only = None if group_id is None else pc.field("group_id") == group_id
    return replay_of(tables, moment.observation, ReplayStart(), tuple(moment.coverages.values()), only).states()


def _before(coverage: Coverage, cut: int | None) -> Coverage:
    """`coverage` up to the first record after the moment. The records of a gap there may lie on either side."""
    if cut is None or coverage.end_offset is None:
        return coverage
    gaps = tuple(gap for gap in coverage.gaps if gap.first_offset < cut)
    return replace(coverage, end_offset=min(cut, coverage.end_offset), gaps=gaps)


def _cuts(tables: Tables, at_ms: int) -> dict[int, int]:
    """The offset of each state partition's first record after `at_ms`. Files without such records are left unread."""
    snapshot = tables.snapshot("state_records")
    assert snapshot is not None
    cuts: dict[int, int] = {}
    later = pc.field("timestamp_ms") > at_ms
    for batch in snapshot.batches(columns=["state_partition", "offset"], where=later):
        found = pa.Table.from_batches([batch]).group_by("state_partition").aggregate([("offset", "min")])
        for row in found.to_pylist():
            number = row["state_partition"]
            cuts[number] = min(row["offset_min"], cuts.get(number, row["offset_min"]))
    return cuts


def _exports(tables: Tables) -> list[dict[str, Any]]:
    """By state partition: the first offset exported, and the times of the first and last commit with records."""
    rows = read_ranges(tables).filter(pc.field("first_offset").is_valid()).group_by("state_partition")
    wanted = [("first_offset", "min"), ("exported_at", "min"), ("exported_at", "max")]
    found: list[dict[str, Any]] = rows.aggregate(wanted).to_pylist()
    return found
