"""Rules of state records, each beside those before it of its share partition."""

from __future__ import annotations

from typing import Final

from acktrail.model.rules.quality_rule import QualityRule, QualitySeverity

_RECORDS: Final = ("state_records",)
_SHARD: Final = "Kafka class ShareCoordinatorShard"
_MISSING: Final = (
    "Look for gaps in `export_ranges` at that offset; where Kafka still has the records, `acktrail repair` adds them."
)

RECORD_RULES: Final = (
    QualityRule(
        id="record_once",
        severity=QualitySeverity.CRITICAL,
        title="Every record is stored once",
        meaning="Two rows have the same state partition and offset.",
        why="Counts and replays would take the record twice.",
        advice="Do not write to `state_records` beside acktrail. `acktrail doctor --read-tables` shows the rows.",
        sources=("acktrail: rows and positions land in one commit",),
        tables=_RECORDS,
        suites=_RECORDS,
    ),
    QualityRule(
        id="offsets_dense",
        severity=QualitySeverity.ERROR,
        title="Offsets follow each other",
        meaning="Between two stored records an offset is missing and no gap is recorded for it.",
        why="The state topic has no compaction and no transactions, so a record is missing; states after the next "
        "snapshot are right again.",
        advice=_MISSING,
        sources=("Kafka class ShareCoordinatorConfig (cleanup.policy=delete)",),
        tables=_RECORDS,
        suites=_RECORDS,
    ),
    QualityRule(
        id="record_decoded",
        severity=QualitySeverity.ERROR,
        title="Every record can be read",
        meaning="A record's key or value could not be decoded. Its bytes are kept, and its share partition is unknown "
        "up to the next snapshot.",
        why="It is counted and marked; nothing false is published.",
        advice="See `decode_error` of the row. A release newer than acktrail: upgrade, the bytes are decoded again.",
        sources=("Kafka class ShareCoordinatorRecordSerde",),
        tables=_RECORDS,
        suites=_RECORDS,
    ),
    QualityRule(
        id="records_quarantined",
        severity=QualitySeverity.ERROR,
        title="No state partition has records that cannot be read",
        meaning="A state partition has records whose key or value could not be decoded.",
        why="They are counted and marked; nothing false is published.",
        advice="See `decode_error` in `state_records`. A release newer than acktrail: upgrade, the bytes are decoded "
        "again.",
        sources=("Kafka class ShareCoordinatorRecordSerde",),
        tables=("export_ranges", "state_records"),
    ),
    QualityRule(
        id="record_matches_raw_bytes",
        severity=QualitySeverity.CRITICAL,
        title="Decoded columns equal the raw bytes",
        meaning="Key and value, decoded again, differ from the stored columns.",
        why="Everything that is computed from the columns is wrong there.",
        advice="A row was changed by others, or by damage: restore the table, or `acktrail repair` it from Kafka.",
        sources=("acktrail: `acktrail validate --all` compares",),
        tables=_RECORDS,
        suites=_RECORDS,
    ),
    QualityRule(
        id="snapshot_epoch_step",
        severity=QualitySeverity.ERROR,
        title="Snapshot epochs grow by one",
        meaning="A snapshot's epoch is not the one after that of the record before, or not 0 after a tombstone.",
        why="Records before it are missing; the snapshot itself is whole, so the state from here on is right.",
        advice=_MISSING,
        sources=("KIP-932", _SHARD),
        tables=_RECORDS,
        suites=_RECORDS,
    ),
    QualityRule(
        id="update_epoch_matches",
        severity=QualitySeverity.ERROR,
        title="An update names the snapshot that it is based on",
        meaning="An update's snapshot epoch is not that of the record before.",
        why="A snapshot is missing. A broker applies the update all the same, so both have the same state.",
        advice=_MISSING,
        sources=("KIP-932", f"{_SHARD} (handleShareUpdate)"),
        tables=_RECORDS,
        suites=_RECORDS,
    ),
    QualityRule(
        id="update_has_base",
        also=("update_has_snapshot",),
        severity=QualitySeverity.ERROR,
        title="An update has something before it",
        meaning="An update follows a tombstone, or nothing: the snapshot it is based on is not there.",
        why="A broker takes the update alone as the state, and so does acktrail; what the snapshot had is lost.",
        advice=_MISSING,
        sources=("KIP-932", f"{_SHARD} (handleShareUpdate)"),
        tables=_RECORDS,
        suites=_RECORDS,
    ),
    QualityRule(
        id="state_epoch_monotone",
        also=("state_epoch_monotonic",),
        severity=QualitySeverity.ERROR,
        title="State epochs do not fall",
        meaning="A snapshot has a lower state epoch than one before it.",
        why="Brokers refuse writes with a lower one (FENCED_STATE_EPOCH): records are missing or were written by "
        "others.",
        advice="Look whether the share partition was deleted and made again; else "
        + _MISSING[0].lower()
        + _MISSING[1:],
        sources=("KIP-932", _SHARD),
        tables=_RECORDS,
        suites=_RECORDS,
    ),
    QualityRule(
        id="leader_epoch_monotone",
        also=("leader_epoch_monotonic",),
        severity=QualitySeverity.ERROR,
        title="Leader epochs do not fall",
        meaning="A record has a lower leader epoch than one before it, with no initialization between them.",
        why="Brokers refuse such writes (FENCED_LEADER_EPOCH): two leaders may have written.",
        advice="Look at the controller's log for leader changes of that partition at that time.",
        sources=("KIP-932", _SHARD),
        tables=_RECORDS,
        suites=_RECORDS,
    ),
    QualityRule(
        id="start_offset_monotone",
        also=("start_monotonic_within_state_epoch",),
        severity=QualitySeverity.ERROR,
        title="Start offsets do not fall",
        meaning="A start offset is lower than before, with no reset between them.",
        why="Records are delivered again, which share groups allow for. Brokers up to 4.3 have a bug that does it.",
        advice="Compare with `acktrail reset audit`. If no reset explains it, upgrade the brokers (pull request "
        "23074).",
        sources=("KIP-932", "Kafka commit b77567478f (pull request 23074)", "KAFKA-20910"),
        tables=_RECORDS,
        suites=_RECORDS,
    ),
    QualityRule(
        id="delivery_complete_count_monotone",
        severity=QualitySeverity.ERROR,
        title="Completed offsets do not become fewer",
        meaning="Start offset plus delivery complete count is lower than before, with no reset between them.",
        why="Finished records count as unfinished: they are delivered again, or the lag is too high.",
        advice="Compare with `acktrail reset audit`. If no reset explains it, upgrade the brokers (pull request "
        "23112).",
        sources=("KIP-1226", "Kafka commit 2225a16c7e (pull request 23112)"),
        since="Kafka 4.2",
        tables=_RECORDS,
        suites=_RECORDS,
    ),
    QualityRule(
        id="snapshot_cadence",
        severity=QualitySeverity.WARNING,
        title="A snapshot comes after at most 500 updates",
        meaning="More updates follow a snapshot than `share.coordinator.snapshot.update.records.per.snapshot` can be "
        "set to (500; one more is tolerated before Kafka 4.4).",
        why="Nothing is lost, but the state topic cannot be pruned and loads take longer; or snapshots are missing "
        "here.",
        advice="Look for gaps in `export_ranges`; if there is none, look at the share coordinator's log.",
        sources=("KIP-932", "Kafka class ShareCoordinatorConfig", "Kafka pull request 21426"),
        tables=_RECORDS,
        suites=_RECORDS,
    ),
    QualityRule(
        id="snapshot_class_known",
        severity=QualitySeverity.WARNING,
        title="Every snapshot is one that a broker writes",
        meaning="A snapshot is neither written fresh (created when written: an initialization, a reset, or due after "
        "its number of updates) nor a copy of a cold share partition, which keeps the create timestamp of the one "
        "before.",
        why="Its content may be right, but no broker writes it: another program did, or records are missing.",
        advice=_MISSING,
        sources=("Kafka class ShareCoordinatorShard (snapshotColdPartitions)",),
        since="Kafka 4.1",
        tables=_RECORDS,
        suites=_RECORDS,
    ),
    QualityRule(
        id="create_le_write_timestamp",
        severity=QualitySeverity.WARNING,
        title="A state is created before it is written",
        meaning="A snapshot's create timestamp is after its write timestamp.",
        why="Only times are wrong; usually the clocks of two brokers differ.",
        advice="Check the clocks of the brokers.",
        sources=("Kafka class ShareCoordinatorShard",),
        since="Kafka 4.1",
        tables=_RECORDS,
        suites=_RECORDS,
    ),
    QualityRule(
        id="one_state_partition_per_key",
        severity=QualitySeverity.CRITICAL,
        title="A share partition has one state partition",
        meaning="Records of one share partition are on several state partitions.",
        why="There is no order between them, so no replay is right; a broker reads only one of them.",
        advice="Find out whether partitions were added to `__share_group_state`. Then export the start offsets, "
        "delete the state topic and reset the groups.",
        sources=("KIP-932", "Kafka class ShareCoordinatorService (partitionFor)"),
        tables=_RECORDS,
        suites=_RECORDS,
    ),
    QualityRule(
        id="key_on_its_state_partition",
        severity=QualitySeverity.ERROR,
        title="A share partition is on the state partition of its hash",
        meaning="A share partition's records are not on the state partition that a broker looks at.",
        why="The broker does not see this state and delivers by its own; acktrail reports both.",
        advice="Find out whether partitions were added to `__share_group_state`; then reset the group to its start "
        "offsets.",
        sources=(
            "Kafka class SharePartitionKey (asCoordinatorKey)",
            "Kafka class ShareCoordinatorService (partitionFor)",
        ),
        tables=("state_records", "share_partition_states"),
        suites=("state_records", "share_partition_states"),
    ),
)
"""In the order of the suite."""
