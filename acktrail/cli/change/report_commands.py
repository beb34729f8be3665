"""What is known of resets, for people and programs: commands that change nothing."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from acktrail.change import plan_status
from acktrail.change.cluster import Cluster
from acktrail.change.request.reset_request import ResetRequest, is_in, parse_request
from acktrail.cli.change import change_preview as options
from acktrail.cli.change.change_preview import load_any_plan, painted
from acktrail.cli.common_options import AuditAnchor, OfCluster, OfTables, echo_rows
from acktrail.dataclass_json import to_json_value
from acktrail.errors import ChangeRefused, UnknownName
from acktrail.text_tables import few, printable, table
from acktrail.times import instant_text
from acktrail.view.change_text import plan_text, results_text

_Json = Mapping[str, Any]


def list_plans(
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Show the newest N.")] = None, *, at: OfTables
) -> None:
    """List the plans, newest first, with status and next step."""
    found = plan_status.list_plans(at.needed, limit=limit)
    if at.as_json:
        echo_rows(found)
        return
    if not found:
        typer.echo("no plan was made yet: `acktrail change plan` makes one")
        return
    headers = ("PLAN", "CREATED", "KIND", "STANDING", "GROUPS", "PARTITIONS", "STRATEGY", "BY", "NEXT")
    named = ("plan_id", "created_at", "kind", "standing", "groups", "partitions", "strategy", "created_by", "next")
    rows = [{**line, "groups": few(line["groups"])} for line in found]
    typer.echo(table(headers, [[row[name] for name in named] for row in rows]))


def show(
    plan: Annotated[str, typer.Argument(help="The id of a stored plan, or a plan file.")], *, at: OfTables
) -> None:
    """Show a plan: what it would do or did, and its outcomes. There is an outcome for each share partition, and a
    status for the whole plan."""
    target = at.optional
    loaded = load_any_plan(plan, target)
    progress: dict[str, Any] = {}
    if target is not None:
        with suppress(UnknownName):  # a file that is stored nowhere
            progress = plan_status.plan_status(target, loaded.plan_id)
    if at.as_json:
        typer.echo(json.dumps({"plan": to_json_value(loaded), **progress}))
        return

    typer.echo(plan_text(loaded, painted))
    if progress:
        words = {"approve": "approved", "reject": "rejected", "expire": "expired"}
        typer.echo(f"\nstanding {progress['standing']}: {progress['next']}")
        for one in progress["decisions"]:
            why = f": {printable(one['why'])}" if one["why"] else ""
            typer.echo(f"{words[one['decision']]} by {printable(one['by'])} at {one['at']}{why}")
        for plan_id in progress["undone_by"]:
            typer.echo(f"taken back by plan {plan_id}")
    if progress.get("groups"):
        standings = [(one["group_id"], one["attempt"], one["standing"]) for one in progress["groups"]]
        typer.echo("\n" + table(("GROUP", "ATTEMPT", "STANDING"), standings))
    if progress.get("executions"):
        typer.echo("\n" + results_text(progress["executions"]))


def audit(
    plan: Annotated[str | None, typer.Argument(help="The id of a plan. Default: every change.")] = None,
    anchor: AuditAnchor = None,
    *,
    at: OfTables,
) -> None:
    """Show who did what and when. The audit has plans, approvals, requests (before and after sending) and the results
    of verification.

    The command checks the whole chain of hashes, and compares plans and results with it. It ends with an error that
    names the first difference. This proves that the tables agree with each other. A person who can write all the tables
    can replace them by others that agree, too; only --anchor detects that.

    Example: acktrail change audit --anchor /var/lib/acktrail/audit-anchor.json
    """
    from acktrail.view.audit_integrity import audit_rows, checked_audit

    target = at.needed
    checked = checked_audit(target, anchor=anchor)
    report = {"words": checked.words, **to_json_value(checked)}
    found = audit_rows(target, plan_id=plan)
    if at.as_json:
        typer.echo(json.dumps({"chain": report, "rows": found}))
        return
    if found:
        headers = ("#", "AT", *(["PLAN"] if plan is None else []), "EVENT", "GROUP", "OUTCOME", "BY", "WHAT")
        typer.echo(table(headers, [_audit_cells(row, with_plan=plan is None) for row in found]))
    typer.echo(_report_text(report, anchor), err=bool(found))


def _report_text(report: _Json, anchor: Path | None) -> str:
    """What was checked, and what the audit knows nothing of."""
    if not report["rows"] and not report["plans_without_audit"] and not report["executions_without_audit"]:
        return "audit: no rows; compared with no anchor: nothing was planned or changed yet, or its tables were removed"
    lines = [
        f"audit: {report['words']}; newest hash {report['newest_hash'] or '-'}",
        f"the audit vouches for {report['plans']} plan(s) and {report['executions']} result(s)",
    ]
    kinds = (("plans_without_audit", "plan(s)"), ("executions_without_audit", "result(s)"))
    unknown = " and ".join(f"{report[name]} {what}" for name, what in kinds if report[name])
    if unknown:
        lines.append(f"not in the audit: {unknown}, of a process that was killed, or put in")
    if anchor is not None and report["newest_sequence"] is not None:
        lines.append(f"anchor {anchor}: now at row {report['newest_sequence']}")
    return "\n".join(lines)


def _audit_cells(row: _Json, *, with_plan: bool) -> tuple[object, ...]:
    plan, by = [row["plan_id"]] if with_plan else [], f"{row['actor']} on {row['host']}"
    what = _WHAT[row["event"]](row["detail"]) if row["event"] in _WHAT else ""
    return (row["sequence"], row["audited_at"], *plan, row["event"], row["group_id"], row["outcome"], by, what)


def _refused(detail: _Json) -> str:
    if "moved" in detail:
        return "; ".join(f"{subject}: {text} [{rule}]".removeprefix(": ") for rule, subject, text in detail["moved"])
    return str(detail.get("error", ""))


def _asked(detail: _Json) -> str:
    parts = detail.get("parts")
    return str(detail["request"]) if parts is None else f"{detail['request']}: {len(parts)} share partition(s)"


def _answered(detail: _Json) -> str:
    """What was done, then each failure, of a share partition, a topic or the group."""
    lines = [f"{detail['done']} done"] if "done" in detail else []
    for one in detail.get("failed", ()):
        where = one["topic"] if one["partition"] is None else f"{one['topic']}:{one['partition']}"
        lines.append(": ".join(word for word in (where, one["error"] or "no answer") if word))
    return "; ".join(lines)


_WHAT: Final[Mapping[str, Callable[[_Json], str]]] = {
    **dict.fromkeys(("approved", "rejected", "expired"), lambda detail: str(detail.get("note", ""))),
    "lease_taken": lambda detail: f"until {instant_text(detail['expires_at_ms'])}, process {detail['pid']}",
    "lease_refused": lambda d: f"group {d['group']!r} is being changed by {d['kept_by']}; {d['hint']}",
    "refused": _refused,
    "before_call": _asked,
    "after_call": _answered,
    "looked": lambda detail: f"{detail['topic']}:{detail['partition']}, offset {detail['offset']}",
    "verified": lambda detail: ", ".join(f"{count} {status}" for status, count in detail.get("statuses", {}).items()),
}
"""What the detail of an event says to a person."""


def export(*, scope: options.WhereOptions, at: OfCluster) -> None:
    """Print start offsets as CSV for `--from-file`. Kafka's own tools can read it, too.

    The columns are topic,partition,offset; with several groups group,topic,partition,offset. Share partitions without a
    start offset are left out. Topics that you may not DESCRIBE are left out without a warning, because the broker does
    not list them (`change plan reset --all-topics` reports them).
    """
    asked = {**scope.named, "all_topics": not scope.topics, "strategies": {"to-current": None}}
    with Cluster(at.kafka) as cluster:
        text, left_out = current_offsets(cluster, parse_request(asked))
    typer.echo(text, nl=False)
    if left_out:
        typer.echo(f"{left_out} share partition(s) without a start offset left out", err=True)


def current_offsets(cluster: Cluster, request: ResetRequest) -> tuple[str, int]:
    """The described start offsets in the scope of `request` as CSV, and how many share partitions have none. Raises
    ChangeRefused: `no_such_group`: a glob matches none. UnknownName: a named group does not exist. NotAuthorized,
    Unreachable, RetryableError: the cluster does not answer."""
    from acktrail.change.plan.snapshot_reader import select_groups

    groups, unmatched = select_groups(cluster.admin, request)
    if unmatched:
        raise ChangeRefused("no_such_group", f"no share group matches {unmatched[0]!r}")
    rows: list[tuple[str, str, int, int | None]] = []
    for group in groups:
        cluster.admin.describe_group(group)
        rows += [(group, o.topic, o.partition, o.start_offset) for o in cluster.admin.describe_offsets(group)]
    rows = [row for row in rows if not request.topics or is_in(request.topics, row[1], row[2])]
    several = len({group for group, *_ in rows}) > 1
    known = [(group if several else None, topic, index, at) for group, topic, index, at in rows if at is not None]
    return write_offsets(known), len(rows) - len(known)


def write_offsets(rows: Iterable[tuple[str | None, str, int, int]]) -> str:
    """(group, topic, partition, offset) as CSV that Kafka's tools read; group None: three columns. Names are quoted:
    the writer would leave bare what other readers take for the end of a line, a comment, a blank."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerows(row if row[0] is not None else row[1:] for row in rows)
    return text.getvalue()
