"""Who is in trouble, in words: the headline of a report, a line for a group, notes about a status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from acktrail.model.queue_status import STATUS_TABLE
from acktrail.plain_tables import KnownSum, printable, shortened
from acktrail_dashboard.status_wording import critical_first, is_trouble, status_rank, status_text, status_tone
from acktrail_dashboard.summary_types import GroupTotals, PartitionRow, Summary
from acktrail_dashboard.wording import counted, instant, number, trail, verdict_text

STATUS_MEANINGS: Final = {status.value: f"{of.meaning}: {of.advice}" for status, of in STATUS_TABLE.items()}
_NAMED: Final = 3
"""How many groups a headline names."""


def trouble(summary: Summary) -> tuple[str, str]:
    """What stopped the run, how many findings are critical and who is in trouble, and the tone of it; the trail's own
    sentence where the run left no statuses. A look that found no share group says that."""
    known = [group for group in summary.group_totals if group.status is not None]
    critical, stopping = dict(summary.totals.findings).get("critical", 0), summary.totals.expectations_stopping
    if not summary.groups and not summary.partitions and summary.head.observed_to is not None:
        nothing = f"No share group on this cluster at {instant(summary.head.observed_to)}."
        return critical_first((nothing, "ok"), stopping=stopping, critical_findings=critical)
    sentence = _groups_in_trouble(known) if known else trail(summary)
    return critical_first(sentence, stopping=stopping, critical_findings=critical if known else 0)


def _groups_in_trouble(known: Sequence[GroupTotals]) -> tuple[str, str]:
    acting = [group for group in known if status_tone(group.status) == "critical"]
    looking = [group for group in known if is_trouble(group.status) and group not in acting]
    of_all = f"{number(len(acting))} of {counted(len(known), 'group')} need{'s' if len(acting) == 1 else ''} action"
    to_look = f"{counted(len(looking), 'group')} to look at" if looking else ""
    if acting:
        return f"{of_all}: {_named(acting)}" + (f". Another {to_look}." if to_look else "."), "critical"
    if looking:
        return f"No group needs action; {to_look}: {_named(looking)}.", "warning"
    return "No group is in trouble.", "ok"


def _named(groups: Sequence[GroupTotals]) -> str:
    """The worst first, the others counted."""
    ranked = sorted(groups, key=lambda group: status_rank(group.status))
    more = f"; {number(len(ranked) - _NAMED)} more" if len(ranked) > _NAMED else ""
    return "; ".join(map(_in_trouble, ranked[:_NAMED])) + more


def _in_trouble(group: GroupTotals) -> str:
    since = f" since {instant(group.status_since)}" if group.status_since else ""
    return f"{shortened(printable(group.group_id))} {status_text(group.status)}{since}"


def group_line(group: GroupTotals) -> str:
    """What the share partitions of a group add up to, in one line."""
    words = ", ".join(f"{number(count)} {verdict_text(word)}" for word, count in group.statuses or group.verdicts)
    return f"{words}; lag {KnownSum(group.lag_records, group.lag_unknown)}"


def statuses_line(statuses: tuple[tuple[str, int], ...]) -> str:
    """Counts by status."""
    return ", ".join(f"{number(count)} {verdict_text(status)}" for status, count in statuses) or "not known"


def status_notes(row: PartitionRow) -> tuple[str, ...]:
    """Since when a share partition is in trouble, and why; none where it is not."""
    if row.status is None or not is_trouble(row.status):
        return ()
    since = f"since {instant(row.status_since)}" if row.status_since is not None else ""
    told = ": ".join(filter(None, (since, row.status_reason)))
    return (printable(told),) if told else ()
