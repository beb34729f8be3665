"""Groups, start offsets, lag and log offsets of a cluster at one moment, as one batch."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import pyarrow as pa

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.client.error_codes import GROUP_ID_NOT_FOUND, UNANSWERED
from acktrail.broker.descriptions import GroupDescription, GroupOffsets, TopicDescription, TopicPartition
from acktrail.broker.groups.observation_rows import ObservationRows
from acktrail.columnar.schemas.table_schemas import OFFSET_OBSERVATIONS
from acktrail.connect.contract import SourceBatch, TaskId
from acktrail.model.share_partition import STATE_TOPIC

Clock = Callable[[], dt.datetime]

_BEFORE: Final = "before"


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def observe(
    admin: ShareGroupAdmin,
    *,
    run_id: str,
    phase: str,
    groups: Collection[str] = (),
    topic_ids: Collection[str] = (),
    clock: Clock = _utc_now,
) -> SourceBatch:
    """One side (`phase`: before or after) of an observation: rows of ``topics``, ``group_observations`` and
    ``offset_observations``.

    Topics and groups are asked first; then, one right after the other, the groups' offsets and the ends of the logs: of
    every partition of the topics that they describe, and of the state topic. A lag refers to a log end that the
    response does not have. So that this end lies between two listed ones, the groups are described again after the
    listing `before`; `after` lists last. `clock` gives UTC instants; a row's is that of its response. A group or
    partition that cannot be described, also because its coordinator is silent, is a row with the reason; one that was
    deleted meanwhile has no row.

    A listing leaves out, without an error, what this principal may not DESCRIBE. So `groups` and `topic_ids`, which are
    known from state records, are asked for by name: a group that may not be described is a row with error 30, such a
    topic one with the status ``not_authorized``. A deleted one (69, 100) has no row.

    Raises:
        Unreachable, RetryableError: a broker did not answer.
        ConfigurationError: the cluster does not serve share groups, or refused the login.
    """
    rows = ObservationRows(cluster_id=admin.cluster_id, run_id=run_id, phase=phase)
    topics = {topic.name: topic for topic in admin.topics()}
    hidden = admin.hidden_topics(set(topic_ids) - {topic.topic_id for topic in topics.values()})
    topic_rows = rows.topics(topics.values(), hidden, clock())
    listings = {listing.group_id: listing for listing in admin.list_groups()}
    asked = sorted(listings.keys() | set(groups))
    answers = admin.describe_groups(asked, tolerates_silence=True)
    described = [group for group in answers if group.error_code != GROUP_ID_NOT_FOUND]
    configs = {answer.group_id: answer for answer in admin.group_configs(group.group_id for group in described)}
    group_rows = rows.groups(listings, described, configs, clock())

    # A silent coordinator is not asked again: each silence costs a minute.
    silent = [_no_offsets(group) for group in described if group.error_code in UNANSWERED]
    there = [group.group_id for group in described if group.error_code not in UNANSWERED]
    offsets = admin.describe_group_offsets(there, tolerates_silence=True)
    shares_at = clock()
    logs = admin.list_offsets(_partitions(topics, offsets))
    log_rows = rows.topic_partitions(logs, {name: topic.topic_id for name, topic in topics.items()}, clock())
    if phase == _BEFORE:
        offsets = admin.describe_group_offsets(there, tolerates_silence=True)
        shares_at = clock()
    share_rows = rows.share_partitions([*offsets, *silent], shares_at)
    return SourceBatch(
        task=TaskId(f"observation/{admin.cluster_id}"),
        rows={
            "topics": topic_rows,
            "group_observations": group_rows,
            "offset_observations": pa.Table.from_pylist([*share_rows, *log_rows], schema=OFFSET_OBSERVATIONS),
        },
    )


def unanswered_groups(batch: SourceBatch) -> tuple[str, ...]:
    """The groups in a batch of `observe` whose coordinator did not answer, by id."""
    tables = (batch.rows[name] for name in ("group_observations", "offset_observations"))
    rows = (row for table in tables for row in table.select(["group_id", "error_code"]).to_pylist())
    return tuple(sorted({row["group_id"] for row in rows if row["group_id"] and row["error_code"] in UNANSWERED}))


def _no_offsets(group: GroupDescription) -> GroupOffsets:
    return GroupOffsets(group_id=group.group_id, error_code=group.error_code, error=group.error)


def _partitions(topics: Mapping[str, TopicDescription], groups: Iterable[GroupOffsets]) -> list[TopicPartition]:
    """Every partition of the topics that groups describe, and of the state topic, as far as they are there."""
    named = {offset.topic for group in groups for offset in group.offsets} | {STATE_TOPIC}
    return [
        TopicPartition(topic=name, partition=index)
        for name in sorted(named & topics.keys())
        for index in range(topics[name].partition_count)
    ]
