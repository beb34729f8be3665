"""How the newest observations of a share partition become its status.

The idea is Burrow's (LinkedIn's monitor of consumer groups): a window of the newest observations, and no threshold. The
window is a time, ``WINDOW``: what is older has no colour any more, however often somebody looks. A status is read off
the order of numbers: what moved, what stayed, which of two is greater. The first rule that applies decides; they are in
the order of ``STATUS_TABLE``, worst first.

================  =====================================================================================================
inconsistent      the run has a critical finding about the share partition
retention_risk    the log start is above the start offset (``DeleteRecords`` and the log's retention move it; a leader
                  follows it later), or it moved while nothing of the share partition was ever delivered
retention_risk    a step of the log start as long as the longest one within the window would remove unfinished records,
                  and the group has not finished what was in the log when the window began
unattended        records wait, and the group has no members: unfinished ones, or the whole log where nothing was ever
                  delivered. It needs no second observation
stuck             the start offset stays in the newest observations, at least 3, all with unfinished records, while
                  records above it are finished or the log end moves. It stays stuck until the start offset moves or
                  nothing is unfinished: a pause of the producers is no recovery
archiving_stuck   records are archiving in each of the newest observations, at least 3, and none was archived in between
                  (KIP-1191: the leader writes them to the dead-letter topic first)
reject_storm      within the window more records were archived than acknowledged, and no fewer than released. A record
                  that consumers reject is archived at once
release_loop      within the window more deliveries were released than acknowledged. A record that consumers release, or
                  whose lock ends, is released up to the limit of deliveries, then archived
archived_unseen   more records were archived than acknowledged, that is over, and it has not been acknowledged
lagging           at least 3 observations, all with unfinished records, never fewer than before, and the group has not
                  finished what was in the log one observation ago
state_unknown     the verdict is no match, the newest observation lacks the start offset, an end of the log or the lag,
                  or the replayed state is not complete. What the counts above show is certain nevertheless, and comes
                  first
rewound           the start offset fell or the state epoch rose within the window: a reset
new               the only observation has unfinished records, or none was ever delivered: nothing to compare with
idle              nothing is unfinished, and nothing moved within the window; or the share partition is not initialized
                  and its log is empty
ok                else
================  =====================================================================================================

A storm or a loop is over where the newest observation in which anything ended shows none of it, or where the group has
no members and nothing ended since the observation before. An observation that is not known shows nothing: rules compare
the known ones around it. Counts are those of the delivery history between two observations; the oldest of a first
window counts from the first record on. They are as old as the newest state record, where that is older than the
observation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Final

from definitions.queue_window import QueueContext, QueueObservation

from acktrail.model.queue_status import COUNTED, LEAST, RULES, SAYS_UNSEEN, STILL_UNSEEN, WINDOW, QueueRule, QueueStatus
from acktrail.model.reconciliation import Completeness, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A status, the first observation since which it is the same (µs since the epoch), and one sentence about it.
    `unseen_at`: that of ``QueueContext`` for the next observation."""

    status: QueueStatus
    since: int
    reason: str
    unseen_at: int | None = None


def judge(previous: Judgement | None, window: Sequence[QueueObservation], context: QueueContext) -> Judgement:
    """The status after the newest of `window` (1 to ``LONGEST`` observations, oldest first, as ``next_window`` makes
    them). `previous`: the judgement at the observation before."""
    facts = _Facts(window, context, was_stuck=previous is not None and previous.status is QueueStatus.STUCK)
    rule = next(rule for rule in RULES if facts.applies(rule))
    status, reason = RULES[rule]
    if facts.unseen_at is not None and rule not in SAYS_UNSEEN:
        reason += STILL_UNSEEN
    since = previous.since if previous is not None and previous.status is status else window[-1].observed_at
    return Judgement(status=status, since=since, reason=reason.format(**facts.values), unseen_at=facts.unseen_at)


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

    def __init__(self, window: Sequence[QueueObservation], context: QueueContext, *, was_stuck: bool) -> None:
        self._window, self._newest, self._context, self._was_stuck = window, window[-1], context, was_stuck
        self._known = list(_known(window))
        self._is_complete = context.completeness == Completeness.COMPLETE.value
        is_newest_known = bool(self._known) and self._known[-1].place == len(window) - 1
        self._is_known = is_newest_known and self._is_complete
        oldest = self._newest.observed_at - WINDOW
        self._recent = [
            each for each in window if min(each.observed_at, _or(each.recorded_at, each.observed_at)) > oldest
        ]
        self.unseen_at = self._unseen_at()
        self.values: dict[str, object] = {**self._texts(), **_sums(self._recent)}
        self.values |= {"waiting": _or(self._newest.log_end_offset, 0) - _or(self._newest.log_start_offset, 0)}
        self.values |= {"lost": _or(context.lost_records, 0), "log_start": _or(self._newest.log_start_offset, 0)}
        self._archiving()
        if self._is_known:
            self._offsets()

    def applies(self, rule: QueueRule) -> bool:
        """Whether the rule applies, where no rule before it does."""
        if rule in _WITHOUT_OFFSETS:
            return bool(getattr(self, f"_is_{rule.value}")())
        return self._is_known and bool(getattr(self, f"_is_{rule.value}")())

    def _texts(self) -> dict[str, object]:
        context, since = self._context, _or(self._context.no_members_since, self._newest.observed_at)
        first = "the first look, " if since == context.first_look_at else ""
        return {
            "members": "members not known" if context.members is None else f"{context.members} members",
            "absence": f"no members since {first}{_time(since)}",
            "unseen_at": _time(_or(self.unseen_at, 0)),
            "archived_seen": max(_or(context.archived_seen, 0), _sums(self._window)["archived"]),
            "completeness": context.completeness,
            "verdict": context.verdict,
            "verdict_reason": context.verdict_reason or "",
            "critical_finding": context.critical_finding,
        }

    def _unseen_at(self) -> int | None:
        """A new one where the newest observation adds to it."""
        sums, newest = _sums(self._window), _sums([self._newest])
        is_more = newest["archived"] > 0 and sums["archived"] > sums["acknowledged"]
        return self._newest.observed_at if is_more else self._context.unseen_at

    def _offsets(self) -> None:
        known, newest = self._known, self._known[-1]
        flat = list(takewhile(lambda each: each.start == newest.start and each.lag > 0, reversed(known)))
        first = flat[-1] if flat else newest
        finished = _sums(self._window[first.place + 1 :])
        steps = [later.log_start - earlier.log_start for earlier, later in pairwise(known)]
        epochs = [each.epoch for each in known if each.epoch is not None]
        self.values |= {
            "start": newest.start,
            "distance": newest.start - newest.log_start,
            "lost": self._context.lost_records or newest.log_start - newest.start,
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

    def _is_critical(self) -> bool:
        return self._context.critical_finding is not None

    def _is_retention_passed(self) -> bool:
        return self._number("distance") < 0

    def _is_retention_undelivered(self) -> bool:
        return self._is_undelivered() and self._number("lost") > 0

    def _is_retention_next(self) -> bool:
        is_near = 0 <= self._number("distance") <= self._number("step")
        is_slow = self._known[-1].start < self._known[0].log_end
        return is_near and self._number("step") > 0 and self._number("lag") > 0 and is_slow

    def _is_unattended(self) -> bool:
        return self._context.members == 0 and self._number("lag") > 0

    def _is_never_attended(self) -> bool:
        return self._context.members == 0 and self._is_undelivered() and self._number("waiting") > 0

    def _is_undelivered(self) -> bool:
        newest = self._newest
        has_ends = newest.log_start_offset is not None and newest.log_end_offset is not None
        return self._is_complete and newest.first_unfinished_offset is None and has_ends

    def _is_stuck(self) -> bool:
        if self._was_stuck and self._number("flat") > 1:
            return True
        return self._number("flat") >= LEAST and (self._number("grown") > 0 or self._number("done") > 0)

    def _is_archiving_stuck(self) -> bool:
        return self._number("archiving_for") >= LEAST

    def _goes_on(self, name: str) -> bool:
        """Whether the newest observation in which anything ended shows some of it, and the group is not gone since."""
        if self._context.members == 0 and all(getattr(self._newest, own) == 0 for own in COUNTED):
            return False
        ended = [sums for sums in (_sums([each]) for each in self._recent) if any(sums.values())]
        return bool(ended) and ended[-1][name] > 0

    def _is_reject_storm(self) -> bool:
        archived = self._number("archived")
        is_most = archived > self._number("acknowledged") and archived >= self._number("released")
        return is_most and self._goes_on("archived")

    def _is_archived_unseen(self) -> bool:
        return self.unseen_at is not None

    def _is_release_loop(self) -> bool:
        return self._number("released") > self._number("acknowledged") and self._goes_on("released")

    def _is_lagging(self) -> bool:
        known = self._known
        if len(known) < LEAST or known[0].lag <= 0 or known[-1].start >= known[-2].log_end:
            return False
        return all(earlier.lag <= later.lag for earlier, later in pairwise(known))

    def _is_no_match(self) -> bool:
        return self._context.verdict not in (None, Verdict.MATCH.value)

    def _is_no_state(self) -> bool:
        return self._context.completeness is None

    def _is_not_complete(self) -> bool:
        return not self._is_complete

    def _is_not_initialized(self) -> bool:
        return len(self._window) > 1 and self._is_never_delivered()

    def _is_not_known(self) -> bool:
        return not self._is_known and not self._is_undelivered()

    def _is_never_delivered(self) -> bool:
        return self._is_undelivered() and self._number("waiting") != 0

    def _is_first_seen(self) -> bool:
        return len(self._window) == 1 and self._number("lag") > 0

    def _is_rewound(self) -> bool:
        return self._number("back") > 0 or self._number("epochs") > 0

    def _is_empty(self) -> bool:
        return self._is_undelivered() and self._number("waiting") == 0

    def _is_idle(self) -> bool:
        moved = any((a.start, a.log_end) != (b.start, b.log_end) for a, b in pairwise(self._known))
        counted = any(self._number(name) for name in COUNTED)
        return self._number("lag") == 0 and not moved and not counted

    def _is_ok(self) -> bool:
        return True


_WITHOUT_OFFSETS: Final = frozenset(
    {
        *(QueueRule.CRITICAL, QueueRule.RETENTION_UNDELIVERED, QueueRule.NEVER_ATTENDED),
        *(QueueRule.REJECT_STORM, QueueRule.ARCHIVED_UNSEEN, QueueRule.RELEASE_LOOP),
        *(QueueRule.NO_MATCH, QueueRule.NO_STATE, QueueRule.NOT_COMPLETE, QueueRule.NOT_INITIALIZED),
        *(QueueRule.NOT_KNOWN, QueueRule.NEVER_DELIVERED, QueueRule.EMPTY),
    }
)


def _or(number: int | None, default: int) -> int:
    return default if number is None else number


def _time(instant: int) -> str:
    """UTC text of a time in µs since the epoch. Years begin on 1 March, so that a leap day is the last day of one."""
    days, second = divmod(instant // 1_000_000, 86_400)
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day, number = day_of_year - (153 * month + 2) // 5 + 1, month + 3 if month < 10 else month - 9
    year = year_of_era + era * 400 + (number <= 2)
    return f"{year:04}-{number:02}-{day:02}T{second // 3_600:02}:{second // 60 % 60:02}:{second % 60:02}Z"


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
    sums = zip(*[own for own in complete if len(own) == len(COUNTED)], strict=True)
    return dict.fromkeys(COUNTED, 0) | dict(zip(COUNTED, map(sum, sums), strict=False))
