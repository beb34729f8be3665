"""Rules of state batches: of each record's own ones, and of replayed states."""

from __future__ import annotations

from typing import Final

from acktrail.model.rules.quality_rule import QualityRule, QualitySeverity

_BOTH: Final = ("state_records", "share_partition_states")
_COMBINER: Final = "Kafka class PersisterStateBatchCombiner"
_LOAD: Final = "Kafka class SharePartition (maybeInitialize)"
_LOOK_AT_RECORD: Final = (
    "Look at the record with `acktrail record` and at its raw bytes with `acktrail validate --all`. If the bytes have "
    "it too, report it to Kafka with the record; else repair the tables with `acktrail repair`."
)

BATCH_RULES: Final = (
    QualityRule(
        id="batch_first_le_last",
        severity=QualitySeverity.CRITICAL,
        title="No batch ends before it begins",
        meaning="A state batch has a last offset below its first one.",
        why="A broker refuses such a state on load: the share partition fails and delivers nothing.",
        advice="Reset the group past the damage (`acktrail reset plan`) and report it to Kafka with the record.",
        sources=("KIP-932", _LOAD),
        tables=_BOTH,
        suites=_BOTH,
    ),
    QualityRule(
        id="batches_ascending",
        severity=QualitySeverity.CRITICAL,
        title="The batches of a record ascend",
        meaning="A batch begins below the batch before it.",
        why="A broker writes them in order; in another order replays and counts are wrong.",
        advice=_LOOK_AT_RECORD,
        sources=("KIP-932", _COMBINER),
        tables=_BOTH,
        suites=_BOTH,
    ),
    QualityRule(
        id="batches_non_overlapping",
        severity=QualitySeverity.CRITICAL,
        title="No two batches share an offset",
        meaning="One offset has two delivery states at once.",
        why="Which of them counts is not defined: a finished record may be delivered again, or an unfinished one "
        "never.",
        advice=_LOOK_AT_RECORD,
        sources=("KIP-932", _COMBINER, "KAFKA-19954"),
        tables=_BOTH,
        suites=_BOTH,
    ),
    QualityRule(
        id="batches_not_below_start",
        severity=QualitySeverity.CRITICAL,
        title="No batch begins below the start offset",
        meaning="A batch has offsets that the group has passed.",
        why="A broker refuses such a state on load: the share partition fails and delivers nothing.",
        advice="Reset the group past the damage (`acktrail reset plan`) and report it to Kafka with the record.",
        sources=("KIP-932", _LOAD),
        tables=_BOTH,
        suites=_BOTH,
    ),
    QualityRule(
        id="delivery_state_allowed",
        also=("state_is_durable",),
        severity=QualitySeverity.CRITICAL,
        title="Delivery states are ones that the release persists",
        meaning="A batch is in a delivery state that no broker of this release writes: acquired (1) never is, "
        "archiving (3) only from Kafka 4.4 on.",
        why="A broker cannot load it, and the counts by state leave it out.",
        advice="Check that the brokers' release is the one you expect, then look at the record with `acktrail record`.",
        sources=("KIP-932", "KIP-1191", "KAFKA-20672", "Kafka class RecordState"),
        tables=_BOTH,
        suites=_BOTH,
    ),
    QualityRule(
        id="delivery_count_possible",
        also=("delivery_count_range",),
        severity=QualitySeverity.ERROR,
        title="Delivery counts are between 0 and 25",
        meaning="A batch has a delivery count that no configuration of a broker allows.",
        why="The count is wrong, the delivery states beside it need not be.",
        advice=_LOOK_AT_RECORD,
        sources=("KIP-932", "Kafka class GroupCoordinatorConfig"),
        tables=_BOTH,
        suites=_BOTH,
    ),
    QualityRule(
        id="delivery_count_within_limit",
        severity=QualitySeverity.WARNING,
        title="Delivery counts stay within the limit of the group",
        meaning="A record was delivered more often than `share.delivery.count.limit` of its group allows. Where the "
        "limit is not known, the broker's default of 5 counts.",
        why="Legal right after the limit was lowered: the count stays in the state.",
        advice="Compare with the time of the last change of the group's configuration; else check the brokers' limit.",
        sources=("KIP-932", "KIP-1240"),
        tables=_BOTH,
        suites=_BOTH,
    ),
    QualityRule(
        id="acknowledged_count_ge_1",
        severity=QualitySeverity.WARNING,
        title="What is acknowledged was delivered",
        meaning="An acknowledged batch has a delivery count of 0. Archived batches may have it: the log start went "
        "past them.",
        why="The record is finished all the same; only its count is wrong.",
        advice=_LOOK_AT_RECORD,
        sources=("KIP-932", "Kafka class SharePartition"),
        tables=_BOTH,
        suites=_BOTH,
    ),
    QualityRule(
        id="available_count_lt_limit",
        severity=QualitySeverity.WARNING,
        title="What may be delivered again is below the limit",
        meaning="An available batch has as high a delivery count as the limit of its group, where the broker archives "
        "a record instead of releasing it.",
        why="Legal right after the limit was lowered. Else the record is delivered once more than it should be.",
        advice="Compare with the time of the last change of `share.delivery.count.limit`; else watch whether the "
        "record is archived after its next delivery.",
        sources=("KIP-932", "KIP-1240", "Kafka class SharePartition"),
        tables=_BOTH,
        suites=_BOTH,
    ),
    QualityRule(
        id="mergeable_neighbours",
        severity=QualitySeverity.INFO,
        title="Neighbouring batches differ",
        meaning="Two batches without a gap between them have the same delivery state and the same delivery count: one "
        "would do.",
        why="It means the same. Drafts write it; the brokers' combiner makes one batch of them.",
        advice="Nothing to do. From a released broker it is a sign of another writer.",
        sources=(_COMBINER,),
        tables=_BOTH,
        suites=_BOTH,
    ),
    QualityRule(
        id="uninitialized_without_batches",
        also=("uninitialised_has_no_batches",),
        severity=QualitySeverity.ERROR,
        title="A share partition without a start offset has no batches",
        meaning="There are batches, but no start offset: deliveries before the group began.",
        why="A broker chooses a start offset on the next load, whichever the batches are.",
        advice="Set the start offset with `acktrail reset plan` before the group is used again.",
        sources=("KIP-932", "Kafka class ShareCoordinatorShard"),
        tables=_BOTH,
        suites=_BOTH,
    ),
    QualityRule(
        id="delivery_complete_count_covers",
        severity=QualitySeverity.WARNING,
        title="The delivery complete count covers the finished batches",
        meaning="The recorded count of finished records is lower than the batches show.",
        why="Only the lag that brokers report is too high by the difference.",
        advice="Trust the lag of `acktrail reconcile` for this share partition; the next snapshot usually corrects it.",
        sources=("KIP-1226", "Kafka commit 2225a16c7e (pull request 23112)"),
        since="Kafka 4.2",
        tables=_BOTH,
        suites=_BOTH,
    ),
)
"""In the order of the suites."""
