"""Reconciliation: a share partition's durable state compared with its descriptions by the cluster.

An observation describes the share partition twice. In between, the state topic is read to its end and replayed. A
broker describes it from the same records (``ReadShareGroupStateSummary``), so the rule is:

    **The replayed value is between the two described ones; if these differ, the share partition has moved.**

Between means between the lesser and the greater of the two, since a reset may go back. The start offsets are compared
first; no start offset is before every offset. Where all three start offsets are equal, progress is compared: start
offset + delivery complete count, which is log end - lag on the described side. The log end inside a described lag is
not in the response, but is between the log ends listed before the first and after the second description (the order of
``broker.offsets_source``): equal log ends make the comparison exact, a growing log widens it, and no alarm is false.

The first rule that applies decides:

=================  ====================================================================================================
not_authorized     the group, or the topic of a share partition in no description, may not be described
unknown            the export does not reach the log end seen before, or the replay depends on a gap or an unreadable
                   record; a description failed or the group could not be queried
match              described on one side only: it appeared or vanished in between, which the replay cannot contradict
missing_state      described on both sides, and no durable state
orphan_state       durable state of a group or topic that does not exist, or that its group does not list although the
                   topic is visible
unknown            durable state in no description, for a reason that is not known (it was initialized in between, its
                   group was created or deleted in between, or no topic of its id is visible)
unknown            not between, but the share partition was initialized or reset in between, perhaps more than once
live_ahead         the cluster is ahead of the durable state: records of the state topic are missing
durable_ahead      the durable state is ahead of the cluster, which lost or never loaded records
past_log_end       start offset or a batch beyond the log end: a reset beyond the end, or a truncated or replaced log
before_log_start   start offset, past leading records that are finished, below the log start: allowed, corrected at the
                   next load; until then the lag is too high
match              otherwise, also when neither side knows a start offset (not initialized)
=================  ====================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import Final

from acktrail.model.replay import SharePartitionState, durable_lag, unfinished_records


class Completeness(StrEnum):
    """Whether a replayed state is reliable."""

    COMPLETE = "complete"
    NO_SNAPSHOT = "no_snapshot"
    """Only updates were seen. A broker that loads the same log has the same state; its state epoch is not known."""
    GAP = "gap"
    """Records were pruned before they were exported, and no snapshot came after them."""
    UNREADABLE = "unreadable"
    """A record of the share partition could not be decoded, and no snapshot came after it."""


class TopicStatus(StrEnum):
    """The status of a topic id in its cluster."""

    PRESENT = "present"
    DELETED = "deleted"
    RECREATED = "recreated"
    """The name belongs to another id now."""
    NOT_AUTHORIZED = "not_authorized"
    """It exists, but this principal may not DESCRIBE it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedPartition:
    """One share partition as its cluster described it, before or after the export (Kafka: DescribeShareGroupOffsets).

    `is_listed`: its group described it. `start_offset` None: not initialized; `lag` None: not known. `error`: why the
    description failed. `is_group_present` None: the group could not be queried. `is_authorized` False: a right was
    missing. Log offsets None: not known.
    """

    is_listed: bool
    start_offset: int | None = None
    lag: int | None = None
    error: str | None = None
    is_group_present: bool | None = True
    is_authorized: bool = True
    log_start_offset: int | None = None
    log_end_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationInput:
    """Everything that the verdict on one share partition depends on.

    `durable` None: no state, or deleted. `incomplete`: why the durable state is not reliable; None when it is.
    `topic_status` None: no topic of this id was ever seen. `was_initialized`: the newest initialization (first or by
    reset) was written after the `before` description.
    """

    durable: SharePartitionState | None
    before: DescribedPartition
    after: DescribedPartition
    topic_status: TopicStatus | None = TopicStatus.PRESENT
    incomplete: str | None = None
    was_initialized: bool = False

    @property
    def log_start_offset(self) -> int | None:
        """The newest known log start offset."""
        after = self.after.log_start_offset
        return self.before.log_start_offset if after is None else after

    @property
    def log_end_offset(self) -> int | None:
        """The newest known log end offset."""
        after = self.after.log_end_offset
        return self.before.log_end_offset if after is None else after


class Verdict(StrEnum):
    """The result of one comparison."""

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
    """A verdict and its reason. `moved`: the described values changed between the two descriptions.

    The lags are None where the durable state is not reliable: no number is better than a wrong one.
    """

    verdict: Verdict
    reason: str
    moved: bool
    durable_lag: int | None
    unfinished_records: int | None


def reconcile(inputs: ReconciliationInput) -> Reconciliation:
    """The verdict of the first rule that applies, and the lags of the durable state at the newest log offsets known."""
    reasons = ((verdict, rule(inputs)) for verdict, rule in _RULES)
    verdict, reason = next((v, reason) for v, reason in reasons if reason is not None)
    durable = inputs.durable if inputs.incomplete is None else None
    before, after = inputs.before, inputs.after
    start, end = inputs.log_start_offset, inputs.log_end_offset
    return Reconciliation(
        verdict=verdict,
        reason=reason,
        moved=any(getattr(before, name) != getattr(after, name) for name in ("is_listed", "start_offset", "lag")),
        durable_lag=None if durable is None else durable_lag(durable, end),
        unfinished_records=None if durable is None else unfinished_records(durable, start, end),
    )


def _not_authorized(inputs: ReconciliationInput) -> str | None:
    for phase, description in (("before", inputs.before), ("after", inputs.after)):
        if not description.is_authorized:
            words = f": {description.error}" if description.error else ""
            return f"DESCRIBE on the group or its topics was missing {phase} the export{words}"
    if inputs.topic_status is TopicStatus.NOT_AUTHORIZED and not (inputs.before.is_listed or inputs.after.is_listed):
        return "DESCRIBE on its topic is missing: brokers leave its share partitions out"
    return None


def _not_described(inputs: ReconciliationInput) -> str | None:
    for phase, description in (("before", inputs.before), ("after", inputs.after)):
        if description.error is not None:
            return f"the description {phase} the export failed: {description.error}"
        if description.is_group_present is None:
            return f"the group could not be described {phase} the export"
    return None


def _appeared_or_vanished(inputs: ReconciliationInput) -> str | None:
    if inputs.before.is_listed == inputs.after.is_listed:
        return None
    return f"it {'appeared' if inputs.after.is_listed else 'vanished'} while the state topic was read"


def _missing(inputs: ReconciliationInput) -> str | None:
    if inputs.durable is None and inputs.before.is_listed:
        return f"described with {_start(inputs.before.start_offset)}, but the state topic holds nothing of it"
    return None


def _orphan(inputs: ReconciliationInput) -> str | None:
    if inputs.durable is None or inputs.before.is_listed or inputs.was_initialized:
        return None
    if not inputs.before.is_group_present and not inputs.after.is_group_present:
        return "durable state of a group that does not exist"
    if inputs.topic_status in (TopicStatus.DELETED, TopicStatus.RECREATED):
        return f"durable state of a topic that was {inputs.topic_status}"
    if inputs.before.is_group_present and inputs.after.is_group_present and inputs.topic_status is not None:
        return "durable state that its group does not list"
    return None


def _not_listed(inputs: ReconciliationInput) -> str | None:
    if inputs.durable is None or inputs.before.is_listed:
        return None
    if inputs.was_initialized:
        return "it was initialized while the state topic was read, and its group does not list it yet"
    if inputs.topic_status is None:
        return "no topic of this id is visible: it is gone, or DESCRIBE on it is missing"
    return "its group was created or deleted while the state topic was read"


def _reset_between(inputs: ReconciliationInput) -> str | None:
    contradiction = _contradiction(inputs)
    if contradiction is None or not inputs.was_initialized:
        return None
    return f"its start offset was set while the state topic was read: {contradiction[1]}"


def _ahead(side: Verdict, inputs: ReconciliationInput) -> str | None:
    contradiction = _contradiction(inputs)
    return contradiction[1] if contradiction is not None and contradiction[0] is side else None


def _contradiction(inputs: ReconciliationInput) -> tuple[Verdict, str] | None:
    """Who is ahead, and by what, where the replayed value is not between the described ones."""
    before, after, durable = inputs.before, inputs.after, inputs.durable
    if durable is None:
        return None
    low, high = sorted((_sortable(before.start_offset), _sortable(after.start_offset)))
    own = _sortable(durable.start_offset)
    if not low <= own <= high:
        reason = f"replayed {_start(durable.start_offset)}, described {_range(inputs)}"
        return Verdict.LIVE_AHEAD if own < low else Verdict.DURABLE_AHEAD, reason
    progress = _progress(durable)
    if low < high or progress is None or before.lag is None or after.lag is None:
        return None
    if before.log_end_offset is None or after.log_end_offset is None:
        return None
    least = min(before.log_end_offset, after.log_end_offset) - max(before.lag, after.lag)
    most = max(before.log_end_offset, after.log_end_offset) - min(before.lag, after.lag)
    if progress < least:
        return Verdict.LIVE_AHEAD, f"replayed progress {progress}, described at least {least}"
    if progress > most:
        return Verdict.DURABLE_AHEAD, f"replayed progress {progress}, described at most {most}"
    return None


def _past_log_end(inputs: ReconciliationInput) -> str | None:
    ends = [s.log_end_offset for s in (inputs.before, inputs.after) if s.log_end_offset is not None]
    reached = None if inputs.durable is None else inputs.durable.end_offset
    if not ends or reached is None or reached <= max(ends):
        return None
    return f"the state ends at offset {reached}, the log at {max(ends)}"


def _before_log_start(inputs: ReconciliationInput) -> str | None:
    log_start = inputs.log_start_offset
    start = None if inputs.durable is None else inputs.durable.first_unfinished_offset
    if log_start is None or start is None or start >= log_start:
        return None
    return f"start offset {start}, the log starts at {log_start}"


def _agreement(inputs: ReconciliationInput) -> str:
    if inputs.durable is None:
        return "neither durable nor described"
    if inputs.durable.start_offset is None and inputs.after.start_offset is None:
        return "not initialized on either side"
    is_known = _progress(inputs.durable) is not None and None not in (inputs.before.lag, inputs.after.lag)
    compared = f"replayed {_start(inputs.durable.start_offset)}, described {_range(inputs)}"
    return compared if is_known else f"{compared}; lag not known"


def _sortable(start_offset: int | None) -> tuple[bool, int]:
    """A start offset that compares: not initialized comes first."""
    return (False, 0) if start_offset is None else (True, start_offset)


def _progress(state: SharePartitionState) -> int | None:
    if state.start_offset is None or state.delivery_complete_count is None:
        return None
    return state.start_offset + state.delivery_complete_count


def _start(start_offset: int | None) -> str:
    return "no start offset" if start_offset is None else f"start offset {start_offset}"


def _range(inputs: ReconciliationInput) -> str:
    low, high = sorted((inputs.before.start_offset, inputs.after.start_offset), key=_sortable)
    return _start(high) if low == high else f"{_start(low)} to {high}"


_RULES: Final[tuple[tuple[Verdict, Callable[[ReconciliationInput], str | None]], ...]] = (
    (Verdict.NOT_AUTHORIZED, _not_authorized),
    (Verdict.UNKNOWN, attrgetter("incomplete")),
    (Verdict.UNKNOWN, _not_described),
    (Verdict.MATCH, _appeared_or_vanished),
    (Verdict.MISSING_STATE, _missing),
    (Verdict.ORPHAN_STATE, _orphan),
    (Verdict.UNKNOWN, _not_listed),
    (Verdict.UNKNOWN, _reset_between),
    (Verdict.LIVE_AHEAD, partial(_ahead, Verdict.LIVE_AHEAD)),
    (Verdict.DURABLE_AHEAD, partial(_ahead, Verdict.DURABLE_AHEAD)),
    (Verdict.PAST_LOG_END, _past_log_end),
    (Verdict.BEFORE_LOG_START, _before_log_start),
    (Verdict.MATCH, _agreement),
)
"""Each returns the reason where it applies, else None."""
