"""Messages as librdkafka hands them over, as Arrow, in runs of one partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from acktrail.columnar.schemas.table_schemas import RAW_RECORDS

__all__ = ["newest_epochs", "partition_runs", "raw_records"]

_instant = itemgetter(1)
_SHORT_RUN: Final = 256
"""Runs shorter than this on average are gathered: each run costs about as much as some hundred rows."""


def raw_records(messages: Sequence[Any]) -> pa.Table:
    """Messages without errors as columns of ``RAW_RECORDS``, those of a partition in the order they came.

    Partitions come in long runs (see `partition_runs`): a broker sends them so, and where it does not, all records of
    a partition are put together.

    Cost: five calls a message and one copy of its bytes; another copy when partitions come interleaved.
    """
    count = len(messages)
    partitions = np.fromiter(map(Message.partition, messages), np.int32, count)
    offsets = np.fromiter(map(Message.offset, messages), np.int64, count)
    timestamps = np.fromiter(map(_instant, map(Message.timestamp, messages)), np.int64, count)
    keys = _binary(list(map(Message.key, messages)))
    values = _binary(list(map(Message.value, messages)))
    columns = [pa.array(partitions), pa.array(offsets), pa.array(timestamps), keys, values]
    rows = pa.Table.from_arrays(columns, schema=RAW_RECORDS)
    runs = np.count_nonzero(np.diff(partitions)) + 1
    return rows if runs * _SHORT_RUN <= count else rows.take(pa.array(np.argsort(partitions, kind="stable")))


def newest_epochs(messages: Sequence[Any], rows: pa.Table) -> dict[int, int]:
    """The leader epoch of the newest record of each partition, out of the `messages` that ``raw_records`` made `rows`
    of. Epochs never go back in a log. A message without one (record format 1) is left out."""
    if rows.column("offset")[-1].as_py() != messages[-1].offset():  # gathered by partition: the order is another one
        found = {message.partition(): message for message in messages}
        return {number: epoch for number, m in found.items() if (epoch := m.leader_epoch()) is not None}
    partitions = rows.column("partition").to_numpy()
    ends = [*np.flatnonzero(np.diff(partitions)).tolist(), len(messages) - 1]
    epochs = ((int(partitions[at]), messages[at].leader_epoch()) for at in ends)
    return {number: epoch for number, epoch in epochs if epoch is not None}


def _binary(texts: list[bytes | None]) -> pa.Array:
    """As ``pa.array``; a join is quicker where no value is null."""
    try:
        joined = b"".join(texts)  # type: ignore[arg-type]  # a null is the TypeError
    except TypeError:
        return pa.array(texts, pa.binary())
    ends = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, texts), np.int32, len(texts)), out=ends[1:])  # type: ignore[arg-type]  # none is null
    return pa.Array.from_buffers(pa.binary(), len(texts), [None, pa.py_buffer(ends), pa.py_buffer(joined)])


def partition_runs(rows: pa.Table, column: str) -> Iterator[tuple[int, pa.Table]]:
    """Each run of rows with the same partition in `column`, in their order."""
    partitions = rows.column(column).to_numpy()
    bounds = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    for start, end in pairwise(bounds):
        if end > start:
            yield int(partitions[start]), rows.slice(start, end - start)
