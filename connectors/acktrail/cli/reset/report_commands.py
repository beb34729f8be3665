"""What is known of resets, for people and programs: commands that change nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from acktrail.cli.arrow_without_pandas import optional_lean_tables, row_tables
from acktrail.cli.common_options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot
from acktrail.cli.reset.plan_arguments import load_any_plan, load_reset_plan
from acktrail.cli.reset.reset_options import AllGroups, Globs, Groups, Topics
from acktrail.config import KafkaConfig
from acktrail.plain_tables import printable, table


def list_plans(
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Show the newest N.")] = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """List the plans with their status, the newest first.

    UNKNOWN: it was sent, or was about to be, and its outcome was not noted; `acktrail reset verify` settles it.
    """
    from acktrail.group_changes.lifecycle import plan_status

    found = plan_status.list_plans(row_tables(tables, tables_options), limit=limit)
    if as_json:
        typer.echo(json.dumps(found))
        return
    if not found:
        typer.echo("no plans")
        return
    headers = ("PLAN", "CREATED", "KIND", "STANDING", "GROUPS", "PARTITIONS", "STRATEGY", "BY")
    named = ("plan_id", "created_at", "kind", "standing", "groups", "partitions", "strategy", "created_by")
    rows = [{**line, "groups": _few(line["groups"])} for line in found]
    typer.echo(table(headers, [[row[name] for name in named] for row in rows]))


def show(
    plan: Annotated[str, typer.Argument(help="The id of a stored plan, or a plan file.")],
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show a plan: what it would do or did, its status, and the outcome of every share partition."""
    from acktrail.group_changes.json_values import to_json_value
    from acktrail.group_changes.lifecycle.plan_status import plan_status
    from acktrail.group_changes.planning.plan import ResetPlan

    target = optional_lean_tables(tables, tables_options)
    loaded = load_any_plan(plan, target)
    progress = {} if target is None else plan_status(target, loaded.plan_id)
    if as_json:
        typer.echo(json.dumps({"plan": to_json_value(loaded), **progress}))
        return
    from acktrail.cli.reset.change_preview import change_text
    from acktrail.cli.reset.reset_text import plan_text, results_text

    typer.echo(plan_text(loaded) if isinstance(loaded, ResetPlan) else change_text(loaded))
    if progress:
        typer.echo("\n" + "\n".join(_life(progress)))
    if progress.get("groups"):
        standings = [(one["group_id"], one["attempt"], one["standing"]) for one in progress["groups"]]
        typer.echo("\n" + table(("GROUP", "ATTEMPT", "STANDING"), standings))
    if progress.get("executions"):
        typer.echo("\n" + results_text(progress["executions"]))


def _life(progress: dict[str, Any]) -> list[str]:
    """How the plan stands, and who decided what about it."""
    words = {"approve": "approved", "reject": "rejected", "expire": "expired"}
    decisions = [
        f"{words[one['decision']]} by {printable(one['by'])} at {one['at']}"
        + (f": {printable(one['why'])}" if one["why"] else "")
        for one in progress["decisions"]
    ]
    undone = [f"taken back by plan {plan_id}" for plan_id in progress["undone_by"]]
    return [f"standing {progress['standing']}", *decisions, *undone]


def audit(
    plan: Annotated[str | None, typer.Argument(help="The id of a plan; without one every change.")] = None,
    anchor: Annotated[
        Path | None,
        typer.Option(
            "--anchor",
            envvar="ACKTRAIL_AUDIT_ANCHOR",
            help="A file that keeps the newest row: it is compared, then moved on. Keep it where the tables are not.",
        ),
    ] = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show who did what and when: plans, approvals, requests before and after they were sent, what was found then.

    The whole chain of hashes is checked up to its end, and plans and results against it; what was altered or lost is an
    error that says which. Somebody who may rewrite all of the tables is found by --anchor alone.

    Example: acktrail reset audit --anchor /var/lib/acktrail/audit-anchor.json
    """
    from acktrail.group_changes.audit.integrity import checked_audit
    from acktrail.group_changes.json_values import to_json_value
    from acktrail.group_changes.lifecycle.plan_status import audit_rows

    target = row_tables(tables, tables_options)
    report = to_json_value(checked_audit(target, anchor=anchor))
    found = audit_rows(target, plan_id=plan)
    if as_json:
        typer.echo(json.dumps({"chain": report, "rows": found}))
        return
    from acktrail.cli.reset.audit_text import audit_text, report_text

    if found:
        typer.echo(audit_text(found, with_plan=plan is None))
    typer.echo(report_text(report, anchor=anchor), err=bool(found))


def export(
    group: Groups = None,
    group_glob: Globs = None,
    all_groups: AllGroups = False,
    topic: Topics = None,
    plan: Annotated[
        str | None, typer.Option("--plan", help="Export the targets of this plan (file or id) instead.")
    ] = None,
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
) -> None:
    """Print start offsets as CSV that `--from-file` reads, here and in Kafka's own tools.

    One group: topic,partition,offset; several: group,topic,partition,offset. What has no start offset is left out.
    """
    from acktrail.group_changes.api import parse_request
    from acktrail.group_changes.cluster import Cluster
    from acktrail.group_changes.request.offsets_csv import current_offsets, planned_offsets

    if plan is not None:
        text, left_out = planned_offsets(load_reset_plan(plan, optional_lean_tables(tables, tables_options)))
    else:
        groups = {"groups": group or [], "group_globs": group_glob or [], "all_groups": all_groups}
        scope = {"topics": topic or [], "all_topics": not topic, "strategies": {"to-current": None}}
        with Cluster(KafkaConfig.from_environment(bootstrap_server, client_config)) as cluster:
            text, left_out = current_offsets(cluster, parse_request({**groups, **scope}))
    typer.echo(text, nl=False)
    if left_out:
        typer.echo(f"{left_out} share partition(s) without a start offset left out", err=True)


def _few(names: list[str]) -> str:
    shown = ", ".join(printable(name) for name in names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
