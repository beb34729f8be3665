"""``ShareGroupOffsetsSource``: groups, start offsets, lag and log offsets, observed on a schedule; and share groups as
gauges for Prometheus, from one sample of the brokers.

The gauges' names are those that exporters of share groups use already. A lag that is not known has no series: the
group's count of such share partitions is a series of its own, and a sum over all share partitions is there only when
each is known. However large a cluster is, its series are bounded, and what has none is counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, ClassVar, Final

import pyarrow.compute as pc

from acktrail.config import KafkaConfig
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.model.acls import Acl, Purpose
from acktrail.model.log_positions import SourcePartition, state_source_partition
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.text_parsing import parse_toml
from acktrail.times import new_run_id
from acktrail_connect.address_keys import KAFKA_KEYS
from acktrail_connect.config_def import ConfigDef, keys_in
from acktrail_connect.contract import Config, Gauge
from acktrail_connect.source_batches import SourceBatch
from acktrail_connect.sources.cluster_sources import ScheduledSource, ScheduledTask
from acktrail_connect.sources.observation import observe

_WAIT: Final = "state.wait.ms"
_STATES: Final = ("Dead", "Empty", "Stable", "Unknown")
_MOST_SHARE_PARTITIONS: Final = 2_000
"""Series of single share partitions at most; those with the greatest lag come first."""
_ABOUT: Final = parse_toml(files(__package__).joinpath("group_gauges.toml").read_text("utf-8"))
"""What each gauge is about, by its name behind ``kafka_share_group_``."""
_MOST_GROUPS: Final = 1_000
"""Groups with series of their own at most; those with the greatest known lag come first, then unknown ones."""


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
