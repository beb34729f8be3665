"""What one executor does with the replayed rows of its share partitions: verdicts, findings, and the data files of the
tables that get them. Only names of files, findings and sums leave it.

All share partitions of a group and topic are in one share, so that findings about one beside the others are found
there::

    replayed rows  -> the one state of each share partition
    descriptions   -> what the cluster says about them, and about those without a state
    both           -> verdicts -> findings
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import numpy as np
import pyarrow as pa

from acktrail.config import TablesConfig
from acktrail.executors import GROUP, JobStep, Results
from acktrail.format.columns.binary_column import Int64Array
from acktrail.format.columns.schemas.table_schemas import FINDINGS, RECONCILIATIONS, SHARE_PARTITION_STATES
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.reconcile.coverage import Coverage
from acktrail.reconcile.findings import (
    PLACES,
    places_of,
    share_partition_findings,
    with_critical_findings,
    without_start_findings,
)
from acktrail.reconcile.observed_run import Observation, read_descriptions, with_topics
from acktrail.reconcile.partition_replay import SAVED_COLUMNS, replayed_states
from acktrail.reconcile.replay_resume import ReplayStart, replay_of
from acktrail.reconcile.verdict_rows import one_state_per_partition, reconcile_rows
from acktrail.tables.delta.data_file import WRITTEN_FILES, written_file
from acktrail.tables.delta.store import Tables
from acktrail.tables.saved_states import REPLAY, with_cluster
from acktrail.tables.seen_archives import settled_archives

REPLAY_RECORDS: Final = JobStep(
    name="replay the state records", kinds={"saved": pa.schema([*SAVED_COLUMNS, pa.field(GROUP, pa.int32())])}
)
JUDGED: Final = JobStep(name="judge and write", kinds={"files": WRITTEN_FILES, "findings": FINDINGS, "places": PLACES})
_KEY: Final = [(name, "ascending") for name in KEY_COLUMNS]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareJudge:
    """The judge of a run. `groups`: how many shares there are; `wanted`: the tables whose files are written; `shown`:
    how long archived records stay unseen."""

    tables: TablesConfig
    observation: Observation
    coverages: Mapping[int, Coverage]
    groups: int
    wanted: frozenset[str]
    shown: timedelta

    def judge(self, number: int, rows: pa.Table) -> Results:
        """Results of ``JUDGED`` for the replayed rows of share `number`. Raises as ``Tables`` does."""
        tables, saved = Tables(self.tables), rows.select(SAVED_COLUMNS.names).cast(SAVED_COLUMNS)
        described = read_descriptions(tables, self.observation.run_id)
        described = described.only(group_numbers(described.shares, self.groups) == number)
        states = one_state_per_partition(replayed_states(saved, self.observation, self.coverages))
        verdicts = reconcile_rows(states, described, self.observation, self.coverages).sort_by(_KEY)
        settled = settled_archives(tables, self.observation.observed_at, self.shown)
        broken = share_partition_findings(verdicts, self.observation, settled)
        yield "findings", broken
        yield "findings", without_start_findings(verdicts, self.observation)
        yield "places", places_of(saved)
        own = {
            "share_partition_states": with_topics(states, described).select(SHARE_PARTITION_STATES.names).sort_by(_KEY),
            "reconciliations": with_critical_findings(verdicts.select(RECONCILIATIONS.names), broken),
            "replay_memory": with_cluster(saved, REPLAY, self.observation.cluster_id or ""),
        }
        for name in sorted(self.wanted):
            yield "files", written_file(tables.place(name), own[name])


def replay_numbered(judge: ShareJudge, start: ReplayStart, coverages: Sequence[Coverage]) -> Results:
    """Results of ``REPLAY_RECORDS`` for a share of the state partitions."""
    saved = replay_of(Tables(judge.tables), judge.observation, start, coverages).rows()
    yield "saved", saved.append_column(GROUP, pa.array(group_numbers(saved, judge.groups), pa.int32()))


def group_numbers(rows: pa.Table, groups: int) -> Int64Array:
    """The number of the share of each row, from 0 to before `groups`: the same for all rows of a group and topic.

    >>> rows = pa.table({"group_id": ["a", "b", "a"], "topic_id": ["x", None, "x"]})
    >>> first, second, third = group_numbers(rows, 5).tolist()
    >>> first == third
    True
    """
    if groups == 1 or not rows.num_rows:
        return np.zeros(rows.num_rows, np.int64)
    found = np.zeros(rows.num_rows, np.int64)
    for name in ("group_id", "topic_id"):
        texts = rows[name].combine_chunks().dictionary_encode("encode")
        hashes = [zlib.crc32((text or "").encode()) for text in texts.dictionary.to_pylist()]
        found = (31 * found + np.array(hashes, np.int64)[texts.indices.to_numpy()]) % groups
    return found
