"""A share of a reconciliation: state partitions replayed and judged where they are read; and the shares as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from acktrail.columnar.schemas.table_schemas import SHARE_PARTITION_STATES
from acktrail.config import TablesConfig
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.reconcile.coverage import Coverage
from acktrail.reconcile.described_partitions import Key, Samples, read_samples
from acktrail.reconcile.saved.replay_start import Recall, replay_of
from acktrail.reconcile.saved.saved_replay import MEMORY_COLUMNS
from acktrail.reconcile.verdict_rows import JUDGED_ARROW, Judge
from acktrail.tables.delta.store import Tables
from acktrail.workers.worker_results import collected, parcels_of

__all__ = ["Judged", "JudgedShare", "put_together"]

_Row = Mapping[str, Any]
_ROWS_AT_ONCE: Final = 2_048

_JUDGED: Final = pa.schema(
    [
        pa.field("state", pa.struct(list(SHARE_PARTITION_STATES))),
        pa.field("judged", pa.struct(list(JUDGED_ARROW))),
    ]
)
"""One share partition on one state partition: its replayed state, and what was made of it."""

_SCHEMAS: Final = {"judged": _JUDGED, "memory": MEMORY_COLUMNS}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedShare:
    """What a worker does with its share of the state partitions: replay them, judge what comes out.

    `samples`: None: each worker reads them from the tables.
    """

    config: TablesConfig
    judge: Judge
    recall: Recall
    samples: Samples | None = None

    def __call__(self, coverages: Sequence[Coverage]) -> Iterator[pa.RecordBatch]:
        """Parcels ``judged`` and ``memory``."""
        tables, observation = Tables(self.config), self.judge.observation
        replay = replay_of(tables, observation, self.recall, coverages)
        samples = self.samples or read_samples(tables, observation.run_id)
        rows = (self._judged(row, samples) for row in replay.rows())
        yield from parcels_of("judged", _table(rows, _JUDGED))
        if self.recall.remembers:
            yield from parcels_of("memory", replay.remembered())

    def _judged(self, row: _Row, samples: Samples) -> dict[str, _Row]:
        named = {**row, "topic": samples.topic_of(row["topic_id"])}
        return {"state": named, "judged": self.judge.judged(samples.beside(row))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A reconciliation's results: rows of ``SHARE_PARTITION_STATES``, ``JUDGED_ARROW`` and ``MEMORY_COLUMNS``."""

    states: pa.Table
    judged: pa.Table
    memory: pa.Table


def put_together(parcels: Iterable[pa.RecordBatch], judge: Judge, samples: Samples) -> Judged:
    """One row a share partition out of what the workers found, and a verdict on those that were only described.

    A share partition's records can lie on two state partitions (the state topic was given more partitions). The state
    is then taken from where a broker looks for it, else from where the newest record is; `found_on` names them all.
    """
    found = collected(parcels, _SCHEMAS)
    states, judged = (_fields(found["judged"], name) for name in ("state", "judged"))
    keys = list(zip(*(judged[name].to_pylist() for name in KEY_COLUMNS), strict=True))
    distinct = set(keys)
    if len(distinct) < len(keys):
        states, judged = _chosen(keys, states, judged)
    missing = _table(map(judge.judged, samples.only_described(distinct)), JUDGED_ARROW)
    return Judged(states=states, judged=pa.concat_tables([judged, missing]), memory=found["memory"])


def _chosen(keys: Sequence[Key], states: pa.Table, judged: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The best row of each share partition, with every state partition that has records of it."""
    rows_of: dict[Key, list[int]] = {}
    for row, key in enumerate(keys):
        rows_of.setdefault(key, []).append(row)
    several = sorted(row for rows in rows_of.values() if len(rows) > 1 for row in rows)
    ranked = dict(zip(several, judged.take(pa.array(several)).to_pylist(), strict=True))
    kept, found_on = [], [[number] for number in judged["state_partition"].to_pylist()]
    for rows in rows_of.values():
        best = rows[0] if len(rows) == 1 else min(rows, key=lambda row: _rank(ranked[row]))
        if len(rows) > 1:
            found_on[best] = sorted({ranked[row]["state_partition"] for row in rows})
        kept.append(best)
    at = judged.column_names.index("found_on")
    judged = judged.set_column(at, JUDGED_ARROW.field("found_on"), pa.array(found_on, JUDGED_ARROW.field(at).type))
    places = pa.array(np.sort(np.array(kept, np.int64)))
    return states.take(places), judged.take(places)


def _rank(row: _Row) -> tuple[bool, bool, int, int]:
    written = row["last_record_timestamp_ms"]
    return row["is_misplaced"], written is None, -(written or 0), row["state_partition"]


def _fields(rows: pa.Table, name: str) -> pa.Table:
    kind = rows.schema.field(name).type
    return pa.Table.from_struct_array(rows[name]) if rows.num_rows else pa.schema(list(kind)).empty_table()


def _table(rows: Iterable[_Row], schema: pa.Schema) -> pa.Table:
    remaining, batches = iter(rows), []
    while taken := list(islice(remaining, _ROWS_AT_ONCE)):
        batches.append(pa.RecordBatch.from_pylist(taken, schema=schema))
    return pa.Table.from_batches(batches, schema=schema)
