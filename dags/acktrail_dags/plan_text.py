"""A plan in Markdown, for the person who is asked to approve it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from acktrail.change.change_kind import kind_of
from acktrail.change.plan.change_plan import ChangePlan
from acktrail.change.plan.notices import Notice, Severity, by_rule
from acktrail.text_tables import few, printable
from acktrail.times import instant_text
from acktrail.view.change_text import COSTS, ShownPartition, cost, scope, shown_partitions, sums
from acktrail.view.wording import in_words
from acktrail_dags.parameters import in_form_words

_SHARE_PARTITIONS: Final = 10
_NOTICES: Final = 30
_PUNCTUATION: Final = re.compile(r"([!-/:-@\[-`{-~])")
_REST: Final = "all of them in the plan: `acktrail change show --json`"
_NOTICE_COLUMNS: Final = ("Severity", "Rule", "About", "What")
_COLUMNS: Final = [in_words(name).capitalize() for name in ShownPartition._fields]


def plan_text(plan: ChangePlan, *, where: str, approval: str = "") -> str:
    """The plan as Markdown: who asks for what on which cluster (`where`: its profile, its address), what that does, who
    may approve it (`approval`), what to mind, the ten share partitions that most happens to. What only its kind
    has is a block of code. Names and texts are escaped: nothing in them is read as Markdown or HTML."""
    about, own = f" of {few(plan.group_ids)}" if plan.groups else "", kind_of(plan).text(plan)
    notices = _notice_rows(plan.notices)
    asks = f"{plan.requested_by or plan.created_by} asks for this {in_words(plan.kind)}{about} "
    because = f". Reason: {plan.reason}" if plan.reason else ". No reason is given."
    cluster = f"{plan.strategy} on cluster {where}, id {plan.cluster_id}, Kafka {plan.release}"
    parts = (
        f"{_cell(asks)}**{_cell(cluster)}**{_cell(because)}",
        *([f"**It {_cell(cost(plan))}.**", _cell(_numbers(plan))] if plan.partitions else []),
        "\n".join(f"    {printable(line)}" for line in own.splitlines()),
        _cell(approval),
        _table(_NOTICE_COLUMNS, notices[:_NOTICES], len(notices)),
        _table(_COLUMNS, shown_partitions(plan, _SHARE_PARTITIONS), len(plan.partitions)),
        f"Plan `{plan.plan_id}`, hash `{plan.plan_hash[:16]}`.",
    )
    return "\n\n".join(filter(None, parts))


def subject_text(plan: ChangePlan, *, where: str) -> str:
    """One line for a list of plans that wait for an answer: whose groups, where, what, at what cost, who asks."""
    about, costs = few(plan.group_ids) if plan.groups else "", f", {cost(plan)}" if plan.partitions else ""
    what = " ".join(filter(None, (in_words(plan.kind).capitalize(), about, plan.strategy, "on", where)))
    return printable(f"{what}{costs}: {plan.requested_by or plan.created_by} asks")


def notice_text(notice: Notice) -> str:
    """A notice as one line: rule, group and share partition, text."""
    subject = f" ({notice.subject})" if notice.subject else ""
    return f"{notice.rule}{subject}: {in_form_words(notice.text)}"


def _numbers(plan: ChangePlan) -> str:
    """Beside the cost."""
    numbers = (f"{name}: {text}" for name, text in sums(plan).items() if name not in COSTS)
    return "; ".join([f"By the state at {instant_text(plan.created_at_ms)}: {scope(plan)}", *numbers]) + "."


def _notice_rows(notices: Sequence[Notice]) -> list[tuple[object, ...]]:
    """One for what one sentence is about."""
    alike = by_rule([each for each in notices if each.severity is not Severity.INFO])
    return [(each.severity.value, each.rule, each.about or "all", in_form_words(each.text)) for each in alike]


def _table(headers: Sequence[str], rows: Sequence[Sequence[object]], count: int) -> str:
    """A table of the first rows of `count`, whose values are escaped; the others are counted. Empty without any."""
    lines = [headers, ["---"] * len(headers), *([_cell(value) for value in row] for row in rows)]
    left_off = f"\n\n... and {count - len(rows)} more, {_REST}." if count > len(rows) else ""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + left_off if rows else ""


def _cell(value: object) -> str:
    """A value as text in which nothing is read as Markdown or HTML; None is a number that is not known."""
    return _PUNCTUATION.sub(r"\\\1", printable("unknown" if value is None else str(value)))
