"""The share partitions of a bucket: their verdicts and findings, and the files that an executor writes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from acktrail.format.columns.schemas.table_schemas import FINDINGS, RECONCILIATIONS, SHARE_PARTITION_STATES
from acktrail.history.observed_run import Descriptions, with_topics
from acktrail.history.partition_replay import SAVED_COLUMNS, replayed_states
from acktrail.history.saved_states import REPLAY, with_cluster
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.tables.delta.delta_log_writer import WRITTEN_FILES, write_data_file
from acktrail.tables.delta.store import Tables
from acktrail_jobs.frames import list_columns, one_row, release_memory
from acktrail_jobs.reconcile.findings import (
    PLACES,
    places_of,
    share_partition_findings,
    with_critical_findings,
    without_start_findings,
)
from acktrail_jobs.reconcile.frames_of_run import BUCKET, ReplayedRun
from acktrail_jobs.reconcile.verdict_rules import one_state_per_partition, reconcile_rows

JUDGED: Final = list_columns(files=WRITTEN_FILES, findings=FINDINGS, places=PLACES)
"""What an executor leaves of a bucket: the files that it wrote, findings, and sums by state partition."""
_KEY: Final = [(name, "ascending") for name in KEY_COLUMNS]
Judge = Callable[[Any, pa.Table, pa.Table], pa.Table]
"""Of a bucket: its key, rows of ``STATES`` and of ``SHARES``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketJudge:
    """Judges the buckets of `run`. `described`: what the brokers answered about groups, logs and topics; `looked`: what
    ``looked_offsets`` gives, `settled`: what ``acknowledged_losses`` gives. An executor gets it with its work."""

    run: ReplayedRun
    described: Descriptions
    looked: pa.Table
    settled: pa.Table

    def verdicts(self) -> Judge:
        """Gives rows of ``RECONCILED``."""
        return lambda _bucket, saved, shares: self._judged(saved, shares)[1]

    def written(self, wanted: frozenset[str]) -> Judge:
        """Gives a row of ``JUDGED``; the files are of the tables `wanted`. Raises as ``Tables`` does."""

        def judged_and_written(_bucket: Any, saved: pa.Table, shares: pa.Table) -> pa.Table:
            left = self._written(wanted, saved, shares)
            release_memory()
            return left

        return judged_and_written

    def _written(self, wanted: frozenset[str], saved: pa.Table, shares: pa.Table) -> pa.Table:
        states, verdicts = self._judged(saved, shares)
        broken = share_partition_findings(verdicts, self.run.observation, self.settled)
        own = {
            "share_partition_states": states.select(SHARE_PARTITION_STATES.names).sort_by(_KEY),
            "reconciliations": with_critical_findings(verdicts.select(RECONCILIATIONS.names), broken),
            REPLAY.name: with_cluster(_saved(saved), REPLAY, self.run.observation.cluster_id or ""),
        }
        tables = Tables(self.run.config)
        files = [write_data_file(tables.place(name), own[name]) for name in sorted(wanted)]
        return one_row(
            JUDGED,
            files=pa.concat_tables([WRITTEN_FILES.empty_table(), *files]),
            findings=pa.concat_tables([broken, without_start_findings(verdicts, self.run.observation)]),
            places=places_of(_saved(saved)),
        )

    def _judged(self, saved: pa.Table, shares: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The states of the bucket and its verdicts."""
        observation, coverages = self.run.observation, self.run.coverages
        described = replace(self.described, shares=shares.drop_columns([BUCKET]))
        states = one_state_per_partition(replayed_states(_saved(saved), observation, coverages, self.looked))
        verdicts = reconcile_rows(states, described, observation, coverages).sort_by(_KEY)
        return with_topics(states, described), verdicts


def _saved(rows: pa.Table) -> pa.Table:
    return rows.select(SAVED_COLUMNS.names).cast(SAVED_COLUMNS)
