"""The request of a reset: which groups, which share partitions, where to. Checked before any broker is asked."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from acktrail.branches import branches
from acktrail.errors import ChangeRefused
from acktrail.times import MissingTimeZone, ago_ms, instant_text, iso_duration_ms, now_ms, parse_instant

LARGEST_OFFSET: Final = (1 << 63) - 1
_LARGEST_PARTITION: Final = (1 << 31) - 1
_LONGEST_GROUP_ID: Final = (1 << 15) - 1
_LONGEST_TOPIC: Final = 249
_LONGEST_MS: Final = 10**14
_SHOWN: Final = 60


class StrategyKind(StrEnum):
    """Where share partitions are to start; named like the option of ``kafka-share-groups.sh`` where it has one."""

    TO_EARLIEST = "to-earliest"
    TO_LATEST = "to-latest"
    TO_OFFSET = "to-offset"
    TO_DATETIME = "to-datetime"
    BY_DURATION = "by-duration"
    """A duration before the plan is made (``kafka-consumer-groups.sh`` has it)."""
    SHIFT_BY = "shift-by"
    """N records from the present start offset; negative moves back."""
    TO_CURRENT = "to-current"
    """The present start offset: what is not finished is delivered again from there, with counts that restart."""
    FROM_FILE = "from-file"
    TO_HISTORY = "to-history"
    """What the exported state records say the start offset was at a moment."""
    TO_SNAPSHOT = "to-snapshot"
    """What an earlier plan found before it was carried out: undo."""
    MIGRATE = "migrate"
    """Where another cluster's group stood, translated: who makes the plan gives the offsets."""
    AFTER_DELETION = "after-deletion"
    """Where ``share.auto.offset.reset`` lets a group begin that has no state any more."""


_OWN_REQUEST: Final = frozenset({StrategyKind.MIGRATE, StrategyKind.AFTER_DELETION})
_NO_OPTIONS: Final = _OWN_REQUEST | {StrategyKind.TO_SNAPSHOT}
OWN_SCOPE: Final = _NO_OPTIONS | {StrategyKind.FROM_FILE}
"""What names its share partitions itself."""
WERE_THERE: Final = frozenset({StrategyKind.TO_SNAPSHOT, StrategyKind.TO_HISTORY, StrategyKind.MIGRATE})
"""Targets at which the group stood before, here or on another cluster."""
BY_OPTION: Final = tuple(kind.value for kind in StrategyKind if kind not in _NO_OPTIONS)
"""The strategies that a person names."""
_OPTIONS: Final = ", ".join(f"--{name}" for name in BY_OPTION)


class OutOfRange(StrEnum):
    """What happens to a target that is not in the log."""

    CLAMP = "clamp"
    REJECT = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicScope:
    """A topic, or some of its partitions; None: all it has when the plan is made."""

    topic: str
    partitions: tuple[int, ...] | None = None


def is_in(scopes: Iterable[TopicScope], topic: str, partition: int) -> bool:
    """Return whether one of `scopes` names the partition."""
    return any(s.topic == topic and (s.partitions is None or partition in s.partitions) for s in scopes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """Where to reset to. `number` is an offset or a signed count of records, `moment_ms` since the epoch, `source` a
    file or a plan id."""

    kind: StrategyKind
    number: int | None = None
    moment_ms: int | None = None
    source: str | None = None

    @property
    def text(self) -> str:
        """The strategy as a person would say it."""
        values = (self.number, instant_text(self.moment_ms), self.source)
        return " ".join([self.kind.value, *(str(value) for value in values if value is not None)])


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRequest:
    """A reset as asked for. Exactly one way to name groups, one scope, one strategy; what is allowed besides.

    A file and a snapshot have their own scope; `topics` narrows that of a snapshot. `allow_skip`: unfinished
    records may be skipped. `allow_create`: a group that does not exist may be created. `without_state`: the state
    topic may stay unread; nothing is counted then, and only the broker's description is verified. `allow_moved_on`: an
    undo may change what moved on since the plan that it takes back. `allow`: rules of branches
    (`plan_checks`) whose refusals only warn.
    """

    strategy: Strategy
    groups: tuple[str, ...] = ()
    group_globs: tuple[str, ...] = ()
    all_groups: bool = False
    topics: tuple[TopicScope, ...] = ()
    all_topics: bool = False
    out_of_range: OutOfRange = OutOfRange.CLAMP
    allow_skip: bool = False
    allow_create: bool = False
    without_state: bool = False
    reason: str = ""
    requested_by: str = ""
    allow_moved_on: bool = False
    allow: tuple[str, ...] = ()

    @property
    def may_skip(self) -> bool:
        """Whether records below the targets may be left behind: it is allowed, or the group was done with them then."""
        return self.allow_skip or self.strategy.kind in WERE_THERE


def groups_among(request: ResetRequest, known: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the groups that a request names, by id, and the globs that match none of those `known`. A named group need
    not be known."""
    listed = list(known)
    if request.all_groups:
        return tuple(listed), () if listed else ("*",)
    matched = {glob: fnmatch.filter(listed, glob) for glob in request.group_globs}
    found = {*request.groups, *(group for groups in matched.values() for group in groups)}
    return tuple(sorted(found)), tuple(glob for glob, groups in matched.items() if not groups)


def choose_strategy(chosen: Mapping[StrategyKind, str | None], *, now_ms: int) -> Strategy:
    """Return the strategy among those given, each with its value. Raises ChangeRefused: `no_strategy`,
    `two_strategies`, or the rule that its value breaks."""
    if not chosen or not _OWN_REQUEST.isdisjoint(chosen):
        raise ChangeRefused("no_strategy", "no target of the reset is given", hint=f"give one of {_OPTIONS}")
    if len(chosen) != 1:
        names = ", ".join(f"--{kind.value}" for kind in chosen)
        raise ChangeRefused("two_strategies", f"{names} exclude each other", hint="give one of them")
    ((kind, given),) = chosen.items()
    value = given or ""
    match kind:
        case StrategyKind.TO_OFFSET:
            return Strategy(kind=kind, number=parse_offset(value, f"--{kind.value}"))
        case StrategyKind.SHIFT_BY:
            return Strategy(kind=kind, number=_parse_shift(value))
        case StrategyKind.TO_DATETIME | StrategyKind.TO_HISTORY:
            return Strategy(kind=kind, moment_ms=_moment(kind, value, now_ms))
        case StrategyKind.BY_DURATION:
            return Strategy(kind=kind, moment_ms=max(0, now_ms - parse_duration(value)))
        case StrategyKind.FROM_FILE | StrategyKind.TO_SNAPSHOT if not value:
            raise ChangeRefused("no_strategy", f"--{kind.value} needs a value", hint="name it")
    return Strategy(kind=kind, source=value if kind in OWN_SCOPE else None)


def _moment(kind: StrategyKind, text: str, now_ms: int) -> int:
    ago = ago_ms(text, now_ms)
    moment_ms = parse_moment(text) if ago is None else ago
    if kind is StrategyKind.TO_HISTORY and moment_ms > now_ms:
        text = f"--to-history {instant_text(moment_ms)} is in the future: it is {instant_text(now_ms)} now"
        raise ChangeRefused("future_time", text, hint="give a time that the exported records reach")
    return moment_ms


def parse_moment(text: str) -> int:
    """Return the ms since the epoch of a date and time with time zone: ``Z``, ``+02:00``, ``+0200`` or ``+02``. Kafka's
    tools take a time without a zone as UTC. Here it is refused, because many people mean local time. Raises
    ChangeRefused: `bad_datetime` or `timezone_missing`."""
    try:
        moment_ms = parse_instant(text)
    except (ValueError, OverflowError) as error:
        if isinstance(error, MissingTimeZone) and "T" in text:
            hint = "append Z for UTC, or an offset such as +02:00"
            raise ChangeRefused("timezone_missing", f"{excerpt(text)} has no time zone", hint=hint) from None
        hint = "for example 2026-01-31T13:30:00Z, ...T13:30:00.000+02:00, or 1h for an hour ago"
        raise ChangeRefused("bad_datetime", f"{excerpt(text)} is not a date and time", hint=hint) from None
    if moment_ms < 0:
        raise ChangeRefused("bad_datetime", f"{excerpt(text)} is before 1970", hint="records have no such time")
    return moment_ms


def parse_duration(text: str) -> int:
    """Return the ms of ``PnDTnHnMnS``. Raises ChangeRefused: `bad_duration`."""
    try:
        duration_ms = iso_duration_ms(text)
    except ValueError:
        hint = "for example PT30M, PT6H or P1DT12H"
        raise ChangeRefused("bad_duration", f"{excerpt(text)} is not a duration", hint=hint) from None
    if duration_ms > _LONGEST_MS:
        raise ChangeRefused(
            "bad_duration", f"{excerpt(text)} is too long: Kafka did not exist then", hint="for example P7D"
        )
    return duration_ms


def excerpt(text: str) -> str:
    """Return `text` in quotes for a message, cut if it is long."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}... ({len(text)} characters)"


def parse_offset(text: str, where: str) -> int:
    """Return the offset that `text` is. Raises ChangeRefused: `negative_target` or `bad_offset`."""
    if re.fullmatch(r"-\d+", text.strip(), re.ASCII):
        hint = "Kafka would store it, -1 as 'not initialized': use --to-earliest for the start of the log"
        raise ChangeRefused("negative_target", f"{where}: {excerpt(text.strip())} is below 0", hint=hint)
    if not re.fullmatch(r"\d{1,19}", text.strip(), re.ASCII) or int(text) > LARGEST_OFFSET:
        hint = f"a number from 0 to {LARGEST_OFFSET}"
        raise ChangeRefused("bad_offset", f"{where}: {excerpt(text)} is not an offset", hint=hint)
    return int(text)


def _parse_shift(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,19}", text.strip(), re.ASCII) or abs(int(text)) > LARGEST_OFFSET:
        hint = "for example 100, or -100 to go back"
        raise ChangeRefused("bad_offset", f"--shift-by: {excerpt(text)} is not a number of records", hint=hint)
    return int(text)


def parse_topic(text: str) -> TopicScope:
    """Return the scope ``topic`` or ``topic:0,1,2``. A topic's name has no colon. Raises ChangeRefused: `bad_scope` or
    `duplicate_partition`."""
    topic, colon, listed = text.partition(":")
    if not topic or len(topic) > _LONGEST_TOPIC:
        raise ChangeRefused("bad_scope", f"--topic {excerpt(text)} names no topic", hint="topic, or topic:0,1,2")
    if not colon:
        return TopicScope(topic=topic)
    for part in (parts := listed.split(",")):
        if not re.fullmatch(r"\d{1,10}", part, re.ASCII) or int(part) > _LARGEST_PARTITION:
            what = f"--topic {excerpt(text)}: {excerpt(part)} is not a partition"
            raise ChangeRefused("bad_scope", what, hint="topic:0,1,2")
    scope = TopicScope(topic=topic, partitions=tuple(map(int, parts)))
    _refuse_twice([scope], text)
    return scope


def parse_request(params: Mapping[str, Any], strategy: Strategy | None = None) -> ResetRequest:
    """Return a request from a person's input: the fields of `ResetRequest`, but topics as ``topic[:0,1]``, and
    `strategies` (value by name), unless the `strategy` is given. What is missing or empty has its default. Raises
    ChangeRefused, with the rule's name."""
    if strategy is None:
        chosen = {StrategyKind(kind): value for kind, value in params.get("strategies", {}).items()}
        strategy = choose_strategy(chosen, now_ms=now_ms())
    out_of_range = params.get("out_of_range", OutOfRange.CLAMP)
    if out_of_range not in list(OutOfRange):
        hint = f"give {' or '.join(OutOfRange)}"
        raise ChangeRefused("bad_out_of_range", f"--out-of-range {excerpt(out_of_range)}", hint=hint)
    flags = ("all_groups", "all_topics", "allow_skip", "allow_create", "without_state", "allow_moved_on")
    request = ResetRequest(
        strategy=strategy,
        groups=tuple(params.get("groups") or ()),
        group_globs=tuple(params.get("group_globs") or ()),
        topics=tuple(parse_topic(text) for text in params.get("topics") or ()),
        out_of_range=OutOfRange(out_of_range),
        reason=str(params.get("reason") or ""),
        requested_by=str(params.get("requested_by", "")),
        allow=tuple(params.get("allow") or ()),
        **{name: bool(params.get(name, False)) for name in flags},
    )
    return check_request(request)


def check_request(request: ResetRequest) -> ResetRequest:
    """Return `request` if its parts go together. Raises ChangeRefused: the rule is in its `rule`."""
    is_named = request.groups or request.group_globs or request.all_groups
    if not is_named and request.strategy.kind is not StrategyKind.FROM_FILE:
        raise ChangeRefused("no_group", "no group named", hint="give --group, --group-glob or --all-groups")
    for group in (*request.groups, *request.group_globs):
        _check_group(group)
    known = sorted(rule for branch in branches() for rule in branch.allowable)
    for rule in set(request.allow).difference(known):
        raise ChangeRefused(
            "unknown_rule", f"--allow {excerpt(rule)}: the known rules are {', '.join(known) or 'none'}"
        )
    if request.all_groups and (request.groups or request.group_globs):
        raise ChangeRefused("two_group_choices", "--all-groups and named groups exclude each other", hint="give one")
    if request.all_topics and request.topics:
        raise ChangeRefused("two_scopes", "--topic and --all-topics exclude each other", hint="give one of them")
    kind, is_scoped = request.strategy.kind, bool(request.all_topics or request.topics)
    if kind is StrategyKind.FROM_FILE and is_scoped:
        hint = "leave out --topic and --all-topics"
        raise ChangeRefused("two_scopes", "--from-file already names the partitions", hint=hint)
    if not is_scoped and kind not in OWN_SCOPE:
        raise ChangeRefused("no_scope", "no topic named", hint="give --topic TOPIC[:0,1,2] or --all-topics")
    _refuse_twice(request.topics, "--topic")
    return request


def _check_group(group: str) -> None:
    if not group.strip():
        raise ChangeRefused("empty_group", "a group id is empty", hint="Kafka refuses it as well")
    try:
        length = len(group.encode("utf-8"))
    except UnicodeEncodeError:
        raise ChangeRefused("bad_group", f"group id {group!r} is not text", hint="check the encoding") from None
    if length > _LONGEST_GROUP_ID:
        raise ChangeRefused("bad_group", "a group id is longer than Kafka allows", hint=f"{_LONGEST_GROUP_ID} bytes")


def _refuse_twice(topics: Iterable[TopicScope], where: str) -> None:
    """Raise if a partition is named twice; a topic without partitions names all of them."""
    seen: dict[str, set[int | None]] = {}
    for scope in topics:
        known = seen.setdefault(scope.topic, set())
        for index in (None,) if scope.partitions is None else scope.partitions:
            if index in known or None in known or (index is None and known):
                name = scope.topic if None in known or index is None else f"{scope.topic}:{index}"
                raise ChangeRefused("duplicate_partition", f"{where}: {name} is named twice", hint="name it once")
            known.add(index)
