"""The changes that workers made of new records, as parcels and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from acktrail.columnar.change_rows import CHANGE_COLUMNS
from acktrail.columnar.held_rows import HELD_COLUMNS
from acktrail.history.history_step import Grown
from acktrail.workers.worker_results import opened, parcel, parcels_of

__all__ = ["Collected", "packed", "unpacked"]

_SCHEMAS: Final = {"changes": CHANGE_COLUMNS, "held": HELD_COLUMNS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What the workers did, put together; `ends` by state partition."""

    changes: pa.Table
    held: pa.Table
    records: int
    ends: dict[int, int]


def packed(state_partition: int, grown: Grown) -> Iterator[pa.RecordBatch]:
    """The parcels of one stretch."""
    for kind, number in (("records", grown.records), ("end", grown.end)):
        yield parcel(state_partition, kind, number, None)
    for kind, rows in (("changes", grown.changes), ("held", grown.held)):
        yield from parcels_of(kind, rows, state_partition)


def unpacked(parcels: Iterable[pa.RecordBatch]) -> Collected:
    """What all `parcels` say."""
    tables: dict[str, list[pa.Table]] = {kind: [schema.empty_table()] for kind, schema in _SCHEMAS.items()}
    numbers: dict[str, dict[int, int]] = {"records": {}, "end": {}}
    for batch in parcels:
        for row in batch.to_pylist():
            if row["kind"] in tables:
                tables[row["kind"]].append(opened(row["payload"]))
            else:
                numbers[row["kind"]][row["state_partition"]] = row["number"]
    return Collected(
        changes=pa.concat_tables(tables["changes"]),
        held=pa.concat_tables(tables["held"]),
        records=sum(numbers["records"].values()),
        ends=numbers["end"],
    )
