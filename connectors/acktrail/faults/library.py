"""Every fault that the checks are proven with, by name."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from acktrail.faults import injections as inject
from acktrail.faults.fault import Seen, StateFault, expected
from acktrail.model.queue_status import QueueStatus

_FEWER: Final = "state_records.delivery_complete_count_monotone"
"""Fails where finished records are unfinished afterwards."""

_ALL: Final = (
    StateFault(
        name="start_offset_regression",
        happens="two writes of a share-partition leader are stored in the wrong order: the start offset goes back, and "
        "finished records are delivered again",
        seen=Seen.KAFKA,
        issue="apache/kafka#23074",
        releases="up to 4.3",
        inject=inject.start_offset_regression,
        expected=expected(
            fails=("state_records.start_offset_monotone", _FEWER),
            status=QueueStatus.REWOUND,
        ),
    ),
    StateFault(
        name="complete_count_regression",
        happens="the older of two writes brings its lower delivery complete count: the lag is too high",
        seen=Seen.KAFKA,
        issue="apache/kafka#23112",
        releases="up to 4.3",
        inject=inject.complete_count_regression,
        expected=expected(
            "delivery_complete_count_covers",
            fails=(
                _FEWER,
                "share_partition_states.delivery_complete_count_covers",
            ),
        ),
    ),
    StateFault(
        name="overlapping_batches",
        happens="a leader that was initialized again writes batches that share offsets",
        seen=Seen.KAFKA,
        issue="KAFKA-19954",
        releases="up to 4.1",
        inject=inject.overlapping_batches,
        expected=expected(
            "batches_non_overlapping",
            fails=("state_records.batches_non_overlapping", "share_partition_states.batches_non_overlapping", _FEWER),
            status=QueueStatus.REWOUND,
        ),
    ),
    StateFault(
        name="missed_snapshot",
        happens="the snapshot that is due after 500 updates does not come: a coordinator needs longer to load",
        seen=Seen.KAFKA,
        issue="apache/kafka#21426",
        releases="up to 4.2.0",
        inject=inject.missed_snapshot,
        expected=expected(fails=("state_records.snapshot_cadence",)),
    ),
    StateFault(
        name="missed_prune",
        happens="redundant state records are not pruned: a deleted share partition counted as one that needs them",
        seen=Seen.KAFKA,
        issue="KAFKA-19695",
        releases="up to 4.1.0",
        inject=inject.missed_prune,
        on_broker=False,
        expected=expected("state_log_pruned"),
    ),
    StateFault(
        name="snapshot_epoch_jump",
        happens="a snapshot counts on from one that is not there: records are missing",
        seen=Seen.CLUSTER,
        releases="all",
        inject=inject.snapshot_epoch_jump,
        expected=expected(fails=("state_records.snapshot_epoch_step",)),
    ),
    StateFault(
        name="foreign_update_epoch",
        happens="an update belongs to a snapshot that is not there: records are missing",
        seen=Seen.CLUSTER,
        releases="all",
        inject=inject.foreign_update_epoch,
        expected=expected(fails=("state_records.update_epoch_matches",)),
    ),
    StateFault(
        name="state_epoch_regression",
        happens="a state epoch goes back: an older initialization overwrites a newer one",
        seen=Seen.CLUSTER,
        releases="all",
        inject=inject.state_epoch_regression,
        expected=expected(
            fails=("state_records.state_epoch_monotone",),
            status=QueueStatus.REWOUND,
        ),
    ),
    StateFault(
        name="leader_epoch_regression",
        happens="a leader of the past writes after the present one: it was not fenced",
        seen=Seen.CLUSTER,
        releases="all",
        inject=inject.leader_epoch_regression,
        expected=expected(fails=("state_records.leader_epoch_monotone",)),
    ),
    StateFault(
        name="orphan_state",
        happens="the state of a deleted group stays",
        seen=Seen.CLUSTER,
        releases="all",
        inject=inject.orphan_state,
        subject=inject.deleted_group,
        expected=expected("orphan_state", fails=("reconciliations.no_orphan_state",), verdict="orphan_state"),
    ),
    StateFault(
        name="stuck_archiving",
        happens="a record waits for the dead letter queue and holds the start offset: its topic cannot be written",
        seen=Seen.CLUSTER,
        releases="4.4",
        since="4.4",
        inject=inject.stuck_archiving,
        grows_by=1,
        expected=expected("archiving_stale"),
    ),
    StateFault(
        name="state_on_two_partitions",
        happens="two coordinators write state of one share partition",
        seen=Seen.CLUSTER,
        releases="all",
        inject=inject.state_on_two_partitions,
        expected=expected(
            "one_state_partition_per_key",
            fails=("state_records.one_state_partition_per_key", "state_records.key_on_its_state_partition"),
        ),
    ),
    StateFault(
        name="wrong_state_partition",
        happens="partitions were added to the state topic: the state is where no coordinator looks for it, and the "
        "group starts again",
        seen=Seen.CLUSTER,
        releases="all",
        inject=inject.wrong_state_partition,
        is_new_partition=True,
        on_broker=False,
        expected=expected(
            "key_on_its_state_partition",
            "durable_ahead",
            fails=(
                "state_records.key_on_its_state_partition",
                "share_partition_states.key_on_its_state_partition",
                "reconciliations.no_durable_ahead",
            ),
            verdict="durable_ahead",
        ),
    ),
    StateFault(
        name="dlq_flood",
        happens="a consumer rejects every record: all are archived, or go to the dead letter queue",
        seen=Seen.CLUSTER,
        releases="all",
        inject=inject.dlq_flood,
        grows_by=inject.FLOOD,
        expected=expected(
            "poison_records_archived",
            status=QueueStatus.REJECT_STORM,
        ),
    ),
    StateFault(
        name="skipped_new_partition",
        happens="a partition is added to a topic, and the group starts at its end, not at its beginning: the records "
        "before that are never delivered",
        seen=Seen.KAFKA,
        issue="KAFKA-20742",
        releases="up to 4.3",
        inject=inject.skipped_new_partition,
        is_new_partition=True,
        on_broker=False,
        expected=expected(
            "new_partition_has_start",
            status=QueueStatus.STATE_UNKNOWN,
        ),
    ),
    StateFault(
        name="start_past_log_end",
        happens="a topic lost records that the group had passed: what is written there next is never delivered",
        seen=Seen.CLUSTER,
        releases="all",
        inject=inject.start_past_log_end,
        expected=expected(
            "past_log_end",
            fails=(
                "share_partition_states.start_offset_le_log_end",
                "share_partition_states.end_offset_le_log_end",
                "reconciliations.no_past_log_end",
            ),
            verdict="past_log_end",
        ),
    ),
    StateFault(
        name="export_gap",
        happens="Kafka prunes state records before they are exported: their history is lost",
        seen=Seen.CLUSTER,
        releases="all",
        inject=inject.export_gap,
        expected=expected("export_complete", fails=("export_ranges.nothing_pruned_before_export",)),
    ),
    StateFault(
        name="unreadable_record",
        happens="the value of a state record is damaged: a coordinator does not load its state partition",
        seen=Seen.STORED,
        releases="all",
        inject=inject.unreadable_record,
        on_broker=False,
        expected=expected(
            "records_quarantined",
            "unknown",
            fails=(
                "state_records.record_decoded",
                "share_partition_states.state_reliable",
                "reconciliations.no_unknown",
            ),
            verdict="unknown",
        ),
    ),
    StateFault(
        name="unknown_record_type",
        happens="a newer broker wrote a record of a type that this one skips",
        seen=Seen.CLUSTER,
        releases="all",
        inject=inject.unknown_record_type,
        expected=expected("records_quarantined", fails=("state_records.record_decoded",)),
    ),
    StateFault(
        name="inverted_batch",
        happens="a batch ends before it begins: a leader refuses to load the state",
        seen=Seen.STORED,
        releases="all",
        inject=inject.inverted_batch,
        expected=expected(
            "batch_first_le_last",
            fails=("state_records.batch_first_le_last", "share_partition_states.batch_first_le_last", _FEWER),
            status=QueueStatus.REWOUND,
        ),
    ),
    StateFault(
        name="batches_out_of_order",
        happens="the batches of a state do not ascend",
        seen=Seen.STORED,
        releases="all",
        inject=inject.batches_out_of_order,
        expected=expected(
            "batches_ascending",
            fails=("state_records.batches_ascending", "share_partition_states.batches_ascending", _FEWER),
            status=QueueStatus.REWOUND,
        ),
    ),
    StateFault(
        name="batch_below_start",
        happens="a batch lies below the start offset: a leader refuses to load the state",
        seen=Seen.STORED,
        releases="all",
        inject=inject.batch_below_start,
        expected=expected(
            "batches_not_below_start",
            fails=("state_records.batches_not_below_start", "share_partition_states.batches_not_below_start"),
        ),
    ),
    StateFault(
        name="acquired_persisted",
        happens="a lock of a consumer is stored: records would stay locked permanently",
        seen=Seen.STORED,
        releases="all",
        inject=inject.acquired_persisted,
        expected=expected(
            "delivery_state_allowed",
            fails=("state_records.delivery_state_allowed", "share_partition_states.delivery_state_allowed", _FEWER),
            status=QueueStatus.REWOUND,
        ),
    ),
    StateFault(
        name="impossible_delivery_count",
        happens="a delivery count that no configuration allows",
        seen=Seen.STORED,
        releases="all",
        inject=inject.impossible_delivery_count,
        expected=expected(
            "delivery_count_possible",
            fails=(
                "state_records.delivery_count_possible",
                "state_records.delivery_count_within_limit",
                "share_partition_states.delivery_count_possible",
                "share_partition_states.delivery_count_within_limit",
            ),
        ),
    ),
    StateFault(
        name="uninitialized_with_batches",
        happens="a state has batches and no start offset",
        seen=Seen.STORED,
        releases="all",
        inject=inject.uninitialized_with_batches,
        expected=expected(
            "uninitialized_without_batches",
            fails=(
                "state_records.uninitialized_without_batches",
                "share_partition_states.uninitialized_without_batches",
            ),
            status=QueueStatus.STATE_UNKNOWN,
        ),
    ),
    StateFault(
        name="update_without_snapshot",
        happens="an update follows a tombstone: the snapshot between them is missing",
        seen=Seen.CLUSTER,
        releases="all",
        inject=inject.update_without_snapshot,
        expected=expected(
            fails=("state_records.update_has_base", "share_partition_states.state_has_snapshot"),
            status=QueueStatus.STATE_UNKNOWN,
        ),
    ),
)

FAULTS: Final = MappingProxyType({fault.name: fault for fault in _ALL})
"""Every fault by its name."""


def faults_on(release: str) -> tuple[StateFault, ...]:
    """The faults that can be injected on a running broker of `release`."""
    return tuple(fault for fault in FAULTS.values() if fault.on_broker and _number(release) >= _number(fault.since))


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".")[:2])
