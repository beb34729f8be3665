"""What a byte form of state records is: how its bytes become records, and how its records are shown and replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from acktrail.model.records import RecordAt
from acktrail.model.replay import Policy

RecordT = TypeVar("RecordT")
JsonForm = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectReplay:
    """What a log's replay leaves, as JSON: an object a share partition, and one a finding, which is a rule that one
    record broke, in the order of the log. `differences` are the findings about skipped records, which a broker would
    have applied."""

    states: Sequence[JsonForm]
    findings: Sequence[JsonForm] = ()
    differences: Sequence[JsonForm] = ()


Replay = Callable[[Iterable[RecordAt[Any]], Policy], DialectReplay]
"""Replay of records that come in log order within a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect(Generic[RecordT]):
    """One byte layout of records.

    `decode` takes key and value and raises MalformedRecord or UnsupportedRecord; `encode` is its inverse, raises
    ValueError for a field or number that the layout cannot hold, and is None for a draft. Records `in_control_batches`
    of the topic itself are read from files only: on a live cluster types 5 and 6 are KRaft's. A draft has a form of its
    own: `content` is that of a record, which lies on a partition; and rules of its own: `replay`.
    """

    name: str
    decode: Callable[[bytes | None, bytes | None], RecordT]
    encode: Callable[[RecordT], tuple[bytes, bytes | None]] | None = None
    in_control_batches: bool = False
    content: Callable[[RecordT, int], JsonForm] | None = None
    replay: Replay | None = None
