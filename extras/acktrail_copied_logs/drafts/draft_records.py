"""Records of the drafted generations, as values.

Generations ii and i are control records among the user's data and know no topic: the topic partition they lie on is
theirs. Generation iii and iv are records of the state topic. None of them was ever written by a released broker. The
state after some records is the complete record that could stand for them.

As JSON they have the names of the shipped ones where the meaning is equal. Fields that a generation does not have are
-1 for an epoch and null for the delivery complete count; the topic id of a control record is null, since it names only
its group and is stored on the topic partition itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, Generic, TypeVar

from acktrail.format.wire.primitives import absent_if_none, batches_form
from acktrail.model.batches import (
    HIGHEST_DELIVERY_COUNT,
    DeliveryState,
    StateBatch,
    cover,
    end_offset,
    first_unfinished_offset,
    prune_state_batches,
)
from acktrail.model.records import RecordAt, Tombstone
from acktrail.model.rules.catalogue import rule_catalogue
from acktrail.model.share_partition import GroupId, SharePartition
from acktrail_copied_logs.dialects import DOCUMENTED_STATES, JsonForm, key_form, state_json

KeyT = TypeVar("KeyT")
StateT = TypeVar("StateT")
_NUMBERS: Final = ("delta_index", "checkpoint_epoch", "snapshot_epoch", "state_epoch", "start_offset", "end_offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlCheckpoint:
    """Generations ii and i: the complete state of one group (``SHARE_CHECKPOINT``, control type 5).

    `end_offset` is the recorded one: one past the last offset fetched.
    """

    group_id: GroupId
    checkpoint_epoch: int
    start_offset: int
    end_offset: int
    batches: tuple[StateBatch, ...]

    @property
    def first_unfinished_offset(self) -> int | None:
        """Where delivery continues."""
        return first_unfinished_offset(self.start_offset, self.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlDelta:
    """Generations ii and i: what changed (``SHARE_DELTA``, control type 6). It carries no start offset.

    `back_offset` is where the group's preceding control record lies (generation ii); None in generation i.
    """

    group_id: GroupId
    checkpoint_epoch: int
    back_offset: int | None
    batches: tuple[StateBatch, ...]


ControlRecord = ControlCheckpoint | ControlDelta


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfSharePartition:
    """`start_offset` None: not initialised, or unchanged."""

    key: SharePartition
    start_offset: int | None
    batches: tuple[StateBatch, ...]

    @property
    def first_unfinished_offset(self) -> int | None:
        """Where delivery continues."""
        return first_unfinished_offset(self.start_offset, self.batches)

    @property
    def end_offset(self) -> int | None:
        """A lower bound, since these records have no end offset."""
        return end_offset(self.start_offset, self.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(_OfSharePartition):
    """Generation iii: the complete state of a share partition (``ShareCheckpoint``)."""

    checkpoint_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta(_OfSharePartition):
    """Generation iii: what changed since the checkpoint of that epoch (``ShareDelta``).

    `delta_index` (0 to 255) is part of the key and only keeps the keys apart under compaction.
    """

    delta_index: int
    checkpoint_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaTombstone:
    """Generation iii: one delta key of a share partition that left."""

    key: SharePartition
    delta_index: int


CheckpointRecord = Checkpoint | Delta | Tombstone | DeltaTombstone
"""A `Tombstone` stands for the checkpoint: the share partition left its group. It comes before those of the deltas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSnapshot(_OfSharePartition):
    """Generation iv: the complete state (``ShareSnapshot`` before Kafka 4.0).

    `state_epoch` None: the record was written by the JSON schema of the document, which has none.
    """

    state_epoch: int | None
    snapshot_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftUpdate(_OfSharePartition):
    """Generation iv: what changed since the snapshot of that epoch (``ShareUpdate`` before Kafka 4.0)."""

    state_epoch: int | None
    snapshot_epoch: int


DraftRecord = DraftSnapshot | DraftUpdate | Tombstone


def overlay_state_batches(
    so_far: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int | None
) -> tuple[StateBatch, ...]:
    """As ``acktrail.model.batches.combine_state_batches``, but the last writer wins at every offset.

    So the founding documents read.
    """
    batches = prune_state_batches((*so_far, *new), start_offset)
    return cover(batches, range(0, -len(batches), -1))


def window_violations(
    start_offset: int | None,
    end_offset: int | None,
    batches: Sequence[StateBatch],
    durable_states: frozenset[DeliveryState] = DOCUMENTED_STATES,
) -> tuple[Rule, ...]:
    """The rules that a window breaks, each once, in a fixed order. An unknown end bounds nothing."""
    broken = set(batch_violations(batches, durable_states))
    if start_offset is None:
        if batches:
            broken.add(Rule.UNINITIALISED_HAS_NO_BATCHES)
    else:
        end = math.inf if end_offset is None else end_offset
        if start_offset > end:
            broken.add(Rule.START_LE_END)
        if any(batch.first_offset < start_offset or batch.last_offset >= end for batch in batches):
            broken.add(Rule.BATCH_WITHIN_WINDOW)
    return tuple(rule for rule in Rule if rule in broken)


def batch_violations(
    batches: Sequence[StateBatch], durable_states: frozenset[DeliveryState] = DOCUMENTED_STATES
) -> tuple[Rule, ...]:
    """The rules that batches break in any window; each once, in a fixed order.

    The rule of KIP-932 for batches in ShareFetch and ShareAcknowledge, strict: one shared offset is an overlap.
    """
    broken = {
        Rule.BATCHES_ASCENDING if other.last_offset < one.first_offset else Rule.BATCHES_NON_OVERLAPPING
        for one, other in pairwise(batches)
        if other.first_offset <= one.last_offset
    }
    for batch in batches:
        if batch.first_offset > batch.last_offset:
            broken.add(Rule.BATCH_FIRST_LE_LAST)
        if batch.delivery_state not in durable_states:
            broken.add(Rule.STATE_IS_DURABLE)
        if not 0 <= batch.delivery_count <= HIGHEST_DELIVERY_COUNT:
            broken.add(Rule.DELIVERY_COUNT_RANGE)
        elif batch.delivery_state == DeliveryState.ACKNOWLEDGED and batch.delivery_count == 0:
            broken.add(Rule.ACKNOWLEDGED_COUNT_GE_1)
    return tuple(rule for rule in Rule if rule in broken)


def undoes_delivery(so_far: Sequence[StateBatch], new: Sequence[StateBatch]) -> bool:
    """Whether `new` takes an offset out of a terminal state that it has in `so_far`. Its acknowledgement is lost."""
    undone = [batch for batch in new if not batch.is_terminal]
    return any(
        one.is_terminal and max(one.first_offset, other.first_offset) <= min(one.last_offset, other.last_offset)
        for one in so_far
        for other in undone
    )


class Rule(StrEnum):
    """What must be true of records and states, by the founding documents or by Kafka's source."""

    BATCH_FIRST_LE_LAST = "batch_first_le_last"
    BATCHES_ASCENDING = "batches_ascending"
    BATCHES_NON_OVERLAPPING = "batches_non_overlapping"
    BATCH_WITHIN_WINDOW = "batch_within_window"
    START_LE_END = "start_le_end"
    STATE_IS_DURABLE = "state_is_durable"
    DELIVERY_COUNT_RANGE = "delivery_count_range"
    ACKNOWLEDGED_COUNT_GE_1 = "acknowledged_count_ge_1"
    DELIVERY_NOT_UNDONE = "delivery_not_undone"
    UNINITIALISED_HAS_NO_BATCHES = "uninitialised_has_no_batches"
    CHECKPOINT_HAS_START = "checkpoint_has_start"
    CHECKPOINT_EPOCH_STEP = "checkpoint_epoch_step"
    DELTA_EPOCH_MATCHES = "delta_epoch_matches"
    DELTA_HAS_CHECKPOINT = "delta_has_checkpoint"
    DELTA_INDEX_STEP = "delta_index_step"
    DELTA_INDEX_NOT_RESET = "delta_index_not_reset"
    DELTA_INDEX_NOT_REUSED = "delta_index_not_reused"
    CHAIN_UNBROKEN = "chain_unbroken"
    NO_MISSING_AT_OR_ABOVE_CHECKPOINT = "no_missing_at_or_above_checkpoint"
    DELETION_ORDER = "deletion_order"
    DELETION_COMPLETE = "deletion_complete"
    ONE_STATE_PARTITION_PER_KEY = "one_state_partition_per_key"
    SNAPSHOT_EPOCH_STEP = "snapshot_epoch_step"
    UPDATE_EPOCH_MATCHES = "update_epoch_matches"
    UPDATE_HAS_SNAPSHOT = "update_has_snapshot"
    STATE_EPOCH_MONOTONIC = "state_epoch_monotonic"
    LEADER_EPOCH_MONOTONIC = "leader_epoch_monotonic"
    START_MONOTONIC_WITHIN_STATE_EPOCH = "start_monotonic_within_state_epoch"


DIFFERING_RULES: Final = frozenset({Rule.UPDATE_EPOCH_MATCHES, Rule.UPDATE_HAS_SNAPSHOT})
"""Rules that decide about a state: policy ``strict`` skips a record that breaks one, policy ``broker`` applies it."""


SKIPPED_BY_RULES: Final = DIFFERING_RULES | {Rule.DELTA_EPOCH_MATCHES, Rule.DELTA_HAS_CHECKPOINT, Rule.CHAIN_UNBROKEN}
"""Rules whose breach keeps a record out of the state, by policy ``strict`` or by the rules of a draft."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One rule that one record broke.

    `subject` is the share partition, or the group where the topic partition is that of the log. `partition` and
    `offset` are the address of the record that shows it. `detail` is one line for a person.
    """

    rule: Rule
    subject: SharePartition | GroupId
    partition: int
    offset: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictReplay(Generic[KeyT, StateT]):
    """The state of every share partition, or of every group; and all violations in the order of the records."""

    states: Mapping[KeyT, StateT]
    violations: tuple[Violation, ...]


def violations_of(
    record_at: RecordAt[Any], rules: Iterable[Rule], subject: SharePartition | GroupId, detail: str
) -> list[Violation]:
    """That the record breaks each of `rules`."""
    place = {"partition": record_at.partition, "offset": record_at.offset}
    return [Violation(rule=rule, subject=subject, detail=detail, **place) for rule in rules]


_KINDS: Final[dict[type, str]] = {
    ControlCheckpoint: "checkpoint",
    ControlDelta: "delta",
    Checkpoint: "checkpoint",
    Delta: "delta",
    DeltaTombstone: "delta_tombstone",
    DraftSnapshot: "snapshot",
    DraftUpdate: "update",
    Tombstone: "tombstone",
}


def draft_content(record: Any, partition: int) -> JsonForm:
    """The content of a drafted record, which lies on `partition` of its log."""
    form = {"type": _KINDS[type(record)], **_subject(record, partition)}
    form |= {name: absent_if_none(getattr(record, name)) for name in _NUMBERS if name in record.__dataclass_fields__}
    if getattr(record, "back_offset", None) is not None:
        form["back_offset"] = record.back_offset
    return {**form, "batches": batches_form(record.batches)} if hasattr(record, "batches") else form


def draft_state_json(state: Any, partition: int | None = None) -> JsonForm:
    """A state, in the form of ``state_json``; `snapshot_epoch` is the checkpoint epoch of generations i to iii.

    `partition`: that of the log, for a state of generations i and ii.
    """
    form = state_json(state, _subject(state, partition))
    return form | {"snapshot_epoch": getattr(state, "checkpoint_epoch", form["snapshot_epoch"])}


def finding_json(finding: Violation) -> JsonForm:
    """One rule that one record broke. `changes_state`: only policy ``broker`` applies the record."""
    subject = finding.subject
    of_group: JsonForm = {"group": subject, "topic_id": None, "partition": finding.partition}
    return {
        "rule": finding.rule.value,
        "severity": rule_catalogue().by_id[finding.rule].severity.value,
        "changes_state": finding.rule in SKIPPED_BY_RULES,
        **(key_form(subject) if isinstance(subject, SharePartition) else of_group),
        "state_partition": finding.partition,
        "offset": finding.offset,
        "detail": finding.detail,
    }


def _subject(record: Any, partition: int | None) -> JsonForm:
    if isinstance(record, ControlCheckpoint | ControlDelta):
        return {"group": record.group_id, "topic_id": None, "partition": partition}
    return key_form(record.key)
