"""Messages as librdkafka hands them over, as Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from acktrail.columnar.schemas import RAW_RECORDS

__all__ = ["raw_records"]


def raw_records(messages: Sequence[Any]) -> pa.Table:
    """Messages without errors, in the same order, with the columns of ``RAW_RECORDS``."""
    columns = [
        [message.partition() for message in messages],
        [message.offset() for message in messages],
        [message.timestamp()[1] for message in messages],
        [message.key() for message in messages],
        [message.value() for message in messages],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, RAW_RECORDS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=RAW_RECORDS)
