"""Arrow tables through Spark as opaque bytes: the JVM carries them and looks at no row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa

__all__ = ["PARCELS_ARROW", "collected", "opened", "parcel", "parcels_of", "sealed"]

PARCELS_ARROW: Final = pa.schema(
    [
        pa.field("state_partition", pa.int32()),
        pa.field("kind", pa.string()),
        pa.field("number", pa.int64()),
        pa.field("payload", pa.binary()),
    ]
)
"""`kind` and what comes with it: ``changes`` or ``held``, rows as an Arrow stream; ``records``, how many were applied;
``end``, the offset after the last one. ``judged`` and ``memory``, rows of a reconciliation, are of no one state
partition."""

_ROWS_AT_ONCE: Final = 65_536
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="zstd")


def sealed(rows: pa.Table) -> Iterator[bytes]:
    """`rows` as bytes, a limited number of rows at a time; none for none."""
    for first in range(0, rows.num_rows, _ROWS_AT_ONCE):
        yield _bytes(rows.slice(first, _ROWS_AT_ONCE))


def opened(payload: bytes) -> pa.Table:
    """The rows in one of the pieces that ``sealed`` made."""
    return pa.ipc.open_stream(payload).read_all()


def parcels_of(kind: str, rows: pa.Table, state_partition: int | None = None) -> Iterator[pa.RecordBatch]:
    """`rows` as parcels of one kind."""
    for payload in sealed(rows):
        yield parcel(state_partition, kind, None, payload)


def collected(parcels: Iterable[pa.RecordBatch], schemas: Mapping[str, pa.Schema]) -> dict[str, pa.Table]:
    """The rows in all `parcels` by kind, in the order in which they come; `schemas`: what each kind has."""
    pieces: dict[str, list[pa.Table]] = {kind: [schema.empty_table()] for kind, schema in schemas.items()}
    for batch in parcels:
        for kind, payload in zip(batch.column("kind").to_pylist(), batch.column("payload").to_pylist(), strict=True):
            pieces[kind].append(opened(payload))
    return {kind: pa.concat_tables(tables) for kind, tables in pieces.items()}


def parcel(state_partition: int | None, kind: str, number: int | None, payload: bytes | None) -> pa.RecordBatch:
    """One row of ``PARCELS_ARROW``."""
    row = {"state_partition": state_partition, "kind": kind, "number": number, "payload": payload}
    return pa.RecordBatch.from_pylist([row], schema=PARCELS_ARROW)


def _bytes(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()
