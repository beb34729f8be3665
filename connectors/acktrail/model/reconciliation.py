"""The law of the verdict: what is durable of a share partition against what its cluster says.

An observation asks the cluster twice. Between the two answers the state topic is read to its end and replayed. A
broker answers from the same records (``ReadShareGroupStateSummary``), so the law is:

    **The replayed value lies between the two described ones. Whatever moved is said to have moved.**

Between means between the lesser and the greater of the two, since a reset may go back. The start offsets are compared
first; no start offset counts as before every offset. Where all three start offsets are equal, progress decides: start
offset + delivery complete count, which the described side tells as log end - lag. The log end inside a described lag is
not told, but lies between the log ends listed before the first and after the second description (so asks
``broker.offsets_source``): equal log ends make the comparison exact, a growing log widens it, no alarm is false.

The rules, first one that applies:

=================  ====================================================================================================
not_authorized     the group, or the topic of a share partition that nobody describes, may not be described
unknown            the export does not reach the log end seen before, or the replay rests on a gap or an unreadable
                   record; a description failed or the group could not be asked
match              described on one side only: it appeared or vanished in between, and no replay contradicts that
missing_state      described on both sides, and no durable state
orphan_state       durable state of a group or topic that is gone, or that its group does not list although the topic
                   is visible
unknown            durable state that nobody describes, where the reason cannot be told (it was initialized in between,
                   its group came or went in between, or no topic of its id is visible)
unknown            not between, but the share partition was initialized or reset in between, perhaps more than once
live_ahead         the cluster has come further than the durable state: records of the state topic are missing
durable_ahead      the durable state is further than the cluster: it lost or never loaded what was written
past_log_end       start offset or a batch beyond the log end: a reset beyond the end, or a truncated or replaced log
before_log_start   start offset below the log start: legal, put right at the next load; the lag is overstated till then
match              otherwise, also when neither side knows a start offset (not initialized)
=================  ====================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from acktrail.model.lag import durable_lag, effective_backlog
from acktrail.model.observation import DescribedPartition, ReconciliationInput, TopicStatus
from acktrail.model.replay import SharePartitionState

__all__ = ["Reconciliation", "Verdict", "reconcile"]


class Verdict(StrEnum):
    """What became of one comparison."""

    MATCH = "match"
    LIVE_AHEAD = "live_ahead"
    DURABLE_AHEAD = "durable_ahead"
    MISSING_STATE = "missing_state"
    ORPHAN_STATE = "orphan_state"
    BEFORE_LOG_START = "before_log_start"
    PAST_LOG_END = "past_log_end"
    NOT_AUTHORIZED = "not_authorized"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """A verdict and what it rests on. `moved`: the described values changed between the two samples.

    The lags are None where the durable state cannot be relied on: no number is better than a wrong one.
    """

    verdict: Verdict
    reason: str
    moved: bool
    durable_lag: int | None
    effective_backlog: int | None


def reconcile(evidence: ReconciliationInput) -> Reconciliation:
    """The verdict of the first rule that applies, and the lags of the durable state at the newest log offsets known."""
    verdict, reason = _judge(evidence)
    durable = evidence.durable if evidence.incomplete is None else None
    start, end = evidence.log_start_offset, evidence.log_end_offset
    return Reconciliation(
        verdict=verdict,
        reason=reason,
        moved=_described(evidence.before) != _described(evidence.after),
        durable_lag=None if durable is None else durable_lag(durable, end),
        effective_backlog=None if durable is None else effective_backlog(durable, start, end),
    )


_Rule = Callable[[ReconciliationInput], str | None]
"""The reason when the rule applies, else None."""

_Place = tuple[bool, int]
"""A start offset in order; not initialized comes first."""


def _judge(evidence: ReconciliationInput) -> tuple[Verdict, str]:
    for verdict, rule in _RULES:
        reason = rule(evidence)
        if reason is not None:
            return verdict, reason
    return Verdict.MATCH, _agreement(evidence)


def _described(sample: DescribedPartition) -> tuple[bool, int | None, int | None]:
    return sample.is_listed, sample.start_offset, sample.lag


def _incomplete(evidence: ReconciliationInput) -> str | None:
    return evidence.incomplete


def _not_authorized(evidence: ReconciliationInput) -> str | None:
    for phase, sample in (("before", evidence.before), ("after", evidence.after)):
        if not sample.is_authorized:
            words = f": {sample.error}" if sample.error else ""
            return f"DESCRIBE on the group or its topics was missing {phase} the export{words}"
    if evidence.topic_status is TopicStatus.NOT_AUTHORIZED and not (
        evidence.before.is_listed or evidence.after.is_listed
    ):
        return "DESCRIBE on its topic is missing: brokers leave its share partitions out"
    return None


def _not_described(evidence: ReconciliationInput) -> str | None:
    for phase, sample in (("before", evidence.before), ("after", evidence.after)):
        if sample.error is not None:
            return f"the description {phase} the export failed: {sample.error}"
        if sample.is_group_present is None:
            return f"the group could not be described {phase} the export"
    return None


def _appeared_or_vanished(evidence: ReconciliationInput) -> str | None:
    if evidence.before.is_listed == evidence.after.is_listed:
        return None
    return f"it {'appeared' if evidence.after.is_listed else 'vanished'} while the state topic was read"


def _missing(evidence: ReconciliationInput) -> str | None:
    if evidence.durable is None and evidence.before.is_listed:
        return f"described with {_start(evidence.before.start_offset)}, but the state topic holds nothing of it"
    return None


def _orphan(evidence: ReconciliationInput) -> str | None:
    if evidence.durable is None or evidence.before.is_listed or evidence.was_initialized:
        return None
    if not evidence.before.is_group_present and not evidence.after.is_group_present:
        return "durable state of a group that does not exist"
    if evidence.topic_status in (TopicStatus.DELETED, TopicStatus.RECREATED):
        return f"durable state of a topic that was {evidence.topic_status}"
    if evidence.before.is_group_present and evidence.after.is_group_present and evidence.topic_status is not None:
        return "durable state that its group does not list"
    return None


def _nobody_describes(evidence: ReconciliationInput) -> str | None:
    if evidence.durable is None or evidence.before.is_listed:
        return None
    if evidence.was_initialized:
        return "it was initialized while the state topic was read, and its group does not list it yet"
    if evidence.topic_status is None:
        return "no topic of this id is visible: it is gone, or DESCRIBE on it is missing"
    return "its group was created or deleted while the state topic was read"


def _reset_between(evidence: ReconciliationInput) -> str | None:
    contradiction = _live_ahead(evidence) or _durable_ahead(evidence)
    if contradiction is None or not evidence.was_initialized:
        return None
    return f"its start offset was set while the state topic was read: {contradiction}"


def _live_ahead(evidence: ReconciliationInput) -> str | None:
    if evidence.durable is None:
        return None
    low = min(_places(evidence))
    if _place(evidence.durable.start_offset) < low:
        return f"replayed {_start(evidence.durable.start_offset)}, described {_range(evidence)}"
    progress, bounds = _progress(evidence.durable), _progress_bounds(evidence)
    if progress is not None and bounds is not None and progress < bounds[0]:
        return f"replayed progress {progress}, described at least {bounds[0]}"
    return None


def _durable_ahead(evidence: ReconciliationInput) -> str | None:
    if evidence.durable is None:
        return None
    high = max(_places(evidence))
    if _place(evidence.durable.start_offset) > high:
        return f"replayed {_start(evidence.durable.start_offset)}, described {_range(evidence)}"
    progress, bounds = _progress(evidence.durable), _progress_bounds(evidence)
    if progress is not None and bounds is not None and progress > bounds[1]:
        return f"replayed progress {progress}, described at most {bounds[1]}"
    return None


def _past_log_end(evidence: ReconciliationInput) -> str | None:
    ends = [s.log_end_offset for s in (evidence.before, evidence.after) if s.log_end_offset is not None]
    reached = None if evidence.durable is None else evidence.durable.end_offset
    if not ends or reached is None or reached <= max(ends):
        return None
    return f"the state ends at offset {reached}, the log at {max(ends)}"


def _before_log_start(evidence: ReconciliationInput) -> str | None:
    log_start = evidence.log_start_offset
    start = None if evidence.durable is None else evidence.durable.start_offset
    if log_start is None or start is None or start >= log_start:
        return None
    return f"start offset {start}, the log starts at {log_start}"


_RULES: Final[tuple[tuple[Verdict, _Rule], ...]] = (
    (Verdict.NOT_AUTHORIZED, _not_authorized),
    (Verdict.UNKNOWN, _incomplete),
    (Verdict.UNKNOWN, _not_described),
    (Verdict.MATCH, _appeared_or_vanished),
    (Verdict.MISSING_STATE, _missing),
    (Verdict.ORPHAN_STATE, _orphan),
    (Verdict.UNKNOWN, _nobody_describes),
    (Verdict.UNKNOWN, _reset_between),
    (Verdict.LIVE_AHEAD, _live_ahead),
    (Verdict.DURABLE_AHEAD, _durable_ahead),
    (Verdict.PAST_LOG_END, _past_log_end),
    (Verdict.BEFORE_LOG_START, _before_log_start),
)


def _agreement(evidence: ReconciliationInput) -> str:
    if evidence.durable is None:
        return "neither durable nor described"
    if evidence.durable.start_offset is None and evidence.after.start_offset is None:
        return "not initialized on either side"
    if _progress(evidence.durable) is None or None in (evidence.before.lag, evidence.after.lag):
        return f"replayed {_start(evidence.durable.start_offset)}, described {_range(evidence)}; lag not known"
    return f"replayed {_start(evidence.durable.start_offset)}, described {_range(evidence)}"


def _place(start_offset: int | None) -> _Place:
    return (False, 0) if start_offset is None else (True, start_offset)


def _places(evidence: ReconciliationInput) -> tuple[_Place, _Place]:
    return _place(evidence.before.start_offset), _place(evidence.after.start_offset)


def _progress(state: SharePartitionState) -> int | None:
    if state.start_offset is None or state.delivery_complete_count is None:
        return None
    return state.start_offset + state.delivery_complete_count


def _progress_bounds(evidence: ReconciliationInput) -> tuple[int, int] | None:
    """The least and the greatest progress the descriptions allow; None where start offsets differ or are unknown."""
    before, after = evidence.before, evidence.after
    if evidence.durable is None or len({*_places(evidence), _place(evidence.durable.start_offset)}) > 1:
        return None
    if before.lag is None or after.lag is None or before.log_end_offset is None or after.log_end_offset is None:
        return None
    ends, lags = (before.log_end_offset, after.log_end_offset), (before.lag, after.lag)
    return min(ends) - max(lags), max(ends) - min(lags)


def _start(start_offset: int | None) -> str:
    return "no start offset" if start_offset is None else f"start offset {start_offset}"


def _range(evidence: ReconciliationInput) -> str:
    low, high = sorted((evidence.before.start_offset, evidence.after.start_offset), key=_place)
    return _start(high) if low == high else f"{_start(low)} to {high}"
