"""``ShareGroupOffsetsSource``: groups, start offsets, lag and log offsets, observed on a schedule; and share groups as
gauges for Prometheus, from one sample of the brokers.

The gauges' names are those that exporters of share groups use already. A lag that is not known has no series: the
group's count of such share partitions is a series of its own, and a sum over all share partitions is there only when
each is known. However large a cluster is, its series are bounded, and what has none is counted.
"""

from __future__ import annotations

import datetime as dt
import time
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib.resources import files
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import KafkaConfig
from acktrail.connect.config_def import ConfigDef, keys_in
from acktrail.connect.contract import Config, Gauge
from acktrail.connect.source_batches import SourceBatch, SourcePartition, state_source_partition
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
from acktrail.kafka.source_connectors import KAFKA_KEYS, ScheduledSource, ScheduledTask
from acktrail.model.acls import Acl, Purpose
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.times import new_run_id

_WAIT: Final = "state.wait.ms"
_STATES: Final = ("Dead", "Empty", "Stable", "Unknown")
_MOST_SHARE_PARTITIONS: Final = 2_000
"""Series of single share partitions at most; those with the greatest lag come first."""
_ABOUT: Final = tomllib.loads(files(__package__).joinpath("group_gauges.toml").read_text("utf-8"))
"""What each gauge is about, by its name behind ``kafka_share_group_``."""
_MOST_GROUPS: Final = 1_000
"""Groups with series of their own at most; those with the greatest known lag come first, then unknown ones."""
_OTHER_GROUP_TYPES: Final = ("consumer.", "streams.")
_now: Final = partial(dt.datetime.now, dt.UTC)
_Row = dict[str, Any]


class ShareGroupOffsetsSource(ScheduledSource):
    """Observes the brokers: a sample before and one after the state topic is exported, as a reconciliation needs."""

    purpose = Purpose.OFFSETS
    description = "Groups, start offsets, lag and log offsets as brokers describe them, on a schedule."
    config_def: ClassVar[ConfigDef] = KAFKA_KEYS.with_keys(keys_in(__package__, "offsets_keys.toml"))

    def task(self, config: Config) -> ObservationTask:  # noqa: ARG002  # there is one task
        return ObservationTask(self._kafka, interval_s=self.seconds(), wait_s=self.seconds(_WAIT), acls=self.acls())


class ObservationTask(ScheduledTask):
    """Two samples under a run id of their own. The second waits, at most `wait_s`, until the exported positions have
    reached the ends of the state topic's logs that the first one saw."""

    def __init__(self, config: KafkaConfig, *, interval_s: float, wait_s: float, acls: Sequence[Acl] = ()) -> None:
        super().__init__(config, interval_s=interval_s, acls=acls)
        self._wait_s = wait_s
        self._run_id: str | None = None
        self._ends: Mapping[SourcePartition, int] = {}
        self._gauges: Sequence[Gauge] = ()

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        """The next sample when it is time for it."""
        assert self._admin is not None
        if self._run_id is None:
            return super().poll(timeout_s)
        if time.monotonic() - self._began_at < self._wait_s and not self._is_exported():
            self._context.stop.wait(timeout_s)
            return ()
        batch = observe(self._admin, run_id=self._run_id, phase="after")
        self._run_id = None
        self._gauges = group_gauges(batch, time.time())
        return [batch]

    def look(self, admin: ShareGroupAdmin) -> SourceBatch:
        """The first sample."""
        self._run_id = new_run_id()
        batch = observe(admin, run_id=self._run_id, phase="before")
        self._ends = self._log_ends(admin.cluster_id, batch)
        return batch

    def gauges(self) -> Sequence[Gauge]:
        """The newest sample's groups."""
        return self._gauges

    def _is_exported(self) -> bool:
        reached = self._context.committed(list(self._ends))
        return all(_number(reached.get(each)) >= end for each, end in self._ends.items())

    @staticmethod
    def _log_ends(cluster_id: str, batch: SourceBatch) -> dict[SourcePartition, int]:
        """The end of each log of the state topic that has records, as the sample has it."""
        rows = batch.rows["offset_observations"]
        logs = rows.filter(pc.and_(pc.equal(rows["topic"], STATE_TOPIC), pc.greater(rows["log_end_offset"], 0)))
        return {
            state_source_partition(cluster_id, log["topic_id"], log["partition"]): log["log_end_offset"]
            for log in logs.select(["topic_id", "partition", "log_end_offset"]).to_pylist()
        }


def _number(position: object) -> int:
    return position if isinstance(position, int) else -1


def group_gauges(batch: SourceBatch, at: float) -> tuple[Gauge, ...]:
    """The gauges of an observation's batch, taken `at` seconds since the epoch."""
    topics = {row["topic_id"]: row["topic"] for row in batch.rows["topics"].to_pylist()}
    groups = batch.rows["group_observations"].to_pylist()
    shares = [row for row in batch.rows["offset_observations"].to_pylist() if row["group_id"] is not None]
    lags: dict[str, list[int | None]] = {row["group_id"]: [] for row in groups}
    for row in shares:
        lags.setdefault(row["group_id"], []).append(row["lag"])
    shown = set(sorted(lags, key=lambda name: (-_known_sum(lags[name]), -lags[name].count(None), name))[:_MOST_GROUPS])
    named = [row for row in shares if row["partition"] is not None]
    about_itself = _gauges(
        {},
        exporter_groups_without_series=len(lags) - len(shown),
        exporter_share_partitions_without_series=max(0, len(named) - _MOST_SHARE_PARTITIONS),
        exporter_last_success_timestamp_seconds=at,
        exporter_last_collect_error=sum(1 for row in groups if row["error_code"]),
    )
    return (
        *_of_groups([row for row in groups if row["group_id"] in shown]),
        *_sums({name: found for name, found in lags.items() if name in shown and found}),
        *_of_share_partitions(named, topics),
        *about_itself,
    )


def _gauges(labels: Mapping[str, str], **values: float | None) -> Iterator[Gauge]:
    """A gauge for each value that is known."""
    for name, value in values.items():
        if value is not None:
            yield Gauge(name=f"kafka_share_group_{name}", about=_ABOUT[name], value=value, labels=labels)


def _of_groups(groups: list[dict[str, Any]]) -> Iterator[Gauge]:
    for row in groups:
        group = {"group": row["group_id"]}
        state = (row["group_state"] or "Unknown").capitalize()
        for each in dict.fromkeys((*_STATES, state)):
            yield from _gauges({**group, "state": each}, state=float(each == state))
        yield from _gauges(group, members=row["members"])


def _known_sum(lags: Iterable[int | None]) -> int:
    return sum(lag for lag in lags if lag is not None)


def _sums(lags: Mapping[str, Sequence[int | None]]) -> Iterator[Gauge]:
    for group_id, found in sorted(lags.items()):
        unknown = found.count(None)
        lag_sum = None if unknown else _known_sum(found)
        yield from _gauges({"group": group_id}, lag_sum=lag_sum, lag_unknown_partitions=unknown)


def _of_share_partitions(shares: list[dict[str, Any]], topics: Mapping[str, str]) -> Iterator[Gauge]:
    shares.sort(key=lambda row: (-(row["lag"] or 0), row["group_id"], row["topic_id"] or "", row["partition"]))
    for row in shares[:_MOST_SHARE_PARTITIONS]:
        topic = row["topic"] or topics.get(row["topic_id"], row["topic_id"] or "")
        labels = {"group": row["group_id"], "topic": topic, "partition": str(row["partition"])}
        yield from _gauges(labels, lag=row["lag"], start_offset=row["start_offset"])


def observe(
    admin: ShareGroupAdmin,
    *,
    run_id: str,
    phase: str,
    groups: Collection[str] = (),
    topic_ids: Collection[str] = (),
) -> SourceBatch:
    """One side (`phase`: before or after) of an observation: rows of ``topics``, ``group_observations`` and
    ``offset_observations``. Raises as `ShareGroupAdmin`.

    Topics and groups are asked first; then, one right after the other, the groups' offsets and the ends of the logs: of
    every partition of the topics that they describe, and of the state topic. A lag refers to a log end that the
    response does not have. So that this end lies between two listed ones, the groups are described again after the
    listing `before`; `after` lists last. A row's instant is that of its response. A group or
    partition that cannot be described, also because its coordinator is silent, is a row with the reason; one that was
    deleted meanwhile has no row.

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
    answers = admin.describe_groups(sorted(listings.keys() | set(groups)), tolerates_silence=True)
    described = [group for group in answers if group.error_code != GROUP_ID_NOT_FOUND]
    configs = {answer.group_id: answer for answer in admin.group_configs(group.group_id for group in described)}
    has_letters = any(each.configs and each.configs.get(TOPIC_OF_GROUP) for each in configs.values())
    prefix = broker_config(client_of(admin), TOPIC_PREFIX) if has_letters else None
    at = _now()
    group_rows = [
        {**run, "observed_at": at, **_group_row(listings.get(group.group_id), group, configs[group.group_id], prefix)}
        for group in described
    ]

    # A silent coordinator is not asked again: that costs a minute or more.
    silent = [
        GroupOffsets(group_id=group.group_id, error_code=group.error_code, error=group.error)
        for group in described
        if group.error_code in UNANSWERED
    ]
    there = [group.group_id for group in described if group.error_code not in UNANSWERED]
    offsets = admin.describe_group_offsets(there, tolerates_silence=True)
    shares_at = _now()
    logs = admin.list_offsets(_partitions(topics, offsets))
    logs_at = _now()
    if phase == "before":
        offsets = admin.describe_group_offsets(there, tolerates_silence=True)
        shares_at = _now()
    offset_rows = [{**run, "observed_at": shares_at, **row} for group in (*offsets, *silent) for row in _shares(group)]
    offset_rows += [{**run, "observed_at": logs_at, **_log_row(log, topics)} for log in logs]
    if STATE_TOPIC not in topics:
        offset_rows += [{**run, "observed_at": _now(), **_state_topic_row(*admin.topics([STATE_TOPIC]))}]
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


def _state_topic_row(topic: TopicDescription) -> _Row:
    """A state topic that is not listed, by its name: absent (error 3), or not to be described (29)."""
    return {"topic": topic.name, "error_code": topic.error_code, "error": topic.error}


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
    """An error about its configuration alone leaves the error code 0. A group that no broker listed was asked for by
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
