"""How the newest observations of a share partition become its status.

The idea is Burrow's (LinkedIn's monitor of consumer groups): a window of the newest 10 observations, and no threshold.
A status is read off the order of numbers: what moved, what stayed, which of two is greater. The first rule that applies
decides; they are in the order of ``STATUS_TABLE``, worst first.

================  =====================================================================================================
retention_risk    the log start is above the start offset, and records are unfinished or the log start moved within the
                  window (``DeleteRecords`` and the log's retention move it; a leader follows it later)
retention_risk    a step of the log start as long as the longest one within the window would remove unfinished records,
                  and the group has not finished what was in the log when the window began
stuck             the start offset stays in the newest observations, at least 3, all with unfinished records, while
                  records above it are finished or the log end moves. It stays stuck until the start offset moves or
                  nothing is unfinished: a pause of the producers is no recovery
archiving_stuck   records are archiving in each of the newest observations, at least 3, and none was archived in between
                  (KIP-1191: the leader writes them to the dead-letter topic first)
reject_storm      within the window more records were archived than acknowledged, and no fewer than released. A record
                  that consumers reject is archived at once
release_loop      within the window more deliveries were released than acknowledged. A record that consumers release, or
                  whose lock ends, is released up to the limit of deliveries, then archived
lagging           at least 3 observations, all with unfinished records, never fewer than before, and the group has not
                  finished what was in the log one observation ago
state_unknown     the newest observation lacks the start offset, an end of the log or the lag, or the replayed state is
                  not complete. What the counts above show is certain nevertheless, and comes first
state_unknown     the only observation has unfinished records: nothing to compare with
rewound           the start offset fell or the state epoch rose within the window: a reset
idle              nothing is unfinished, and nothing moved within the window; or the share partition is not initialized
                  and its log is empty
ok                else
================  =====================================================================================================

An observation that is not known shows nothing: rules compare the known ones around it. Counts are those of the
delivery history between two observations; the oldest of a first window counts from the first record on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise, takewhile
from types import MappingProxyType
from typing import Final

from acktrail.model.queue_status import QueueStatus
from acktrail.model.reconciliation import Completeness

WINDOW: Final = 10
"""Observations that a status is judged by."""
LEAST: Final = 3
"""Observations without which nothing is called stuck or lagging: a record may well be held for two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueObservation:
    """A share partition at one observation. `observed_at` in µs since the epoch; offsets and counts None: not known.

    `unfinished_records`: from the first unfinished offset to the log end.
    `acknowledged`, `released`, `archived`: since the observation before.
    """

    observed_at: int
    first_unfinished_offset: int | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    unfinished_records: int | None = None
    state_epoch: int | None = None
    archiving_records: int | None = None
    acknowledged: int | None = None
    released: int | None = None
    archived: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A status, the first observation since which it is the same (µs since the epoch), and one sentence about it."""

    status: QueueStatus
    since: int
    reason: str


class QueueRule(StrEnum):
    """What decided on a status."""

    RETENTION_PASSED = "retention_passed"
    RETENTION_NEXT = "retention_next"
    STUCK = "stuck"
    ARCHIVING_STUCK = "archiving_stuck"
    REJECT_STORM = "reject_storm"
    RELEASE_LOOP = "release_loop"
    LAGGING = "lagging"
    NO_STATE = "no_state"
    NOT_COMPLETE = "not_complete"
    NOT_INITIALIZED = "not_initialized"
    NOT_KNOWN = "not_known"
    FIRST_SEEN = "first_seen"
    REWOUND = "rewound"
    EMPTY = "empty"
    IDLE = "idle"
    OK = "ok"


_COUNTS: Final = "{acknowledged} records acknowledged, {released} deliveries released, {archived} records archived"

RULES: Final[Mapping[QueueRule, tuple[QueueStatus, str]]] = MappingProxyType(
    {
        QueueRule.RETENTION_PASSED: (
            QueueStatus.RETENTION_RISK,
            "the log starts at {log_start}, above start offset {start}: records between them were removed unfinished",
        ),
        QueueRule.RETENTION_NEXT: (
            QueueStatus.RETENTION_RISK,
            (
                "start offset {start} is {distance} above the log start, which moved by {step} at once; {lag} records "
                "are unfinished; {members}"
            ),
        ),
        QueueRule.STUCK: (
            QueueStatus.STUCK,
            (
                "start offset {start} stays in the newest {flat} observations with {lag} records unfinished; meanwhile "
                "the log end moved by {grown} and {done} records were finished; {members}"
            ),
        ),
        QueueRule.ARCHIVING_STUCK: (
            QueueStatus.ARCHIVING_STUCK,
            (
                "{archiving} records are archiving, some in each of the newest {archiving_for} observations, and none "
                "was archived in between"
            ),
        ),
        QueueRule.REJECT_STORM: (QueueStatus.REJECT_STORM, _COUNTS),
        QueueRule.RELEASE_LOOP: (QueueStatus.RELEASE_LOOP, _COUNTS),
        QueueRule.LAGGING: (
            QueueStatus.LAGGING,
            (
                "{lag} records are unfinished, {lag_first} were in the oldest of {known} observations, and never fewer "
                "than before; {members}"
            ),
        ),
        QueueRule.NO_STATE: (QueueStatus.STATE_UNKNOWN, "no state of it was replayed"),
        QueueRule.NOT_COMPLETE: (QueueStatus.STATE_UNKNOWN, "its replayed state is not complete: {completeness}"),
        QueueRule.NOT_INITIALIZED: (
            QueueStatus.STATE_UNKNOWN,
            "it is not initialized: no delivery has ended since it was created; {members}",
        ),
        QueueRule.NOT_KNOWN: (QueueStatus.STATE_UNKNOWN, "the ends of its log are not known"),
        QueueRule.FIRST_SEEN: (
            QueueStatus.STATE_UNKNOWN,
            "{lag} records are unfinished in the first observation: nothing to compare with",
        ),
        QueueRule.REWOUND: (
            QueueStatus.REWOUND,
            "a reset: the start offset fell by {back}, the state epoch rose by {epochs}; {lag} records are unfinished",
        ),
        QueueRule.EMPTY: (QueueStatus.IDLE, "it is not initialized, and its log is empty"),
        QueueRule.IDLE: (QueueStatus.IDLE, "nothing is unfinished, and nothing moves"),
        QueueRule.OK: (QueueStatus.OK, "{lag} records unfinished; " + _COUNTS),
    }
)
"""The status of each rule, and its reason with the names of numbers."""


def judge(
    previous: Judgement | None,
    window: Sequence[QueueObservation],
    *,
    completeness: str | None,
    members: int | None,
) -> Judgement:
    """The status after the newest of `window` (1 to ``WINDOW`` observations, oldest first).

    `previous`: the judgement at the observation before. `completeness` (``Completeness``) and `members` of the group
    are those of the newest observation; None: no state was replayed, or the number is not known.
    """
    facts = _Facts(window, completeness, members, was_stuck=_was(previous, QueueStatus.STUCK))
    rule = next(rule for rule in RULES if facts.applies(rule))
    status, reason = RULES[rule]
    since = previous.since if previous is not None and previous.status is status else window[-1].observed_at
    return Judgement(status=status, since=since, reason=reason.format(**facts.values))


def _was(previous: Judgement | None, status: QueueStatus) -> bool:
    return previous is not None and previous.status is status


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A known observation, and its place in the window."""

    place: int
    start: int
    log_start: int
    log_end: int
    lag: int
    epoch: int | None


class _Facts:
    """What a window shows."""

    def __init__(
        self,
        window: Sequence[QueueObservation],
        completeness: str | None,
        members: int | None,
        *,
        was_stuck: bool,
    ) -> None:
        self._window, self._newest, self._was_stuck = window, window[-1], was_stuck
        self._completeness = completeness
        self._known = list(_known(window))
        self._is_known = (
            bool(self._known)
            and self._known[-1].place == len(window) - 1
            and completeness == Completeness.COMPLETE.value
        )
        shown = "members not known" if members is None else f"{members} members"
        self.values: dict[str, object] = {"members": shown, "completeness": completeness, **_sums(window)}
        self._archiving()
        if self._is_known:
            self._offsets()

    def applies(self, rule: QueueRule) -> bool:
        """Whether the rule applies, where no rule before it does."""
        if rule in _BY_COUNTS or rule in _WITHOUT_OFFSETS:
            return bool(getattr(self, f"_is_{rule.value}")())
        return self._is_known and bool(getattr(self, f"_is_{rule.value}")())

    def _offsets(self) -> None:
        known, newest = self._known, self._known[-1]
        flat = list(takewhile(lambda each: each.start == newest.start and each.lag > 0, reversed(known)))
        first = flat[-1] if flat else newest
        finished = _sums(self._window[first.place + 1 :])
        steps = [later.log_start - earlier.log_start for earlier, later in pairwise(known)]
        epochs = [each.epoch for each in known if each.epoch is not None]
        self.values |= {
            "start": newest.start,
            "log_start": newest.log_start,
            "distance": newest.start - newest.log_start,
            "lag": newest.lag,
            "lag_first": known[0].lag,
            "known": len(known),
            "step": max([0, *steps]),
            "flat": len(flat),
            "grown": newest.log_end - first.log_end,
            "done": finished["acknowledged"] + finished["archived"],
            "back": max([0, *(earlier.start - later.start for earlier, later in pairwise(known))]),
            "epochs": max([0, *(later - earlier for earlier, later in pairwise(epochs))]),
        }

    def _archiving(self) -> None:
        """How many of the newest observations, without a break, have archiving records and none archived in between."""
        count = 0
        for each in reversed(self._window):
            if not each.archiving_records:
                break
            count += 1
            if each.archived != 0:
                break
        self.values |= {"archiving": self._newest.archiving_records or 0, "archiving_for": count}

    def _number(self, name: str) -> int:
        number = self.values[name]
        assert isinstance(number, int)
        return number

    def _is_retention_passed(self) -> bool:
        return self._number("distance") < 0 and (self._number("lag") > 0 or self._number("step") > 0)

    def _is_retention_next(self) -> bool:
        is_near = 0 <= self._number("distance") <= self._number("step")
        is_slow = self._known[-1].start < self._known[0].log_end
        return is_near and self._number("step") > 0 and self._number("lag") > 0 and is_slow

    def _is_stuck(self) -> bool:
        if self._was_stuck and self._number("flat") > 1:
            return True
        return self._number("flat") >= LEAST and (self._number("grown") > 0 or self._number("done") > 0)

    def _is_archiving_stuck(self) -> bool:
        return self._number("archiving_for") >= LEAST

    def _is_reject_storm(self) -> bool:
        return self._number("archived") > self._number("acknowledged") and self._number("archived") >= self._number(
            "released"
        )

    def _is_release_loop(self) -> bool:
        return self._number("released") > self._number("acknowledged")

    def _is_lagging(self) -> bool:
        known = self._known
        if len(known) < LEAST or known[0].lag <= 0 or known[-1].start >= known[-2].log_end:
            return False
        return all(earlier.lag <= later.lag for earlier, later in pairwise(known))

    def _is_no_state(self) -> bool:
        return self._completeness is None

    def _is_not_complete(self) -> bool:
        return self._completeness != Completeness.COMPLETE.value

    def _is_not_initialized(self) -> bool:
        return self._newest.first_unfinished_offset is None and not self._is_empty()

    def _is_not_known(self) -> bool:
        return not self._is_known and not self._is_empty()

    def _is_first_seen(self) -> bool:
        return len(self._window) == 1 and self._number("lag") > 0

    def _is_rewound(self) -> bool:
        return self._number("back") > 0 or self._number("epochs") > 0

    def _is_empty(self) -> bool:
        newest = self._newest
        is_empty = newest.log_end_offset is not None and newest.log_end_offset == newest.log_start_offset
        return newest.first_unfinished_offset is None and is_empty

    def _is_idle(self) -> bool:
        moved = any((a.start, a.log_end) != (b.start, b.log_end) for a, b in pairwise(self._known))
        counted = any(self._number(name) for name in _COUNTED)
        return self._number("lag") == 0 and not moved and not counted

    def _is_ok(self) -> bool:
        return True


_COUNTED: Final = ("acknowledged", "released", "archived")
_BY_COUNTS: Final = frozenset({QueueRule.REJECT_STORM, QueueRule.RELEASE_LOOP})
_WITHOUT_OFFSETS: Final = frozenset(
    {QueueRule.NO_STATE, QueueRule.NOT_COMPLETE, QueueRule.NOT_INITIALIZED, QueueRule.NOT_KNOWN, QueueRule.EMPTY}
)


def _known(window: Sequence[QueueObservation]) -> list[_Known]:
    found = []
    for place, each in enumerate(window):
        start, log_start = each.first_unfinished_offset, each.log_start_offset
        log_end, lag = each.log_end_offset, each.unfinished_records
        if start is not None and log_start is not None and log_end is not None and lag is not None:
            known = _Known(
                place=place, start=start, log_start=log_start, log_end=log_end, lag=lag, epoch=each.state_epoch
            )
            found.append(known)
    return found


def _sums(window: Sequence[QueueObservation]) -> dict[str, int]:
    """The sums of the counts, of the observations with all three."""
    counts = [(each.acknowledged, each.released, each.archived) for each in window]
    complete = [tuple(count for count in own if count is not None) for own in counts]
    sums = zip(*[own for own in complete if len(own) == len(_COUNTED)], strict=True)
    return dict.fromkeys(_COUNTED, 0) | dict(zip(_COUNTED, map(sum, sums), strict=False))
