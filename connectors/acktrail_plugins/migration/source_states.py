"""Where groups stood at a moment, by the tables of their cluster; the cluster itself may be gone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from acktrail.change.collection.delivered_records import replayed_start, topics_by_id
from acktrail.change.collection.facts import sum_known
from acktrail.change.planning.notices import Notice, Severity
from acktrail.change.request.reset_request import ResetRequest, groups_among, is_in
from acktrail.config import TablesConfig
from acktrail.errors import ChangeRefused, ConfigurationError, near_names
from acktrail.model.batches import DeliveryState, StateBatch, combine_state_batches
from acktrail.times import instant_text, utc_text

if TYPE_CHECKING:
    from acktrail.reconcile.replay_resume import TopicAtTime

_FINISHED: Final[Mapping[int, str]] = {DeliveryState.ACKNOWLEDGED: "acknowledged", DeliveryState.ARCHIVED: "archived"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedState:
    """What another cluster had of a share partition; only a start offset of it can be carried here.

    `start_offset` is the first offset there that was not finished; `acknowledged`, `archived` and `in_flight` count
    what was delivered from there on. Kafka has no request that sets such states: finished ones are delivered again,
    delivery counts start at one. `passed` finished records below `start_offset` are delivered again as well, because
    where `start_offset` is on this cluster is not known exactly; at most `passed_most`. None: not known, and `reason`
    says why. The numbers count offsets of the source, as its state does.
    """

    topic: str
    start_offset: int | None
    acknowledged: int | None = None
    archived: int | None = None
    in_flight: int | None = None
    passed: int | None = None
    passed_most: int | None = None
    reason: str | None = None

    @property
    def delivered_again(self) -> int | None:
        """How many finished records are delivered again."""
        return sum_known((self.acknowledged, self.archived, self.passed))

    @property
    def delivered_again_most(self) -> int | None:
        """How many at most."""
        return sum_known((self.acknowledged, self.archived, self.passed_most))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePartition:
    """A share partition of the source. `recorded_start` is the start offset in its state; `carried` what it had, and
    where its first unfinished record is."""

    group_id: str
    partition: int
    recorded_start: int | None
    carried: CarriedState

    @property
    def place(self) -> tuple[str, int]:
        """Topic and partition on the source."""
        return self.carried.topic, self.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStates:
    """The share partitions that were asked for, in the order of group, topic and partition. `partition_counts` by topic
    as the tables have them; `notices` about what the export lacks."""

    cluster_id: str
    partitions: tuple[SourcePartition, ...]
    partition_counts: Mapping[str, int]
    notices: tuple[Notice, ...]

    @property
    def group_ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part.group_id for part in self.partitions))


def read_source(config: TablesConfig, request: ResetRequest, at_ms: int | None) -> SourceStates:
    """The share partitions of the groups and topics of `request` at a moment (None: the newest), from the tables.

    Raises ChangeRefused: `no_such_group`, `nothing_to_migrate`. ConfigurationError: nothing was exported, or by no
    known cluster. RetryableError: the storage failed.
    """
    from acktrail.reconcile.replay_resume import states_of_topic, topic_at_time
    from acktrail.tables.cluster_check import cluster_of
    from acktrail.tables.delta.store import Tables

    tables = Tables(config)
    moment = topic_at_time(tables, at_ms)
    records = tables.snapshot("state_records")
    cluster_id = None if records is None else cluster_of(records)
    if cluster_id is None:
        raise ConfigurationError(f"tables at {tables.root} name no cluster", hint="are they an export's?")
    alone = request.groups[0] if len(request.groups) == 1 and not request.group_globs else None
    rows = states_of_topic(tables, moment, alone).to_pylist()
    wanted = _selected(request, sorted({row["group_id"] for row in rows}), instant_text(at_ms))
    names, counts = topics_by_id(tables)
    mine = [row for row in rows if row["group_id"] in wanted]
    mine.sort(key=lambda row: row["last_record_timestamp_ms"] or 0)  # of incarnations of a topic the last written one
    newest = {(row["group_id"], names.get(row["topic_id"]), row["partition"]): row for row in mine}
    parts = [
        source_partition(row, topic)
        for (_, topic, index), row in newest.items()
        if topic is not None and (not request.topics or is_in(request.topics, topic, index))
    ]
    if not parts:
        text = "the tables have no share partition of these groups and topics"
        raise ChangeRefused("nothing_to_migrate", text, hint="acktrail record state shows what there is")
    nameless = sorted({row["topic_id"] for row in mine if row["topic_id"] not in names})
    return SourceStates(
        cluster_id=cluster_id,
        partitions=tuple(sorted(parts, key=lambda part: (part.group_id, part.place))),
        partition_counts=counts,
        notices=tuple(_notices(moment, nameless)),
    )


def source_partition(row: Mapping[str, Any], topic: str) -> SourcePartition:
    """The share partition in a row of a replay (``acktrail.reconcile.partition_replay.REPLAYED``)."""
    start, reason = replayed_start(row)
    counts: dict[str, Any] = {}
    if start is not None:
        counts = dict.fromkeys(("acknowledged", "archived", "in_flight"), 0)
        for batch in combine_state_batches([StateBatch(**each) for each in row["batches"] or ()], (), start):
            kind = _FINISHED.get(batch.delivery_state, "in_flight")
            counts[kind] += batch.last_offset - batch.first_offset + 1
    return SourcePartition(
        group_id=row["group_id"],
        partition=row["partition"],
        recorded_start=None if start is None else row["start_offset"],
        carried=CarriedState(topic=topic, start_offset=start, reason=reason, **counts),
    )


def _selected(request: ResetRequest, known: Collection[str], at: str | None) -> frozenset[str]:
    """The groups that are asked for, among those `known`."""
    when = "" if at is None else f" at {at}"
    if request.all_groups and not known:
        hint = "acktrail run export adds what was written since" if at is None else "give a later --at, or none"
        raise ChangeRefused("nothing_to_migrate", f"the tables have no share group{when}", hint=hint)
    groups, unmatched = groups_among(request, known)
    if unmatched:
        raise ChangeRefused("no_such_group", f"no share group in the tables matches {unmatched[0]!r}{when}")
    wanted = frozenset(groups)
    for group in sorted(wanted.difference(known)):
        near = near_names(group, known)
        hint = f"did you mean {', '.join(map(repr, near))}?" if near else "acktrail record state lists all"
        raise ChangeRefused("no_such_group", f"the tables have no share group {group!r}{when}", hint=hint)
    return wanted


def _notices(moment: TopicAtTime, nameless: Collection[str]) -> Iterator[Notice]:
    """What the export lacks for the moment."""
    until, asked = moment.exported_at, moment.at_ms
    if until is not None and (asked is None or moment.observation.observed_at > until):
        text = (
            f"the last state records were exported at {utc_text(until)}: what the groups did since is delivered again"
        )
        yield Notice(Severity.INFO if asked is None else Severity.WARNING, "exported_until", text)
    if moment.began_later:
        numbers = ", ".join(map(str, moment.began_later))
        text = (
            f"the export of state partitions {numbers} began after {instant_text(asked)}: share partitions that had a "
            "state then may be missing"
        )
        yield Notice(Severity.SERIOUS, "export_began_later", text)
    for topic_id in nameless:
        text = f"the name of the topic with id {topic_id} was never seen: nothing of it is carried"
        yield Notice(Severity.SERIOUS, "unnamed_topic", text)
