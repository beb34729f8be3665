"""The rules of a log, the policies of replay, and broken rules as values: a violation never stops a replay."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from acktrail.model.share_partition import GroupId, SharePartition


class Policy(StrEnum):
    """Which records change the state."""

    BROKER = "broker"
    """Those that change it on a running broker: no epoch drops one, an update without a snapshot becomes the state."""
    STRICT = "strict"
    """Those of the founding documents: an update counts only after the snapshot whose epoch it names."""


class RuleSeverity(StrEnum):
    """How bad the breach of a rule is."""

    CRITICAL = "critical"
    ERROR = "error"
    WARN = "warn"
    INFO = "info"


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

_CRITICAL: Final = frozenset(
    {
        Rule.BATCH_FIRST_LE_LAST,
        Rule.BATCHES_ASCENDING,
        Rule.BATCHES_NON_OVERLAPPING,
        Rule.BATCH_WITHIN_WINDOW,
        Rule.START_LE_END,
        Rule.STATE_IS_DURABLE,
        Rule.CHAIN_UNBROKEN,
        Rule.NO_MISSING_AT_OR_ABOVE_CHECKPOINT,
        Rule.ONE_STATE_PARTITION_PER_KEY,
    }
)
_WARN: Final = frozenset(
    {Rule.ACKNOWLEDGED_COUNT_GE_1, Rule.DELTA_HAS_CHECKPOINT, Rule.DELETION_ORDER, Rule.DELETION_COMPLETE}
)


def severity_of(rule: Rule) -> RuleSeverity:
    """The severity of a breach of `rule`."""
    return RuleSeverity.CRITICAL if rule in _CRITICAL else RuleSeverity.WARN if rule in _WARN else RuleSeverity.ERROR


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
