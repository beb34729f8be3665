"""The rules of a log, and broken rules as values: a violation never stops a replay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from acktrail.model.records import RecordAt
from acktrail.model.share_partition import GroupId, SharePartition


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
    UNINITIALISED_HAS_NO_BATCHES = "uninitialised_has_no_batches"
    CHECKPOINT_HAS_START = "checkpoint_has_start"
    CHECKPOINT_EPOCH_STEP = "checkpoint_epoch_step"
    DELTA_EPOCH_MATCHES = "delta_epoch_matches"
    DELTA_HAS_CHECKPOINT = "delta_has_checkpoint"
    DELTA_INDEX_STEP = "delta_index_step"
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


def violations_of(
    record_at: RecordAt[Any], rules: Iterable[Rule], subject: SharePartition | GroupId, detail: str
) -> list[Violation]:
    """That the record breaks each of `rules`."""
    place = {"partition": record_at.partition, "offset": record_at.offset}
    return [Violation(rule=rule, subject=subject, detail=detail, **place) for rule in rules]
