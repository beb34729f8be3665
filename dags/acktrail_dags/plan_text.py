"""A plan in Markdown, for the person who is asked to approve it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from acktrail.change.change_kind import kind_of
from acktrail.change.planning.change_plan import ChangePlan, PartitionPlan, cost, delivered, forgotten
from acktrail.change.planning.notices import AlikeNotices, Notice, Severity, by_rule
from acktrail.plain_tables import few, printable
from acktrail.times import instant_text
from acktrail_dags.parameters import in_form_words

_SHARE_PARTITIONS: Final = 10
_NOTICES: Final = 30
_PUNCTUATION: Final = re.compile(r"([!-/:-@\[-`{-~])")
_REST: Final = "all of them in the plan: `acktrail change show`"
_NOTICE_COLUMNS: Final = ("Severity", "Rule", "About", "What")
_COLUMNS: Final = ("Group", "Topic", "Partition", "Start offset", "New start offset", "Repeated", "Lost")


def plan_text(plan: ChangePlan, *, where: str, approval: str = "") -> str:
    """The plan as Markdown: who asks for what on which cluster (`where`: its profile, its address), what that does, who
    may approve it (`approval`), what to mind, the ten share partitions that most happens to. What only its kind
    has is a block of code. Names and texts are escaped: nothing in them is read as Markdown or HTML."""
    about, own = f" of {few(plan.group_ids)}" if plan.groups else "", kind_of(plan).text(plan)
    asks = f"{plan.requested_by or plan.created_by} asks for a {plan.kind}{about} "
    because = f". Reason: {plan.reason}" if plan.reason else ". No reason is given."
    cluster = f"{plan.strategy} on cluster {where}, id {plan.cluster_id}, Kafka {plan.release}"
    parts = (
        f"{_cell(asks)}**{_cell(cluster)}**{_cell(because)}",
        *([f"**It {_cell(cost(plan))}.**", _cell(_numbers(plan))] if plan.partitions else []),
        "\n".join(f"    {printable(line)}" for line in own.splitlines()),
        _cell(approval),
        _table(_NOTICE_COLUMNS, _notice_rows(plan.notices), _NOTICES),
        _table(_COLUMNS, [_share_partition(row) for row in _worst_first(plan)], _SHARE_PARTITIONS),
        f"Plan `{plan.plan_id}`, hash `{plan.plan_hash[:16]}`.",
    )
    return "\n\n".join(filter(None, parts))


def notice_text(notice: Notice) -> str:
    """A notice as one line: rule, group and share partition, text."""
    subject = f" ({notice.subject})" if notice.subject else ""
    return f"{notice.rule}{subject}: {in_form_words(notice.text)}"


def _numbers(plan: ChangePlan) -> str:
    totals, (to_deliver, _), (acknowledgements, _) = plan.totals, delivered(plan), forgotten(plan)
    refused = f", {totals.refused_partitions} of them refused" if totals.refused_partitions else ""
    return (
        f"By the state at {instant_text(plan.created_at_ms)}: {totals.partitions} share partitions{refused}; "
        f"{to_deliver} records to deliver, {acknowledgements} acknowledgements forgotten, "
        f"{_number(totals.in_flight_discarded)} delivery counts of records in flight restart."
    )


def _notice_rows(notices: Sequence[Notice]) -> list[tuple[object, ...]]:
    """One for what one sentence is about."""
    alike = by_rule([each for each in notices if each.severity is not Severity.INFO])
    return [(each.severity.value, each.rule, _counted(each), in_form_words(each.text)) for each in alike]


def _counted(alike: AlikeNotices) -> str:
    count = f"{len(alike.subjects)}: " if len(alike.subjects) > 1 else ""
    return count + alike.about if alike.subjects else "all"


def _worst_first(plan: ChangePlan) -> list[PartitionPlan]:
    """Refused ones, then by what is lost, then by what is repeated."""

    def weight(row: PartitionPlan) -> tuple[bool, int, int]:
        impact = row.impact
        return row.target_offset is None, (impact and impact.skipped) or 0, (impact and impact.delivered_again) or 0

    return sorted(plan.partitions, key=weight, reverse=True)


def _share_partition(row: PartitionPlan) -> tuple[object, ...]:
    impact = row.impact
    counts = (None, None) if impact is None else (impact.delivered_again, impact.skipped)
    target = "refused" if row.target_offset is None else row.target_offset
    return (row.group_id, row.topic, row.partition, _number(row.start_offset), target, *map(_number, counts))


def _number(value: object) -> object:
    return "unknown" if value is None else value


def _table(headers: Sequence[str], rows: Sequence[Sequence[object]], most: int) -> str:
    """A table of the first `most` rows, whose values are escaped; the others are counted. Empty without any."""
    lines = [headers, ["---"] * len(headers), *([_cell(value) for value in row] for row in rows[:most])]
    left_off = f"\n\n... and {len(rows) - most} more, {_REST}." if len(rows) > most else ""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + left_off if rows else ""


def _cell(value: object) -> str:
    """A value as text in which nothing is read as Markdown or HTML."""
    return _PUNCTUATION.sub(r"\\\1", printable(str(value)))
