"""Dialects: the byte forms of state records by name, and which one the records of a copied log are of.

Every release writes value version 0, so only the bytes distinguish them (``detect_layout``). A layout reads a value
when it uses every byte and each field holds what a broker can write. Drafts are not candidates: no cluster ever wrote
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from acktrail.errors import ConfigurationError, InputError, MalformedRecord
from acktrail.format.wire import state_record
from acktrail.format.wire.primitives import UINT16, absent_if_none, batches_form
from acktrail.format.wire.state_record import Layout, decode, encode
from acktrail.model.batches import DURABLE_STATES, DeliveryState
from acktrail.model.records import RecordAt, ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.share_partition import SharePartition

_LATEST_MS: Final = 4_102_444_800_000
"""The year 2100: a later number is not a write time."""
_HINT: Final = "name the dialect that the brokers' release writes: 4.0, or 4.2 for 4.1 and later"
DOCUMENTED_STATES: Final = frozenset({DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})
"""The states that the founding documents let a record have at rest; Kafka 4.3 and later add archiving."""
RecordT = TypeVar("RecordT")
JsonForm = dict[str, object]


class Policy(StrEnum):
    """Which records change the state."""

    BROKER = "broker"
    """Those that change it on a running broker: no epoch drops one, an update without a snapshot becomes the state."""
    STRICT = "strict"
    """Those of the founding documents: an update counts only after the snapshot whose epoch it names."""


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
    of the topic itself are read from files only: on a live cluster types 5 and 6 are KRaft's. `durable_states`
    are those that its writers let a record have at rest. A draft has a form of its own: `content` is that of a record,
    which lies on a partition; and rules of its own: `replay`.
    """

    name: str
    decode: Callable[[bytes | None, bytes | None], RecordT]
    encode: Callable[[RecordT], tuple[bytes, bytes | None]] | None = None
    in_control_batches: bool = False
    durable_states: frozenset[DeliveryState] = DOCUMENTED_STATES
    content: Callable[[RecordT, int], JsonForm] | None = None
    replay: Replay | None = None


def _dialect(layout: Layout, durable_states: frozenset[DeliveryState] = DOCUMENTED_STATES) -> Dialect[StateRecord]:
    reader, writer = partial(decode, layout=layout), partial(encode, layout=layout)
    return Dialect(name=layout.release, decode=reader, encode=writer, durable_states=durable_states)


KAFKA_4_0: Final = _dialect(Layout(release="4.0", epoch=UINT16, has_times=False, has_count=False))
KAFKA_4_1: Final = _dialect(Layout(release="4.1", has_count=False))
"""A 4.2 record loses its count here. 4.2 reads 4.1 records the same way; use this one only to see what a 4.1 broker
reads."""
KAFKA_4_2: Final = _dialect(state_record.KAFKA_4_2, DURABLE_STATES)
"""Kafka 4.3 and later write these bytes, too, and the state archiving."""
RELEASED: Final[Mapping[str, Dialect[StateRecord]]] = MappingProxyType(
    {"4.0": KAFKA_4_0, "4.1": KAFKA_4_1, "4.2": KAFKA_4_2, "4.3": KAFKA_4_2, "4.4": KAFKA_4_2}
)
"""By the number of a release: the dialect that it writes."""
CANDIDATES: Final = (KAFKA_4_0, KAFKA_4_2)
"""4.2 also covers 4.1: it reads 4.1 records the same way, and keeps the count of later records."""


def detect_layout(sample: Iterable[tuple[bytes | None, bytes | None]]) -> Dialect[StateRecord]:
    """The dialect that all records of `sample`, as (key, value), agree on. Tombstones, other record types and records
    that both dialects or none can read decide nothing; where no dialect reads any, it is 4.2's. Raises
    ConfigurationError: they do not agree, or both dialects read all that one of them reads."""
    pairs = ((key, value) for key, value in sample if key is not None and value is not None)
    readers = [tuple(each for each in CANDIDATES if reads(each, *pair)) for pair in pairs]
    alone = {each[0].name: each[0] for each in readers if len(each) == 1}
    if len(alone) == 1 or not any(readers):
        return next(iter(alone.values()), KAFKA_4_2)
    fault = f"the records are of two dialects, {' and '.join(sorted(alone))}" if alone else "the dialect is ambiguous"
    raise ConfigurationError(fault, hint=_HINT)


def reads(dialect: Dialect[StateRecord], key: bytes, value: bytes) -> bool:
    """Whether `value` is exactly one record of `dialect`, with fields that a broker writes."""
    try:
        record = dialect.decode(key, value)
    except InputError:
        return False
    return not isinstance(record, Tombstone) and _is_exact(dialect, key, value, record) and _is_sane(record)


def _is_exact(dialect: Dialect[StateRecord], key: bytes, value: bytes, record: StateRecord) -> bool:
    """Whether no byte is left over. No release adds tagged fields to 4.0, so there the encoded bytes must be equal."""
    if dialect is KAFKA_4_0 and dialect.encode is not None:
        return dialect.encode(record)[1] == value
    try:
        dialect.decode(key, value[:-1])
    except MalformedRecord:
        return True
    return False


def _is_sane(record: ShareSnapshot | ShareUpdate) -> bool:
    numbers = [record.snapshot_epoch, record.leader_epoch or 0]
    if isinstance(record, ShareSnapshot):
        times = (record.create_timestamp_ms or 0, record.write_timestamp_ms or 0)
        if max(times) >= _LATEST_MS:
            return False
        numbers += [record.state_epoch, *times]
    return min(numbers) >= 0 and all(
        0 <= batch.first_offset <= batch.last_offset and batch.delivery_state >= 0 and batch.delivery_count >= 0
        for batch in record.batches
    )


def key_form(share_partition: SharePartition) -> dict[str, object]:
    """In JSON: group, topic id and partition."""
    return {
        "group": share_partition.group_id,
        "topic_id": share_partition.topic_id,
        "partition": share_partition.partition,
    }


def state_json(state: Any, subject: JsonForm | None = None) -> JsonForm:
    """The replayed state of one share partition, or of `subject`. -1 is a number that the state does not know or its
    dialect does not have; a state epoch is not known where only updates were seen."""
    names = ("state_epoch", "snapshot_epoch", "leader_epoch", "start_offset", "first_unfinished_offset", "end_offset")
    return {
        **(key_form(state.key) if subject is None else subject),
        **{name: absent_if_none(getattr(state, name, None)) for name in names},
        "delivery_complete_count": getattr(state, "delivery_complete_count", None),
        "batches": batches_form(state.batches),
    }
