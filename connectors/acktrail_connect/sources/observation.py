"""An observation: what the brokers say about groups, start offsets, lag and logs, as rows of tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import pyarrow as pa

from acktrail.format.columns.schemas.table_schemas import GROUP_OBSERVATIONS, OFFSET_OBSERVATIONS, TOPICS
from acktrail.format.wire.dead_letter_headers import TOPIC_OF_GROUP, TOPIC_PREFIX
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.client.error_codes import GROUP_ID_NOT_FOUND, UNANSWERED
from acktrail.kafka.describe_configs import broker_config
from acktrail.kafka.descriptions import (
    GroupConfigs,
    GroupDescription,
    GroupListing,
    GroupOffsets,
    LogOffsets,
    TopicDescription,
    TopicPartition,
)
from acktrail.model.log_positions import SourcePartition
from acktrail.model.share_partition import STATE_TOPIC
from acktrail_connect.source_batches import SourceBatch

_OTHER_GROUP_TYPES: Final = ("consumer.", "streams.")
_now: Final = partial(dt.datetime.now, dt.UTC)
_Row = dict[str, Any]


def observe(
    admin: ShareGroupAdmin, *, run_id: str, phase: str, groups: Collection[str] = (), topic_ids: Collection[str] = ()
) -> SourceBatch:
    """One side (`phase`: before or after) of an observation: rows of ``topics``, ``group_observations`` and
    ``offset_observations``. Raises as `ShareGroupAdmin`.

    Topics and groups are asked first; then, one right after the other, the groups' offsets and the ends of the logs: of
    every partition of the topics that they describe, and of the state topic. A lag refers to a log end that the
    response does not have. So that this end lies between two listed ones, the groups are described again after the
    listing `before`; `after` lists last. A row's instant is that of its response. A group or partition that
    cannot be described, also because its coordinator does not answer, is a row with the reason; one that was deleted
    meanwhile has no row.

    A listing leaves out, without an error, what this principal may not DESCRIBE. So `groups` and `topic_ids`, which are
    known from state records, are asked for by name: a group that may not be described is a row with error 30, such a
    topic one with the status ``not_authorized``. A deleted one (69, 100) has no row. A state topic that is not listed
    has one, without a partition, with error 3 or 29: a look that found nothing is a look.
    """
    run: _Row = {"cluster_id": admin.cluster_id, "run_id": run_id}
    topics = {topic.name: topic for topic in admin.topics()}
    hidden = admin.hidden_topics(set(topic_ids) - {topic.topic_id for topic in topics.values()})
    at = _now()
    topic_rows = _topic_rows({**run, "first_seen_at": at, "last_seen_at": at}, topics.values(), hidden)
    run["phase"] = phase
    listings = {listing.group_id: listing for listing in admin.list_groups()}
    answers = admin.describe_groups(sorted(listings.keys() | set(groups)), tolerates_timeouts=True)
    described = [group for group in answers if group.error_code != GROUP_ID_NOT_FOUND]
    configs = {answer.group_id: answer for answer in admin.group_configs(group.group_id for group in described)}
    has_letters = any(each.configs and each.configs.get(TOPIC_OF_GROUP) for each in configs.values())
    prefix = broker_config(client_of(admin), TOPIC_PREFIX) if has_letters else None
    at = _now()
    group_rows = [
        {**run, "observed_at": at, **_group_row(listings.get(group.group_id), group, configs[group.group_id], prefix)}
        for group in described
    ]

    # A coordinator that timed out is not asked again: that costs a minute or more.
    silent = [
        GroupOffsets(group_id=group.group_id, error_code=group.error_code, error=group.error)
        for group in described
        if group.error_code in UNANSWERED
    ]
    there = [group.group_id for group in described if group.error_code not in UNANSWERED]
    offsets = admin.describe_group_offsets(there, tolerates_timeouts=True)
    shares_at = _now()
    logs = admin.list_offsets(_partitions(topics, offsets))
    logs_at = _now()
    if phase == "before":
        offsets = admin.describe_group_offsets(there, tolerates_timeouts=True)
        shares_at = _now()
    offset_rows = [{**run, "observed_at": shares_at, **row} for group in (*offsets, *silent) for row in _shares(group)]
    offset_rows += [{**run, "observed_at": logs_at, **_log_row(log, topics)} for log in logs]
    if STATE_TOPIC not in topics:
        (topic,) = admin.topics([STATE_TOPIC])  # absent (error 3), or not to be described (29)
        error = {"topic": topic.name, "error_code": topic.error_code, "error": topic.error}
        offset_rows.append({**run, "observed_at": _now(), **error})
    return SourceBatch(
        source_partition=SourcePartition(f"observation/{admin.cluster_id}"),
        rows={
            "topics": pa.Table.from_pylist(topic_rows, schema=TOPICS),
            "group_observations": pa.Table.from_pylist(group_rows, schema=GROUP_OBSERVATIONS),
            "offset_observations": pa.Table.from_pylist(offset_rows, schema=OFFSET_OBSERVATIONS),
        },
    )


def unanswered_groups(batch: SourceBatch) -> tuple[str, ...]:
    """The groups in a batch of `observe` whose coordinator did not answer, by id."""
    tables = (batch.rows[name] for name in ("group_observations", "offset_observations"))
    rows = (row for table in tables for row in table.select(["group_id", "error_code"]).to_pylist())
    return tuple(sorted({row["group_id"] for row in rows if row["group_id"] and row["error_code"] in UNANSWERED}))


def _partitions(topics: Mapping[str, TopicDescription], groups: Iterable[GroupOffsets]) -> list[TopicPartition]:
    """Every partition of the topics that groups describe, and of the state topic, as far as they are there."""
    named = {offset.topic for group in groups for offset in group.offsets} | {STATE_TOPIC}
    return [
        TopicPartition(topic=name, partition=index)
        for name in sorted(named & topics.keys())
        for index in range(topics[name].partition_count)
    ]


def _topic_rows(side: _Row, topics: Iterable[TopicDescription], hidden: Iterable[str]) -> list[_Row]:
    """A listing of every topic that has an id, and of the topic ids `hidden`."""
    rows = [
        {**side, **asdict(topic), "topic": topic.name, "status": "present"}
        for topic in topics
        if topic.topic_id is not None
    ]
    return rows + [{**side, "topic_id": topic_id, "status": "not_authorized"} for topic_id in sorted(hidden)]


def _group_row(
    listing: GroupListing | None, group: GroupDescription, configs: GroupConfigs, prefix: str | None
) -> _Row:
    """An error about only its configuration leaves the error code 0. A group that no broker listed was asked for by
    its name. `prefix`: the brokers' TOPIC_PREFIX, which stands beside the group's own configuration."""
    common = {} if prefix is None else {TOPIC_PREFIX: prefix}
    return {
        **asdict(group),
        "group_type": "share" if listing is None else listing.group_type,
        "group_state": group.state or (None if listing is None else listing.state),
        "members": None if group.error_code else len(group.members),
        # Without the ones for groups of other types.
        "configs": None
        if configs.configs is None
        else sorted(
            pair for pair in {**configs.configs, **common}.items() if not pair[0].startswith(_OTHER_GROUP_TYPES)
        ),
        "error": group.error or (f"configuration: {configs.error}" if configs.error else None),
    }


def _shares(group: GroupOffsets) -> list[_Row]:
    """One row a share partition. A group whose offsets could not be described has one row without a partition."""
    if group.error_code:
        return [{"group_id": group.group_id, "error_code": group.error_code, "error": group.error}]
    return [{"group_id": group.group_id, **asdict(offset)} for offset in group.offsets]


def _log_row(log: LogOffsets, topics: Mapping[str, TopicDescription]) -> _Row:
    """A topic partition, with the ends of its log."""
    return {
        **asdict(log),
        "topic_id": topics[log.topic].topic_id,
        "log_end_offset": log.high_watermark,
        "leader_epoch": None,  # a share partition's
    }
