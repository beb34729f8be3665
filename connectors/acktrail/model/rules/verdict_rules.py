"""Rules that a verdict other than a match breaks: what a share group's brokers and its stored state disagree on."""

from __future__ import annotations

from typing import Final

from acktrail.model.reconciliation import Verdict
from acktrail.model.rules.quality_rule import QualityRule, QualitySeverity

_VERDICTS: Final = ("reconciliations",)
_DESCRIBE: Final = "Kafka API DescribeShareGroupOffsets (KIP-1043, KIP-1226)"


def expectation_of(verdict: Verdict) -> str:
    """The id that the gate's expectation has for the rule that `verdict` breaks."""
    return f"no_{verdict.value}"


VERDICT_RULES: Final = (
    QualityRule(
        id="durable_ahead",
        also=("no_durable_ahead",),
        severity=QualitySeverity.CRITICAL,
        title="The stored state is not ahead of the brokers",
        meaning="The replayed state is further than what the brokers describe: they lost records, or never loaded "
        "them.",
        why="A reset or a migration to the stored start offset would skip records that the group has not finished.",
        advice="Do not reset to stored offsets. Look for an unclean leader election or a lost disk of "
        "`__share_group_state`, then export again.",
        sources=(_DESCRIBE, "Kafka class ShareCoordinatorShard"),
        tables=_VERDICTS,
        suites=_VERDICTS,
    ),
    QualityRule(
        id="past_log_end",
        also=("no_past_log_end",),
        severity=QualitySeverity.CRITICAL,
        title="No share partition is past its log",
        meaning="The start offset or a batch is beyond the log end: a reset beyond the end, or a truncated or "
        "replaced log.",
        why="Records that come up to there are never delivered.",
        advice="Find out whether the topic was made again or truncated, then reset the group to an offset in its log "
        "(`acktrail reset plan`).",
        sources=("KIP-932", "Kafka class SharePartition"),
        tables=_VERDICTS,
        suites=_VERDICTS,
    ),
    QualityRule(
        id="live_ahead",
        also=("no_live_ahead",),
        severity=QualitySeverity.ERROR,
        title="The brokers are not ahead of the stored state",
        meaning="The brokers have more than the replayed state: records of the state topic are missing here.",
        why="Acting on the stored state delivers records again, which share groups allow for; it loses none.",
        advice="Export again and reconcile. If it stays, `acktrail verify` shows which records are missing.",
        sources=(_DESCRIBE,),
        tables=_VERDICTS,
        suites=_VERDICTS,
    ),
    QualityRule(
        id="missing_state",
        also=("no_missing_state",),
        severity=QualitySeverity.CRITICAL,
        title="Every share partition of a group has a stored state",
        meaning="A group describes the share partition, and the completely exported state topic holds nothing of it.",
        why="The next load starts where `share.auto.offset.reset` says, by default at the log end: unfinished records "
        "are skipped.",
        advice="Export the described start offsets now (`acktrail reset export`), so that they can be set again after "
        "a load. Then look for a lost or truncated state partition.",
        sources=(
            _DESCRIBE,
            "Kafka class ShareCoordinatorShard (readState)",
            "Kafka class SharePartition (maybeInitialize)",
        ),
        tables=_VERDICTS,
        suites=_VERDICTS,
    ),
    QualityRule(
        id="orphan_state",
        also=("no_orphan_state",),
        severity=QualitySeverity.WARNING,
        title="Every stored state belongs to a group and a topic",
        meaning="There is state of a group or a topic that does not exist, or that the group does not list.",
        why="Leftovers of a deletion; no broker delivers by them.",
        advice="Nothing urgent. `kafka-share-groups.sh --delete-offsets` removes leftovers of a group that is there.",
        sources=("KIP-932", "Kafka class GroupCoordinatorService"),
        tables=_VERDICTS,
        suites=_VERDICTS,
    ),
    QualityRule(
        id="before_log_start",
        also=("no_before_log_start",),
        severity=QualitySeverity.WARNING,
        title="No share partition begins below its log",
        meaning="The topic's retention removed records that the group had not finished.",
        why="Legal: the next load of the share partition moves the start offset. The records are lost for the group.",
        advice="Lengthen the topic's retention, or serve the group faster.",
        sources=("KIP-932", "Kafka class SharePartition (updateCacheAndOffsets)"),
        tables=_VERDICTS,
        suites=_VERDICTS,
    ),
    QualityRule(
        id="not_authorized",
        also=("no_not_authorized",),
        severity=QualitySeverity.WARNING,
        title="Every group and topic may be described",
        meaning="The right DESCRIBE is missing on the group or its topics.",
        why="Nothing was compared, and the verdict shows that.",
        advice="`acktrail doctor --acls export` prints the rights that are missing.",
        sources=("KIP-932",),
        tables=_VERDICTS,
        suites=_VERDICTS,
    ),
    QualityRule(
        id="unknown",
        also=("no_unknown",),
        severity=QualitySeverity.WARNING,
        title="Every share partition could be compared",
        meaning="The export was not complete, a description failed, or the share partition changed while the state "
        "topic was read.",
        why="Nothing was compared, and the verdict gives the reason.",
        advice="See `reason` of the row. Most reasons are gone after the next export.",
        sources=(_DESCRIBE,),
        tables=_VERDICTS,
        suites=_VERDICTS,
    ),
)
"""In the order of the suite."""
