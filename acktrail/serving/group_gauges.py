"""Share groups as gauges for Prometheus, from one look at the brokers.

The gauges' names are those that exporters of share groups use already. A lag that is not known has no series: the
group's count of such share partitions is a series of its own, and a sum over all share partitions is there only when
each is known. However large a cluster is, its series are bounded, and what has none is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from acktrail.package_data import metric_definitions

_STATES: Final = ("Dead", "Empty", "Stable", "Unknown")
_DEFINITIONS: Final = metric_definitions("acktrail.serving", "brokers")
MOST_SHARE_PARTITIONS: Final = 2_000
"""Series of single share partitions at most; those with the greatest lag come first."""
_MOST_GROUPS: Final = 1_000
"""Groups with series of their own at most; those with the greatest known lag come first, then unknown ones."""


class SeenGroup(NamedTuple):
    """A group as a broker describes it; None: not known."""

    group_id: str
    state: str | None
    members: int | None
    error_code: int


class SeenQueue(NamedTuple):
    """A share partition as its group describes it. `partition` None: the group's share partitions are not known.
    `oldest_s`: the age of its oldest unfinished record in seconds, at least and at most; None: not known."""

    group_id: str
    topic: str
    partition: int | None
    lag: int | None
    start_offset: int | None
    oldest_s: tuple[float | None, float | None] = (None, None)


class GroupGauge(NamedTuple):
    """A number with its name, what it is about, and its labels."""

    name: str
    about: str
    value: float
    labels: Mapping[str, str]


def by_urgency(queues: Iterable[SeenQueue]) -> list[SeenQueue]:
    """Single share partitions, the greatest known lag first: the first `MOST_SHARE_PARTITIONS` have series."""
    named = [queue for queue in queues if queue.partition is not None]
    return sorted(named, key=lambda queue: (-(queue.lag or 0), queue.group_id, queue.topic, queue.partition))


def gauges_of(groups: Sequence[SeenGroup], queues: Sequence[SeenQueue], at: float) -> Iterator[GroupGauge]:
    """The gauges of a look that was taken `at` seconds since the epoch."""
    lags: dict[str, list[int | None]] = {group.group_id: [] for group in groups}
    for queue in queues:
        lags.setdefault(queue.group_id, []).append(queue.lag)
    shown = set(sorted(lags, key=lambda name: (-_known_sum(lags[name]), -lags[name].count(None), name))[:_MOST_GROUPS])
    named = by_urgency(queues)
    yield from _of_groups(group for group in groups if group.group_id in shown)
    yield from _sums({name: found for name, found in lags.items() if name in shown and found})
    yield from _of_queues(named[:MOST_SHARE_PARTITIONS])
    yield from _gauges(
        {},
        exporter_groups_without_series=len(lags) - len(shown),
        exporter_share_partitions_without_series=max(0, len(named) - MOST_SHARE_PARTITIONS),
        exporter_last_success_timestamp_seconds=at,
        exporter_last_collect_error=sum(1 for group in groups if group.error_code),
        exporter_up=1,
    )


def no_groups() -> Iterator[GroupGauge]:
    """The gauges while the brokers do not answer: none is of a group."""
    return _gauges({}, exporter_up=0)


def _gauges(labels: Mapping[str, str], **values: float | None) -> Iterator[GroupGauge]:
    """A gauge for each value that is known."""
    for name, value in values.items():
        if value is not None:
            definition = _DEFINITIONS[f"kafka_share_group_{name}"]
            yield GroupGauge(definition.name, definition.about, value, labels)


def _of_groups(groups: Iterable[SeenGroup]) -> Iterator[GroupGauge]:
    for group in groups:
        labels = {"group": group.group_id}
        state = (group.state or "Unknown").capitalize()
        for each in dict.fromkeys((*_STATES, state)):
            yield from _gauges({**labels, "state": each}, state=float(each == state))
        yield from _gauges(labels, members=group.members)


def _known_sum(lags: Iterable[int | None]) -> int:
    return sum(lag for lag in lags if lag is not None)


def _sums(lags: Mapping[str, Sequence[int | None]]) -> Iterator[GroupGauge]:
    for group_id, found in sorted(lags.items()):
        unknown = found.count(None)
        lag_sum = None if unknown else _known_sum(found)
        yield from _gauges({"group": group_id}, lag_sum=lag_sum, lag_unknown_partitions=unknown)


def _of_queues(queues: Iterable[SeenQueue]) -> Iterator[GroupGauge]:
    for queue in queues:
        labels = {"group": queue.group_id, "topic": queue.topic, "partition": str(queue.partition)}
        yield from _gauges(labels, lag=queue.lag, start_offset=queue.start_offset)
        for bound, age in zip(("at_least", "at_most"), queue.oldest_s, strict=True):
            yield from _gauges({**labels, "bound": bound}, oldest_unfinished_age_seconds=age)
