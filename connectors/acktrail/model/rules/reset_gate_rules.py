"""Rules of the plan of a reset, and of its result."""

from __future__ import annotations

from typing import Final

from acktrail.model.rules.quality_rule import QualityRule, QualitySeverity

_PLAN_AGAIN: Final = "Do not approve the plan; make it again (`acktrail reset plan`). If it stays, report it."
_VERIFY_AGAIN: Final = (
    "Run `acktrail reset verify`; then repeat the reset for what is left, or undo it (`acktrail reset undo`)."
)
_PLANNER: Final = ("acktrail: `acktrail.group_changes.planning`",)
_ALTER: Final = ("Kafka API AlterShareGroupOffsets (KIP-932)",)


def _plan_rule(rule: str, severity: QualitySeverity, title: str, meaning: str, why: str) -> QualityRule:
    return QualityRule(
        id=rule,
        severity=severity,
        title=title,
        meaning=meaning,
        why=why,
        advice=_PLAN_AGAIN,
        sources=_PLANNER,
        tables=("reset_plan_partitions",),
        suites=("reset_plan",),
    )


def _result_rule(rule: str, severity: QualitySeverity, title: str, meaning: str, why: str) -> QualityRule:
    return QualityRule(
        id=rule,
        severity=severity,
        title=title,
        meaning=meaning,
        why=why,
        advice=_VERIFY_AGAIN,
        sources=_ALTER,
        tables=("reset_executions",),
        suites=("reset_result",),
    )


RESET_RULES: Final = (
    QualityRule(
        id="row_count_as_planned",
        severity=QualitySeverity.CRITICAL,
        title="Every share partition of the plan has a row",
        meaning="There are more or fewer rows than the plan has share partitions, or none.",
        why="What is not there is not checked.",
        advice=_PLAN_AGAIN,
        sources=_PLANNER,
        tables=("reset_plans", "reset_plan_partitions", "reset_executions"),
        suites=("reset_plan", "reset_result"),
    ),
    _plan_rule(
        "target_or_refusal",
        QualitySeverity.CRITICAL,
        "Every share partition has a target or a refusal",
        "A share partition has neither a target offset nor a reason to be left out.",
        "It is not known what would be sent.",
    ),
    _plan_rule(
        "target_not_negative",
        QualitySeverity.CRITICAL,
        "No target is negative",
        "A target offset is below 0.",
        "Brokers refuse it, or take it as not initialized.",
    ),
    _plan_rule(
        "target_ge_log_start",
        QualitySeverity.CRITICAL,
        "No target is below the log start",
        "A target offset lies where the log has no records any more.",
        "The plan promises deliveries that cannot come.",
    ),
    _plan_rule(
        "target_le_log_end",
        QualitySeverity.CRITICAL,
        "No target is beyond the log end",
        "A target offset lies where the log has no records yet.",
        "Brokers accept it; records that come up to there are never delivered.",
    ),
    _plan_rule(
        "target_is_wanted_unless_clamped",
        QualitySeverity.CRITICAL,
        "A target is what was asked for, unless it was clamped",
        "A target offset differs from what the strategy gives, and the plan does not say why.",
        "Another offset would be sent than a person approved.",
    ),
    _plan_rule(
        "skips_only_where_allowed",
        QualitySeverity.CRITICAL,
        "Records are skipped only where the plan allows it",
        "A plan skips unfinished records where its request does not allow that; the group neither stood there before "
        "nor waits for a later phase.",
        "The group would lose them.",
    ),
    _plan_rule(
        "to_deliver_is_log_end_less_target",
        QualitySeverity.ERROR,
        "Records to deliver are those from the target on",
        "The plan's count is not log end less target, without the offsets that it says are no records.",
        "The preview is wrong; the target is right.",
    ),
    _plan_rule(
        "delivered_again_adds_up",
        QualitySeverity.ERROR,
        "Records delivered again add up",
        "The plan's count differs from the sum of its parts.",
        "The preview is wrong; the target is right.",
    ),
    _plan_rule(
        "delivered_again_le_to_deliver",
        QualitySeverity.ERROR,
        "No more is delivered again than is delivered",
        "The plan counts more records delivered again than there are from the target on.",
        "The preview is wrong; the target is right.",
    ),
    _result_rule(
        "every_outcome_settled",
        QualitySeverity.CRITICAL,
        "Every outcome is known",
        "It is not known what became of a share partition's reset.",
        "Acting as if it were done, or as if it were not, may lose records.",
    ),
    _result_rule(
        "every_share_partition_done",
        QualitySeverity.CRITICAL,
        "Every share partition is done",
        "A share partition of the plan does not stand at its target.",
        "The group would resume partly reset.",
    ),
    _result_rule(
        "start_offset_is_target",
        QualitySeverity.CRITICAL,
        "The stored start offset is the target",
        "The state topic has another start offset than was sent.",
        "The group would resume somewhere else.",
    ),
    _result_rule(
        "described_start_offset_is_target",
        QualitySeverity.CRITICAL,
        "The described start offset is the target",
        "The brokers describe another start offset than was sent.",
        "The group would resume somewhere else.",
    ),
    _result_rule(
        "state_epoch_not_back",
        QualitySeverity.CRITICAL,
        "The state epoch does not fall",
        "The state epoch is lower after the reset than before.",
        "Another process wrote, or the state topic lost records.",
    ),
    _result_rule(
        "shown_by_a_state_record",
        QualitySeverity.WARNING,
        "A state record shows the reset",
        "Only the brokers' description shows it.",
        "It is done; the evidence is weaker.",
    ),
)
"""In the order of the suites."""
