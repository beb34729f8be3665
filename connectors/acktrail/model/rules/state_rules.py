"""Rules of replayed states, each beside its log and the sum of its batches, and of the rows of reconciliations."""

from __future__ import annotations

from typing import Final

from acktrail.model.rules.quality_rule import QualityRule, QualitySeverity

_STATES: Final = ("share_partition_states",)
_VERDICTS: Final = ("reconciliations",)
_LOST_LOG: Final = (
    "Find out whether the topic was deleted and made again, or truncated; then reset the group to an offset in its log "
    "(`acktrail reset plan`)."
)
_BY_ACKTRAIL: Final = "acktrail: derived by the replay"
_REPORT: Final = (
    "The tables were changed by others, or acktrail is wrong: run `acktrail verify` and report what it says."
)

REPLAYED_STATE_RULES: Final = (
    QualityRule(
        id="share_partition_once",
        severity=QualitySeverity.CRITICAL,
        title="A share partition has one row",
        meaning="A run has two rows of the same share partition.",
        why="It is not known which of them is right, and sums count it twice.",
        advice="Do not write to the tables beside acktrail; reconcile again.",
        sources=("acktrail: one row a share partition and run",),
        tables=("share_partition_states", "reconciliations", "reset_plan_partitions", "reset_executions"),
        suites=("share_partition_states", "reconciliations", "reset_plan", "reset_result"),
    ),
    QualityRule(
        id="batches_below_log_end",
        severity=QualitySeverity.CRITICAL,
        title="No batch reaches the log end",
        meaning="The state has batches for offsets that the log does not have.",
        why="The log was truncated or replaced: records that come at these offsets count as delivered already.",
        advice=_LOST_LOG,
        sources=("KIP-932", "Kafka class SharePartition"),
        tables=_STATES,
        suites=_STATES,
    ),
    QualityRule(
        id="start_offset_le_end_offset",
        also=("start_le_end",),
        severity=QualitySeverity.CRITICAL,
        title="The start offset is not above the end offset",
        meaning="The end offset is below the start offset. Kafka does not store an end offset: it is one past the last "
        "offset of the state. Drafts i and ii store one.",
        why="The window of deliveries is upside down, so no count of it is right.",
        advice=_REPORT,
        sources=("KIP-932", _BY_ACKTRAIL),
        tables=_STATES,
        suites=_STATES,
    ),
    QualityRule(
        id="start_offset_le_log_end",
        severity=QualitySeverity.CRITICAL,
        title="The start offset is not beyond the log end",
        meaning="The group begins at an offset that the log does not have yet.",
        why="What is written up to there is never delivered.",
        advice=_LOST_LOG,
        sources=("KIP-932", "Kafka class SharePartition"),
        tables=_STATES,
        suites=_STATES,
    ),
    QualityRule(
        id="end_offset_le_log_end",
        severity=QualitySeverity.CRITICAL,
        title="The end offset is not beyond the log end",
        meaning="The state mentions offsets that the log does not have.",
        why="The log was truncated or replaced: records that come at these offsets count as delivered already.",
        advice=_LOST_LOG,
        sources=("KIP-932", _BY_ACKTRAIL),
        tables=_STATES,
        suites=_STATES,
    ),
    QualityRule(
        id="new_partition_has_start",
        severity=QualitySeverity.WARNING,
        title="A partition that was added to a topic has a start offset",
        meaning="A partition was added to a topic that the group reads already, records were written to it, and the "
        "group has no start offset on it.",
        why="Before Kafka 4.4 the group begins there where `share.auto.offset.reset` says, by default at the log end: "
        "the records before that are never delivered to it.",
        advice="Set the start offset to the log start before the group takes its first record there: "
        "`acktrail reset plan --to-earliest` for this partition.",
        sources=("KAFKA-20742",),
        tables=("reconciliations",),
    ),
    QualityRule(
        id="dead_letters_kept",
        severity=QualitySeverity.ERROR,
        title="Brokers write the dead letters of a group",
        meaning="The dead-letter topic that the group names does not begin with the brokers' "
        "`errors.deadletterqueue.topic.name.prefix` (`dlq.` by default). Kafka takes the configuration of the group, "
        "archives what the group gives up, and writes no dead letter.",
        why="Each record that the group gives up is lost without a word but a line in the log of a broker.",
        advice="Name a topic that begins with the prefix (`acktrail groups config set`), or change the prefix on every "
        "broker.",
        sources=("KIP-1191", "Kafka class ShareGroupDLQStateManager"),
        tables=("group_observations",),
        since="Kafka 4.4",
    ),
    QualityRule(
        id="start_offset_ge_log_start",
        severity=QualitySeverity.WARNING,
        title="The start offset is not below the log start",
        meaning="The topic's retention removed records that the group had not finished.",
        why="Legal: the next load of the share partition moves the start offset. The records are lost for the group.",
        advice="Lengthen the topic's retention, or serve the group faster.",
        sources=("Kafka class SharePartition (updateCacheAndOffsets)",),
        tables=_STATES,
        suites=_STATES,
    ),
    QualityRule(
        id="first_unfinished_ge_start_offset",
        severity=QualitySeverity.ERROR,
        title="The first unfinished offset is not below the start offset",
        meaning="The start offset that a leader takes on load was computed below the recorded one.",
        why="One derived column is wrong; the recorded ones are right.",
        advice=_REPORT,
        sources=(_BY_ACKTRAIL,),
        tables=_STATES,
        suites=_STATES,
    ),
    QualityRule(
        id="first_unfinished_le_end_offset",
        severity=QualitySeverity.ERROR,
        title="The first unfinished offset is not beyond the end offset",
        meaning="The start offset that a leader takes on load was computed beyond the last offset of the state.",
        why="One derived column is wrong; the recorded ones are right.",
        advice=_REPORT,
        sources=(_BY_ACKTRAIL,),
        tables=_STATES,
        suites=_STATES,
    ),
    QualityRule(
        id="finished_records_match_batches",
        severity=QualitySeverity.ERROR,
        title="Finished records are those of the batches",
        meaning="The stored sums of acknowledged and archived records differ from the batches beside them.",
        why="Derived columns are wrong; the batches are right.",
        advice=_REPORT,
        sources=(_BY_ACKTRAIL,),
        tables=_STATES,
        suites=_STATES,
    ),
    QualityRule(
        id="inflight_within_lock_limit",
        severity=QualitySeverity.WARNING,
        title="Unfinished deliveries stay within the lock limit",
        meaning="More records were delivered and are not finished than `share.partition.max.record.locks` of the group "
        "allows. Not evaluated where the limit is not known (before Kafka 4.3).",
        why="Legal right after the limit was lowered, and by the rest of one batch: a broker does not cut batches.",
        advice="Compare with the last change of the group's configuration; look at consumers that release what they "
        "get.",
        sources=("KIP-932", "KIP-1240", "Kafka class SharePartition (canAcquireRecords)"),
        since="Kafka 4.3",
        tables=_STATES,
        suites=_STATES,
    ),
    QualityRule(
        id="terminal_prefix_absorbed",
        severity=QualitySeverity.INFO,
        title="The start offset has passed what is finished",
        meaning="The record at the start offset is finished already: the first unfinished offset is further.",
        why="Legal: the leader writes acknowledgements first and the start offset with its next write.",
        advice="Nothing to do; `first_unfinished_offset` is where delivery continues.",
        sources=("KIP-932", "Kafka class SharePartition (maybeUpdateCachedStateAndOffsets)"),
        tables=_STATES,
        suites=_STATES,
    ),
    QualityRule(
        id="state_reliable",
        severity=QualitySeverity.ERROR,
        title="No state depends on lost or unreadable records",
        meaning="Records below a replayed state were not exported or cannot be read, and no snapshot came after them.",
        why="The state is marked as not reliable; its verdict is unknown.",
        advice="Wait for the next snapshot (at the latest after 500 updates, or five minutes without any), and "
        "export continuously.",
        sources=("Kafka class ShareCoordinatorService (prune)",),
        tables=_STATES,
        suites=_STATES,
    ),
    QualityRule(
        id="state_has_snapshot",
        severity=QualitySeverity.WARNING,
        title="Every state has a snapshot below it",
        meaning="Only updates of a share partition were seen.",
        why="A broker that loads the same log has the same state; only the state epoch is not known.",
        advice="Nothing to do; the next snapshot ends it.",
        sources=("Kafka class ShareCoordinatorShard (handleShareUpdate)",),
        tables=_STATES,
        suites=_STATES,
    ),
    QualityRule(
        id="archiving_stale",
        severity=QualitySeverity.WARNING,
        title="No record is archiving for more than five minutes",
        meaning="Records wait for the dead-letter queue, and the write to it has not finished.",
        why="Nothing is wrong in the state, but the start offset cannot pass these records.",
        advice="Check that the dead-letter topic exists and can be written; look at the log of the partition's leader.",
        sources=("KIP-1191", "KAFKA-20672"),
        since="Kafka 4.4",
        tables=_STATES,
    ),
    QualityRule(
        id="poison_records_archived",
        severity=QualitySeverity.WARNING,
        title="Archived records were acknowledged by name",
        meaning="A group gave records up: rejected by a consumer, or delivered as often as the limit allows.",
        why="It is what the group is configured to do, but these records are delivered to no consumer any more.",
        advice="`acktrail archived` lists them; `acktrail record` shows what happened to one. "
        "`acktrail findings --group GROUP --seen-by NAME` ends the finding; else `ACKTRAIL_UNSEEN` does (7 days).",
        sources=("KIP-932",),
        tables=("share_partition_states", "reconciliations"),
    ),
    QualityRule(
        id="verdict_given",
        severity=QualitySeverity.ERROR,
        title="Every share partition has a verdict",
        meaning="A row of `reconciliations` has none.",
        why="Nothing false is published, but nothing is compared.",
        advice="Reconcile again; do not write to the tables beside acktrail.",
        sources=("acktrail: `acktrail.model.reconciliation`",),
        tables=_VERDICTS,
        suites=_VERDICTS,
    ),
    QualityRule(
        id="verdict_known",
        severity=QualitySeverity.ERROR,
        title="Every verdict is one of acktrail's",
        meaning="A verdict has a name that this release does not know.",
        why="Nothing can be concluded from it.",
        advice="A newer acktrail wrote the tables: upgrade.",
        sources=("acktrail: `acktrail.model.reconciliation`",),
        tables=_VERDICTS,
        suites=_VERDICTS,
    ),
    QualityRule(
        id="verdict_has_reason",
        severity=QualitySeverity.ERROR,
        title="Every verdict has a reason",
        meaning="A row of `reconciliations` does not say why.",
        why="The verdict cannot be checked by a person.",
        advice="Reconcile again; do not write to the tables beside acktrail.",
        sources=("acktrail: `acktrail.model.reconciliation`",),
        tables=_VERDICTS,
        suites=_VERDICTS,
    ),
    QualityRule(
        id="match_has_same_start_offset",
        severity=QualitySeverity.CRITICAL,
        title="A match has the same start offset on both sides",
        meaning="The verdict is a match of values that stood still, and the start offsets differ.",
        why="The published verdict is wrong.",
        advice=_REPORT,
        sources=("acktrail: `acktrail.model.reconciliation`",),
        tables=_VERDICTS,
        suites=_VERDICTS,
    ),
    QualityRule(
        id="match_has_same_lag",
        severity=QualitySeverity.CRITICAL,
        title="A match has the same lag on both sides",
        meaning="The verdict is a match of values that stood still, and the lags differ.",
        why="The published verdict is wrong.",
        advice=_REPORT,
        sources=("KIP-1226", "acktrail: `acktrail.model.reconciliation`"),
        since="Kafka 4.2",
        tables=_VERDICTS,
        suites=_VERDICTS,
    ),
)
"""In the order of the suites."""
