"""Share groups as gauges for Prometheus, from one sample of the brokers.

The names are those that exporters of share groups use already. A lag that is not known has no series: the group's count
of such share partitions is a series of its own, and a sum over all share partitions is there only when each is known.
However large a cluster is, its series are bounded, and what has none is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from acktrail.connect.contract import Gauge
from acktrail.connect.source_batches import SourceBatch

_STATES: Final = ("Dead", "Empty", "Stable", "Unknown")
_MOST_SHARE_PARTITIONS: Final = 2_000
"""Series of single share partitions at most; those with the greatest lag come first."""
_MOST_GROUPS: Final = 1_000
"""Groups with series of their own at most; those with the greatest known lag come first, then unknown ones."""


def group_gauges(batch: SourceBatch, at: float) -> tuple[Gauge, ...]:
    """The gauges of an observation's batch, taken `at` seconds since the epoch."""
    topics = {row["topic_id"]: row["topic"] for row in batch.rows["topics"].to_pylist()}
    groups = batch.rows["group_observations"].to_pylist()
    shares = [row for row in batch.rows["offset_observations"].to_pylist() if row["group_id"] is not None]
    errors = sum(1 for row in groups if row["error_code"])
    lags: dict[str, list[int | None]] = {row["group_id"]: [] for row in groups}
    for row in shares:
        lags.setdefault(row["group_id"], []).append(row["lag"])
    shown = set(sorted(lags, key=lambda name: (-_known_sum(lags[name]), -lags[name].count(None), name))[:_MOST_GROUPS])
    named = [row for row in shares if row["partition"] is not None]
    return (
        *_of_groups([row for row in groups if row["group_id"] in shown]),
        *_sums({name: found for name, found in lags.items() if name in shown and found}),
        *_of_share_partitions(named, topics),
        Gauge(
            name="kafka_share_group_exporter_groups_without_series",
            about="Groups that were observed and have no series of their own: those with the least known lag.",
            value=len(lags) - len(shown),
        ),
        Gauge(
            name="kafka_share_group_exporter_share_partitions_without_series",
            about="Share partitions that were observed and have no series of their own: the least known lags.",
            value=max(0, len(named) - _MOST_SHARE_PARTITIONS),
        ),
        Gauge(
            name="kafka_share_group_exporter_last_success_timestamp_seconds",
            about="When the brokers were last observed.",
            value=at,
        ),
        Gauge(
            name="kafka_share_group_exporter_last_collect_error",
            about="Groups that could not be described at the last observation.",
            value=errors,
        ),
    )


def _of_groups(groups: list[dict[str, Any]]) -> Iterator[Gauge]:
    for row in groups:
        group = {"group": row["group_id"]}
        state = (row["group_state"] or "Unknown").capitalize()
        for each in (*_STATES, *(() if state in _STATES else (state,))):
            yield Gauge(
                name="kafka_share_group_state",
                about="1 for the state that a share group is in.",
                value=float(each == state),
                labels={**group, "state": each},
            )
        if row["members"] is not None:
            yield Gauge(
                name="kafka_share_group_members",
                about="Members of a share group.",
                value=row["members"],
                labels=group,
            )


def _known_sum(lags: Iterable[int | None]) -> int:
    return sum(lag for lag in lags if lag is not None)


def _sums(lags: Mapping[str, Sequence[int | None]]) -> Iterator[Gauge]:
    for group_id, found in sorted(lags.items()):
        group = {"group": group_id}
        known = [lag for lag in found if lag is not None]
        if len(known) == len(found):
            yield Gauge(
                name="kafka_share_group_lag_sum",
                about="Lag of a share group over all its share partitions; absent while one is not known.",
                value=sum(known),
                labels=group,
            )
        yield Gauge(
            name="kafka_share_group_lag_unknown_partitions",
            about="Share partitions of a group whose lag is not known.",
            value=len(found) - len(known),
            labels=group,
        )


def _of_share_partitions(shares: list[dict[str, Any]], topics: Mapping[str, str]) -> Iterator[Gauge]:
    shares.sort(key=lambda row: (-(row["lag"] or 0), row["group_id"], row["topic_id"] or "", row["partition"]))
    for row in shares[:_MOST_SHARE_PARTITIONS]:
        labels = {
            "group": row["group_id"],
            "topic": row["topic"] or topics.get(row["topic_id"], row["topic_id"] or ""),
            "partition": str(row["partition"]),
        }
        for name, about, column in (
            ("kafka_share_group_lag", "Records of a share partition that are not completed.", "lag"),
            ("kafka_share_group_start_offset", "Start offset of a share partition.", "start_offset"),
        ):
            if row[column] is not None:
                yield Gauge(name=name, about=about, value=row[column], labels=labels)
