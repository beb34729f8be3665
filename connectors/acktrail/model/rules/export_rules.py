"""Rules of exports: what was read of the state topic, and what was not."""

from __future__ import annotations

from typing import Final

from acktrail.model.rules.quality_rule import QualityRule, QualitySeverity

_RANGES: Final = ("export_ranges",)
_STATE_PARTITIONS: Final = ("state_partitions",)
_ONE_COMMIT: Final = "acktrail: rows and positions land in one commit"
_PRUNE: Final = "Kafka class ShareCoordinatorService (prune, every five minutes)"
_TABLES_CHANGED: Final = (
    "The tables were changed by others, or lost files: `acktrail doctor --read-tables` shows what is missing, "
    "`acktrail repair` reads it again where Kafka still has it."
)

EXPORT_RULES: Final = (
    QualityRule(
        id="range_first_le_last",
        severity=QualitySeverity.CRITICAL,
        title="No range ends before it begins",
        meaning="A commit of the exporter names a last offset below its first one.",
        why="Then nothing shows what was exported.",
        advice=_TABLES_CHANGED,
        sources=(_ONE_COMMIT,),
        tables=_RANGES,
        suites=_RANGES,
    ),
    QualityRule(
        id="gap_first_le_last",
        severity=QualitySeverity.CRITICAL,
        title="No gap ends before it begins",
        meaning="A recorded gap names a last offset below its first one.",
        why="Then nothing shows what is missing.",
        advice=_TABLES_CHANGED,
        sources=(_ONE_COMMIT,),
        tables=_RANGES,
        suites=_RANGES,
    ),
    QualityRule(
        id="range_below_log_end",
        severity=QualitySeverity.ERROR,
        title="No range reaches beyond the log end",
        meaning="Offsets were exported that the state partition did not have by its own answer.",
        why="The log was cut or replaced meanwhile; what was read is kept.",
        advice="Look for an unclean leader election of that state partition.",
        sources=("Kafka API ListOffsets",),
        tables=_RANGES,
        suites=_RANGES,
    ),
    QualityRule(
        id="one_state_topic",
        severity=QualitySeverity.CRITICAL,
        title="All ranges are of one state topic",
        meaning="`__share_group_state` was deleted and made again: the ranges have two topic ids.",
        why="Offsets of two topics are mixed, so no replay is right.",
        advice="Begin with empty tables for the state topic that is there now.",
        sources=("KIP-516",),
        tables=_RANGES,
        suites=_RANGES,
    ),
    QualityRule(
        id="export_contiguous",
        severity=QualitySeverity.CRITICAL,
        title="Ranges follow each other",
        meaning="Between two commits of a state partition offsets are missing or exported twice, and no gap is "
        "recorded.",
        why="Then nothing shows what is missing, and states that look complete are wrong.",
        advice=_TABLES_CHANGED,
        sources=(_ONE_COMMIT,),
        tables=_RANGES,
        suites=_RANGES,
    ),
    QualityRule(
        id="records_follow_gap",
        severity=QualitySeverity.CRITICAL,
        title="Records begin where their gap ends",
        meaning="A commit has a gap and records, and offsets between them are in neither.",
        why="Then nothing shows what is missing, and states that look complete are wrong.",
        advice=_TABLES_CHANGED,
        sources=(_ONE_COMMIT,),
        tables=_RANGES,
        suites=_RANGES,
    ),
    QualityRule(
        id="export_begins_at_log_start",
        severity=QualitySeverity.CRITICAL,
        title="The first range begins at the log start",
        meaning="The first export of a state partition began beyond the log start that it saw.",
        why="Records were left out that were there, and no gap shows it.",
        advice=_TABLES_CHANGED,
        sources=(_ONE_COMMIT,),
        tables=_RANGES,
        suites=_RANGES,
    ),
    QualityRule(
        id="nothing_pruned_before_export",
        severity=QualitySeverity.ERROR,
        title="Nothing was pruned before it was exported",
        meaning="Kafka removed state records before acktrail read them; the gap is recorded.",
        why="Their history is lost. Brokers prune only below the snapshots that they need, so states after the gap "
        "are right.",
        advice="Export continuously (`acktrail export --continuous`, or a worker): no period is short enough for every "
        "record.",
        sources=("KIP-932", _PRUNE),
        tables=_RANGES,
        suites=_RANGES,
    ),
    QualityRule(
        id="records_accounted_for",
        severity=QualitySeverity.CRITICAL,
        title="Read records are decoded or quarantined",
        meaning="The counts of a commit do not add up: read is not decoded plus quarantined.",
        why="Records vanished between the broker and the tables.",
        advice=_TABLES_CHANGED,
        sources=(_ONE_COMMIT,),
        tables=_RANGES,
        suites=_RANGES,
    ),
    QualityRule(
        id="records_stored",
        severity=QualitySeverity.CRITICAL,
        title="Every exported record is stored",
        meaning="A commit counts more records than `state_records` has in its offsets.",
        why="The tables lost records, so states that look complete are wrong.",
        advice=_TABLES_CHANGED,
        sources=(_ONE_COMMIT,),
        tables=("export_ranges", "state_records"),
        suites=_RANGES,
    ),
    QualityRule(
        id="range_dense",
        severity=QualitySeverity.ERROR,
        title="A range has a record at every offset",
        meaning="A commit read fewer records than its offsets are.",
        why="The state topic has no compaction, so a record was not there; states after the next snapshot are right.",
        advice="Look whether `cleanup.policy` of `__share_group_state` was changed; it must be `delete`.",
        sources=("Kafka class ShareCoordinatorConfig (cleanup.policy=delete)",),
        tables=_RANGES,
        suites=_RANGES,
    ),
    QualityRule(
        id="export_complete",
        severity=QualitySeverity.ERROR,
        title="The export reaches what was observed",
        meaning="Offsets of a state partition were pruned before they were exported, or the export stopped before the "
        "log end that the observation began with.",
        why="What is missing is recorded, and share partitions that depend on it have the verdict unknown.",
        advice="Export again. For pruned offsets: export continuously.",
        sources=("KIP-932", _PRUNE),
        tables=("export_ranges", "offset_observations"),
        suites=_STATE_PARTITIONS,
    ),
    QualityRule(
        id="state_log_pruned",
        severity=QualitySeverity.WARNING,
        title="Redundant state records are pruned",
        meaning="A state partition begins below every snapshot that its share partitions need, and nothing was written "
        "to it for 15 minutes, in which a share coordinator prunes three times.",
        why="Nothing is lost; the state topic grows, and its coordinator takes longer to load.",
        advice="Look for errors of pruning in the log of the broker that leads the state partition, and upgrade a "
        "broker before Kafka 4.1.1: a deleted share partition stopped the pruning there.",
        sources=("KAFKA-19695", _PRUNE),
        tables=("offset_observations", "replay_memory"),
    ),
    QualityRule(
        id="export_fresh",
        severity=QualitySeverity.WARNING,
        title="What is validated was observed within the last hour",
        meaning="The brokers' answers of the run were older than an hour when it was validated.",
        why="All of it was true then; it may not be true any more.",
        advice="Look at the run's earlier tasks: one waited or was tried again. Start a run now.",
        sources=("acktrail: an observation is true of its moment",),
        tables=("offset_observations",),
        suites=_STATE_PARTITIONS,
    ),
    QualityRule(
        id="state_topic_partition_count_constant",
        severity=QualitySeverity.CRITICAL,
        title="The state topic keeps its number of partitions",
        meaning="`__share_group_state` has another number of partitions than at the first validation.",
        why="The hash of a share partition's key names another state partition now: brokers look where no state is, "
        "and groups start from `share.auto.offset.reset`.",
        advice="Stop the groups. Export the start offsets as of before the change (`acktrail state --at`), delete the "
        "state topic, and reset the groups to them.",
        sources=("KIP-932", "Kafka class ShareCoordinatorService (partitionFor)"),
        tables=("offset_observations",),
        suites=_STATE_PARTITIONS,
    ),
)
"""In the order of the suites."""
