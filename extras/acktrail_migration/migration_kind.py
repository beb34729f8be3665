"""A migration as a kind of change: what is asked for, and a reset plan of the target, with what the source had of each
share partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from acktrail.change.apply.reset_kind import ResetChange
from acktrail.change.change_kind import ChangeKind
from acktrail.change.plan.change_plan import PartitionPlan
from acktrail.change.plan.notices import RefusedParts
from acktrail.change.plan.reset_plan import ResetPlan
from acktrail.change.request.reset_request import OutOfRange, ResetRequest, Strategy, StrategyKind, parse_request
from acktrail.errors import ChangeRefused
from acktrail.text_tables import KnownSum, table

_ROWS_SHOWN: Final = 60
_HEADERS: Final = (
    *("GROUP", "SOURCE", "PARTITION", "SOURCE-START", "TARGET", "NEW-OFFSET"),
    *("SOURCE-DONE", "ACKS-LOST", "SOURCE-ARCHIVED", "IN-FLIGHT", "NOTE"),
)


class TranslationWay(StrEnum):
    """How an offset of the source becomes one of the target."""

    SAME = "same"
    """The topics have the same offsets on both clusters."""
    TIMESTAMP = "timestamp"
    """By the time of the first record that is not finished."""
    MM2 = "mm2"
    """By what MirrorMaker 2 wrote about its mirroring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """Where start offsets come from, and how they are translated.

    `source_cluster_id` None: it was not read yet. `at_ms` None: the newest that was exported. `topic_map` has pairs of
    the source's and the target's name, `topic_prefix` is put before every other name. `offset_syncs` and `checkpoints`
    are MirrorMaker's topics. `asks_source`: the source cluster is there and was asked as well.
    """

    way: TranslationWay
    source_cluster_id: str | None = None
    at_ms: int | None = None
    topic_map: tuple[tuple[str, str], ...] = ()
    topic_prefix: str = ""
    offset_syncs: str | None = None
    checkpoints: str | None = None
    asks_source: bool = False

    @property
    def text(self) -> str:
        """Way and source, for people."""
        return f"{self.way.value} from cluster {self.source_cluster_id or '?'}"

    def target_topic(self, topic: str) -> str:
        """The target's name of a source topic (the prefix is MirrorMaker 2's ``DefaultReplicationPolicy``)."""
        return dict(self.topic_map).get(topic, self.topic_prefix + topic)


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
        return KnownSum.of((self.acknowledged, self.archived, self.passed)).total

    @property
    def delivered_again_most(self) -> int | None:
        """How many at most."""
        return KnownSum.of((self.acknowledged, self.archived, self.passed_most)).total


def parse_migration(params: Mapping[str, Any], *, asks_source: bool) -> tuple[ResetRequest, Migration]:
    """A migration from a person's input: `way`, `at_ms`, `topic_map` (``old=new``), `topic_prefix`, `offset_syncs`,
    `checkpoints`; and its request: `topics` of the source as ``topic[:0,1]``, and the fields of `ResetRequest`. Missing
    groups are created unless `allow_create` is false, offsets outside of the target's log refused unless `out_of_range`
    is ``clamp``. Raises ChangeRefused: with the rule's name."""
    way = params.get("way")
    if way not in list(TranslationWay):
        hint = f"one of {', '.join(TranslationWay)}"
        raise ChangeRefused("no_translation", f"--translate {way!r} is not a way of translation", hint=hint)
    migration = Migration(
        way=TranslationWay(way),
        at_ms=params.get("at_ms"),
        topic_map=_topic_map(params.get("topic_map") or ()),
        topic_prefix=str(params.get("topic_prefix") or ""),
        offset_syncs=params.get("offset_syncs") or None,
        checkpoints=params.get("checkpoints") or None,
        asks_source=asks_source,
    )
    if migration.way is TranslationWay.TIMESTAMP and not asks_source:
        text = "times of records are on the source cluster alone: the tables do not have them"
        raise ChangeRefused("source_needed", text, hint="give --ask-source, or another --translate")
    is_mm2, named = migration.way is TranslationWay.MM2, migration.offset_syncs or migration.checkpoints
    if is_mm2 and not named:
        hint = "--offset-syncs mm2-offset-syncs.CLUSTER.internal, --checkpoints CLUSTER.checkpoints.internal, or both"
        raise ChangeRefused("no_mirror_topic", "the topics of MirrorMaker are not given", hint=hint)
    if named and not is_mm2:
        raise ChangeRefused("two_translations", f"{way} does not use the topics of MirrorMaker", hint="--translate mm2")
    own = {"allow_create": True, "out_of_range": OutOfRange.REJECT.value}
    return parse_request({**own, **params}, Strategy(kind=StrategyKind.MIGRATE)), migration


def _topic_map(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for text in texts:
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            raise ChangeRefused("bad_topic_map", f"--topic-map {text!r} is not a pair of names", hint="old=new")
        if old in found:
            raise ChangeRefused("bad_topic_map", f"--topic-map names {old!r} twice", hint="name it once")
        found[old] = new
    twice = next((new for new in found.values() if list(found.values()).count(new) > 1), None)
    if twice is not None:
        raise ChangeRefused("bad_topic_map", f"two topics would become {twice!r}", hint="one source topic for each")
    return tuple(sorted(found.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationPlan(ResetPlan):
    """`carried` is what the source had of each of `partitions`, in their order; the impact of these is about the target
    alone."""

    migration: Migration
    carried: tuple[CarriedState, ...]


class _MigrationChange(ResetChange):
    plan_type: type[ResetPlan] = MigrationPlan
    command = "acktrail change plan migration"

    def text(self, plan: ResetPlan) -> str:
        """A table of the first share partitions, and the sums of those that are not refused."""
        assert isinstance(plan, MigrationPlan)
        rows = [_row(*each) for each in zip(plan.partitions, plan.carried, strict=True)]
        more = [f"... {len(rows) - _ROWS_SHOWN} more; every one is in --json"] if len(rows) > _ROWS_SHOWN else []
        return "\n".join([table(_HEADERS, rows[:_ROWS_SHOWN]), *more, _sums(plan), "on the target alone:"])


def _row(row: PartitionPlan, carried: CarriedState) -> tuple[object, ...]:
    target = "refused" if row.target_offset is None else row.target_offset
    again = _number(carried.delivered_again, carried.delivered_again_most)
    counts = (carried.acknowledged, carried.archived, carried.in_flight)
    return (
        *(row.group_id, carried.topic, row.partition, carried.start_offset, row.topic, target, again, *counts),
        carried.reason or "",
    )


def _number(exact: int | None, most: int | None) -> object:
    return exact if exact is not None or most is None else f"<={most}"


def _sums(plan: MigrationPlan) -> str:
    """Over the share partitions that are not refused; unknown where one of them is."""
    refused = RefusedParts(plan.refusals)
    rows = zip(plan.partitions, plan.carried, strict=True)
    known = [carried for row, carried in rows if row.key not in refused]
    names = ("delivered_again", "delivered_again_most", "acknowledged", "archived", "in_flight")
    again, most, *counts = (KnownSum.of(getattr(one, name) for one in known).total for name in names)
    acknowledged, archived, in_flight = map(_text, counts)
    inexact = sum(one.delivered_again is None for one in known)
    unknown = f" (not known exactly of {inexact})" if inexact else ""
    lines = (
        f"carried: {len(known)} start offset(s)",
        f"finished on the source, delivered again: {_text(_number(again, most))}{unknown}",
        f"  acknowledged on the source:            {acknowledged}",
        f"  archived on the source:                {archived}",
        f"in flight on the source, counts dropped: {in_flight}",
    )
    return "\n".join(lines)


def _text(number: object) -> str:
    return "unknown" if number is None else str(number)


MIGRATION: ChangeKind[Any] = _MigrationChange()
