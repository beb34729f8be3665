"""A source task whose rows pass through transforms; what they refuse becomes dead letters, where that is tolerated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from acktrail.connect.contract import Gauge, SourceTask, SourceTaskContext
from acktrail.connect.dead_letters import dead_letters
from acktrail.connect.runtime.connector_config import ErrorPolicy
from acktrail.connect.source_batches import Position, RowCounts, SourceBatch, SourcePartition
from acktrail.connect.transforms import Transform
from acktrail.errors import AcktrailError


class TransformedSource(SourceTask):
    """Applies a chain of transforms to every batch of `source`."""

    def __init__(self, source: SourceTask, chain: Sequence[Transform], errors: ErrorPolicy) -> None:
        self._source, self._chain, self._errors = source, chain, errors

    def start(self, context: SourceTaskContext) -> None:
        self._source.start(context)

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        """The source's batches, changed. Raises what a transform raises, unless refusals are tolerated."""
        return [self._changed(batch) for batch in self._source.poll(timeout_s)]

    def stop(self) -> None:
        self._source.stop()

    def commit(self, positions: Mapping[SourcePartition, Position]) -> None:
        self._source.commit(positions)

    def gauges(self) -> Sequence[Gauge]:
        return self._source.gauges()

    @property
    def is_finished(self) -> bool:
        return self._source.is_finished

    @property
    def partitions(self) -> tuple[int, int]:
        return self._source.partitions

    def _changed(self, batch: SourceBatch) -> SourceBatch:
        changed: dict[str, list[pa.Table]] = {}
        counts = batch.row_counts
        for table, rows in batch.rows.items():
            try:
                name, kept = self._applied(table, rows)
                counts += RowCounts(filtered=rows.num_rows - kept.num_rows)
            except (AcktrailError, pa.ArrowException, ValueError, TypeError, KeyError) as error:
                if not self._errors.tolerates_refusals:
                    raise
                name, kept = self._errors.dead_letter_table, dead_letters(batch, table, rows, str(error))
                counts += RowCounts(dead=rows.num_rows)
            changed.setdefault(name, []).append(kept)
        rows = {name: parts[0] if len(parts) == 1 else pa.concat_tables(parts) for name, parts in changed.items()}
        return replace(batch, rows=rows, counts=counts)

    def _applied(self, table: str, rows: pa.Table) -> tuple[str, pa.Table]:
        for transform in self._chain:
            table, rows = transform.apply(table, rows)
        return table, rows
