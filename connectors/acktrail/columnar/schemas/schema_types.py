"""The types of columns, and a short way to write a schema."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import pyarrow as pa

STRING: Final = pa.string()
BINARY: Final = pa.binary()
BOOL: Final = pa.bool_()
INT8: Final = pa.int8()
INT16: Final = pa.int16()
INT32: Final = pa.int32()
INT64: Final = pa.int64()
INSTANT: Final = pa.timestamp("us", tz="UTC")
"""A UTC instant of acktrail's own clock."""


def schema(*groups: tuple[Any, ...]) -> pa.Schema:
    """A schema of nullable columns; each group is a type and the names of consecutive columns of it.

    >>> schema((STRING, "group_id", "topic_id"), (INT32, "partition")).names
    ['group_id', 'topic_id', 'partition']
    """
    return pa.schema([pa.field(name, kind) for kind, *names in groups for name in names])


def with_dictionaries(columns: pa.Schema, names: Collection[str] | None = None) -> pa.Schema:
    """`columns` with the texts among `names` (None: all texts) as dictionaries: each text once, and a number in every
    row."""
    texts = pa.dictionary(pa.int32(), STRING)
    chosen = [own.name for own in columns if own.type == STRING and (names is None or own.name in names)]
    return pa.schema([own.with_type(texts) if own.name in chosen else own for own in columns])
