"""Everything known of each share partition, joined: what was replayed and what the cluster said twice."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

__all__ = ["chosen_states", "joined_evidence", "with_topics"]

_KEY: Final = ("group_id", "topic_id", "partition")
_PHASES: Final = ("before", "after")
_SHARE_GROUP: Final = "share"


def chosen_states(replayed: DataFrame) -> DataFrame:
    """One row a share partition, with `found_on`: every state partition that has records of it.

    A share partition's records can lie on two state partitions (the state topic was given more partitions). The state
    is then taken from where a broker looks for it, else from where the newest record is.
    """
    own = Window.partitionBy(*_KEY)
    best = own.orderBy(f.col("is_misplaced"), f.col("last_record_timestamp_ms").desc_nulls_last(), "state_partition")
    ranked = replayed.withColumn("found_on", f.sort_array(f.collect_set("state_partition").over(own)))
    return ranked.withColumn("rank", f.row_number().over(best)).where("rank = 1").drop("rank")


def with_topics(states: DataFrame, topics: DataFrame) -> DataFrame:
    """`states` with the names of their topics, and `topic_status`; null for an id that was never seen."""
    return states.drop("topic").join(_newest_topics(topics), "topic_id", "left")


def joined_evidence(states: DataFrame, offsets: DataFrame, groups: DataFrame, topics: DataFrame) -> DataFrame:
    """`states` (of ``with_topics``) joined with both samples: one row for what is durable, described, or both.

    Columns: those of `states`; `before` and `after`, each null when its group did not describe the share partition;
    `log_before`, `log_after`; `group_before`, `group_after`; `group_error_before`, `group_error_after`.
    """
    described = _described(offsets)
    keyed = states.withColumn("is_durable", f.lit(1)).join(described, list(_KEY), "full_outer")
    return (
        with_topics(keyed.drop("topic_status"), topics)
        .join(_logs(offsets), ["topic_id", "partition"], "left")
        .join(_groups(groups), "group_id", "left")
        .join(_group_errors(offsets), "group_id", "left")
    )


def _newest_topics(topics: DataFrame) -> DataFrame:
    newest = topics.groupBy("topic_id").agg(f.max_by(f.struct("topic", "status"), "last_seen_at").alias("newest"))
    return newest.select("topic_id", f.col("newest.topic").alias("topic"), f.col("newest.status").alias("topic_status"))


def _described(offsets: DataFrame) -> DataFrame:
    """Share partitions as described. Without a topic id and an error a row says only that the topic is not there."""
    is_known = f.col("topic_id").isNotNull() | (f.coalesce("error_code", f.lit(0)) != 0)
    shares = offsets.where(f.col("group_id").isNotNull() & f.col("partition").isNotNull() & is_known)
    said = f.struct("start_offset", "lag", "error_code", "error")
    return shares.groupBy(*_KEY).agg(f.first("topic").alias("described_topic"), *_by_phase(said, ""))


def _logs(offsets: DataFrame) -> DataFrame:
    said = f.struct("log_start_offset", "log_end_offset")
    return offsets.where("group_id IS NULL").groupBy("topic_id", "partition").agg(*_by_phase(said, "log_"))


def _groups(groups: DataFrame) -> DataFrame:
    shares = groups.where(f.lower(f.coalesce("group_type", f.lit(_SHARE_GROUP))) == _SHARE_GROUP)
    return shares.groupBy("group_id").agg(*_by_phase(f.struct("group_state", "error_code"), "group_"))


def _group_errors(offsets: DataFrame) -> DataFrame:
    """Errors that stand for every share partition of a group."""
    failed = offsets.where("group_id IS NOT NULL AND partition IS NULL AND coalesce(error_code, 0) != 0")
    said = f.coalesce("error", f.concat(f.lit("error "), f.col("error_code").cast("string")))
    return failed.groupBy("group_id").agg(*_by_phase(said, "group_error_"))


def _by_phase(said: Column, prefix: str) -> list[Column]:
    return [
        f.first(f.when(f.col("phase") == phase, said), ignorenulls=True).alias(f"{prefix}{phase}") for phase in _PHASES
    ]
