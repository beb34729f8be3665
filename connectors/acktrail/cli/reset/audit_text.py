"""Rows of the audit in lines that a person reads from top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from acktrail.plain_tables import table

Row = Mapping[str, Any]


def audit_text(rows: Sequence[Row], *, with_plan: bool) -> str:
    """A table, oldest first. `with_plan`: rows of several plans."""
    headers = ("#", "AT", *(["PLAN"] if with_plan else []), "EVENT", "GROUP", "OUTCOME", "BY", "WHAT")
    return table(headers, [_cells(row, with_plan=with_plan) for row in rows])


def report_text(report: Row, *, anchor: object = None) -> str:
    """What was checked, and what the audit knows nothing of."""
    newest = report["newest_hash"] or "-"
    lines = [f"audit: {report['rows']} rows, whole; newest hash {newest}"]
    lines.append(f"the audit vouches for {report['plans']} plan(s) and {report['executions']} result(s)")
    unknown = [
        f"{report[name]} {what}"
        for name, what in (("plans_without_audit", "plan(s)"), ("executions_without_audit", "result(s)"))
        if report[name]
    ]
    if unknown:
        lines.append(
            f"not in the audit: {' and '.join(unknown)}, of an older release, of a process that was killed, or put in"
        )
    if anchor is not None and report["newest_sequence"] is not None:
        lines.append(f"anchor {anchor}: now at row {report['newest_sequence']}")
    return "\n".join(lines)


def _cells(row: Row, *, with_plan: bool) -> tuple[object, ...]:
    plan = [row["plan_id"]] if with_plan else []
    by = f"{row['actor']} on {row['host']}"
    say = _SAID.get(row["event"])
    said = "" if say is None else say(row["detail"])
    return (row["sequence"], row["audited_at"], *plan, row["event"], row["group_id"], row["outcome"], by, said)


def _instant(milliseconds: int) -> str:
    from acktrail.times import instant_text

    return instant_text(milliseconds)


def _decided(detail: Row) -> str:
    return str(detail.get("note", ""))


def _leased(detail: Row) -> str:
    return f"until {_instant(detail['expires_at_ms'])}, process {detail['pid']}"


def _refused(detail: Row) -> str:
    if "moved" in detail:
        return "; ".join(f"{subject}: {text} [{rule}]".removeprefix(": ") for rule, subject, text in detail["moved"])
    return str(detail.get("error", ""))


def _planned(detail: Row) -> str:
    return f"{detail['rows']} share partition(s)" if detail.get("rows") else ""


def _kept_out(detail: Row) -> str:
    return f"group {detail['group']!r} is being changed by {detail['kept_by']}; {detail['hint']}"


def _asked(detail: Row) -> str:
    parts = detail.get("parts")
    return str(detail["request"]) if parts is None else f"{detail['request']}: {len(parts)} share partition(s)"


def _answered(detail: Row) -> str:
    done = [f"{detail['done']} done"] if "done" in detail else []
    return "; ".join([*done, *(_failure(failed) for failed in detail.get("failed", ()))])


def _failure(failed: Sequence[Any]) -> str:
    """One of a request's failures, of a share partition or of a topic: error and advice come last."""
    topic, second, *_ = failed
    where = f"{topic}:{second}" if isinstance(second, int) else topic
    return ": ".join(str(word) for word in (where, failed[-2] or "no answer") if word)


def _found(detail: Row) -> str:
    return ", ".join(f"{count} {status}" for status, count in detail.get("statuses", {}).items())


_SAID: Final[Mapping[str, Callable[[Row], str]]] = MappingProxyType(
    {
        "planned": _planned,
        "approved": _decided,
        "rejected": _decided,
        "expired": _decided,
        "lease_taken": _leased,
        "lease_refused": _kept_out,
        "refused": _refused,
        "before_call": _asked,
        "after_call": _answered,
        "verified": _found,
    }
)
