"""Columns of the tables about partitions of topics: what was observed, which expansions that shows, what groups did."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from acktrail.columnar.schemas.schema_types import BOOL, INSTANT, INT16, INT32, INT64, STRING, schema

PARTITION_OBSERVATIONS: Final = schema(
    (STRING, "cluster_id", "run_id"),
    (INSTANT, "observed_at"),  # before its offsets were asked for
    (STRING, "topic_id", "topic"),
    (INT32, "partition"),  # null: the topic could not be described
    (INT32, "partition_count"),  # of the topic, before its offsets were asked for
    (STRING, "consistency"),  # consistent | straddles | partial
    (INT32, "leader_id", "leader_epoch", "isr_count"),
    (INT32, "ended_epoch"),  # the newest epoch before leader_epoch that the log has
    (INT64, "epoch_end_offset"),  # where its records end
    (INT64, "log_start_offset", "log_end_offset", "last_stable_offset"),
    (INT64, "max_timestamp_ms", "max_timestamp_offset"),  # the record with the highest timestamp
    (INT16, "error_code"),
    (STRING, "error"),
    (INSTANT, "listed_at"),  # after every broker had listed the topic again; null: not known
    (BOOL, "is_gapless"),  # every offset is a record's: no transactions in the cluster, not compacted; null: not known
)
"""One partition of one topic in one observation, append-only."""

GROUP_POSITIONS: Final = schema(
    (STRING, "cluster_id", "run_id"),
    (INSTANT, "observed_at"),  # when this reading began; share groups are read twice
    (STRING, "group_id", "group_type"),  # share | consumer | classic
    (STRING, "topic_id", "topic"),
    (INT32, "partition"),  # null: the group could not be asked
    (INT64, "position"),  # start offset or committed offset; null: none
    (INT64, "lag"),  # of a share group, as the broker counts it; null: not known
    (INT16, "error_code"),
    (STRING, "error"),
)
"""Where one group is in one partition, append-only."""

PARTITION_EXPANSIONS: Final = schema(
    (STRING, "cluster_id", "event_id"),
    (STRING, "topic_id", "topic"),
    (INT32, "sequence"),  # of the topic id's expansions, from 1
    (INT32, "old_count", "new_count"),
    (INSTANT, "last_seen_old_at", "first_seen_new_at"),
    (INSTANT, "settles_at"),  # from then on every producer knows the count; null: some broker may not know it
    (STRING, "status"),  # settling | settled
    (BOOL, "is_single"),  # no other count can have been in between
    (STRING, "key_mapping"),  # murmur2 | crc32 | none
    (STRING, "run_id"),  # the newest observation that was read
)
"""One expansion of one topic id: the same id whenever it is found again."""

EXPANSION_FENCES: Final = schema(
    (STRING, "cluster_id", "event_id"),
    (STRING, "topic_id", "topic"),
    (INT32, "partition"),  # a source
    (INT64, "fence_low", "fence_high"),
    (INT64, "fence_exact"),  # of a key audit
    (INT32, "leader_epoch_low", "leader_epoch_high"),  # at the two observations
    (INT64, "epoch_end_offset"),  # where the records of leader_epoch_low end, as the next leader has it
    (INT64, "log_start_offset"),  # in the newest observation: above fence_low the records are gone
    (STRING, "confidence"),  # exact | bracketed | unknown
    (STRING, "reason"),  # why it is not known
    (INT64, "last_record_offset"),  # of a key audit: the newest record below fence_low
)
"""Between which offsets of a partition its last record from before an expansion lies."""

PARTITION_DEPENDENCIES: Final = schema(
    (STRING, "cluster_id", "event_id", "source_event_id"),
    (STRING, "topic_id", "topic"),
    (INT32, "partition"),  # the destination
    (STRING, "kind"),  # new_partition | existing_move | all_lower
    (INT32, "source_step"),  # sources: equal to the destination modulo this, below source_count, not itself
    (INT32, "source_count"),  # partitions before the source event
    (INT32, "sources"),  # how many
    (INT64, "begins_low", "begins_high"),  # where its first record from after the expansion lies
)
"""Which partitions are to be finished first: those before the expansion `source_event_id`, for a destination after
`event_id`."""

ORDERING_AUDITS: Final = schema(
    (STRING, "cluster_id", "run_id"),
    (STRING, "event_id", "source_event_id"),
    (STRING, "topic_id", "topic"),
    (STRING, "group_id", "group_type"),
    (INT32, "partition"),  # the destination
    (INT32, "source_partition"),  # of those with the worst verdict, the one with the most left, then the lowest
    (STRING, "verdict"),  # of that source
    (INT32, "sources", "sources_safe", "sources_violated"),
    (INT64, "source_before", "source_at"),
    (INT64, "destination_before", "destination_at"),
    (INSTANT, "before_at", "at"),
    (INT64, "fence_low", "fence_high"),
    (INT64, "remaining"),  # of the source at `at`: offsets below fence_high; of a share group those shown unfinished
    (STRING, "reason"),  # of that source: why it is another verdict than its positions alone give
)
"""What the observations prove of one group and one destination."""

START_AUDITS: Final = schema(
    (STRING, "cluster_id", "run_id"),
    (STRING, "event_id"),
    (STRING, "topic_id", "topic"),
    (STRING, "group_id", "group_type"),
    (INT32, "partition"),  # a new one
    (INT64, "first_start_offset"),
    (INSTANT, "first_seen_at"),
    (INT64, "log_start_offset"),
    (INT64, "skipped_records"),  # least number of records that the group never got
    (STRING, "verdict"),  # ok | skipped_records | uninitialized | unknown
)
"""Where one group began with one new partition."""

KEY_AUDITS: Final = schema(
    (STRING, "cluster_id", "run_id"),
    (INSTANT, "audited_at"),
    (STRING, "event_id", "topic_id", "topic"),
    (INT32, "partition"),  # a source
    (INT64, "fence_low", "fence_high"),
    (INT64, "fence_exact"),  # null: not found
    (INT64, "end_offset"),  # records were read from fence_low to before this one
    (INT64, "records", "without_key"),
    (INT64, "elsewhere"),  # records where neither count puts their keys
    (INT64, "old_records"),  # written with the old count, by their keys
    (INT64, "pruned"),  # offsets that the log does not hold any more
    (STRING, "confidence"),  # exact | bracketed | unknown
    (STRING, "reason"),  # why it is not exact
    (INT64, "last_record_offset"),  # newest record below fence_low; null: not found, or compaction may remove it
)
"""One source of one expansion, by the keys of its records: the newest key audit."""

KEYS_AT_RISK: Final = schema(
    (STRING, "cluster_id", "run_id"),
    (STRING, "event_id", "topic_id", "topic"),
    (STRING, "key_digest"),  # hex digits of SHA-256: keys may be about persons
    (INT32, "source_partition"),
    (INT64, "last_old_offset", "last_old_ms"),  # the key's last record of the old count, and its timestamp
    (INT64, "old_records"),
    (INT32, "partition"),
    (INT64, "first_new_offset", "first_new_ms"),  # the key's first record of the new count
)
"""One key with records of both counts around an expansion: its order depends on the consumer."""

EXPANSION_TABLES: Final = MappingProxyType(
    {
        "partition_observations": PARTITION_OBSERVATIONS,
        "group_positions": GROUP_POSITIONS,
        "partition_expansions": PARTITION_EXPANSIONS,
        "expansion_fences": EXPANSION_FENCES,
        "partition_dependencies": PARTITION_DEPENDENCIES,
        "ordering_audits": ORDERING_AUDITS,
        "start_audits": START_AUDITS,
        "key_audits": KEY_AUDITS,
        "keys_at_risk": KEYS_AT_RISK,
    }
)
"""By table name."""
