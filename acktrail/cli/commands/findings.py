"""``acktrail findings``: the rules that are broken now, with names and evidence."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from acktrail.cli.common_options import TIME, OfTables, echo_rows
from acktrail.errors import InputError
from acktrail.model.rules.catalogue import rule_catalogue
from acktrail.text_tables import printable, table
from acktrail.times import time_ms
from acktrail.view.wording import SEVERITIES, ago

if TYPE_CHECKING:
    from acktrail.tables.delta.store import Tables
    from acktrail.view.finding_rows import FindingRow

_OLDEST: Final = dt.datetime.min.replace(tzinfo=dt.UTC)
"""When a finding was first seen that does not know it."""
_FINDING_HEADERS: Final = ("SEVERITY", "RULE", "GROUP", "TOPIC", "PARTITION", "SINCE", "SEEN", "EVIDENCE", "DETAIL")


def findings(
    severity: Annotated[
        str | None, typer.Option("--severity", help="Only this severity and worse: critical, error, warning, info.")
    ] = None,
    rule: Annotated[str | None, typer.Option("--rule", help="Only rules that match, shell style.")] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", help="Only groups that match, shell style. May be repeated.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help=f"Only findings that were first seen at or after this time: {TIME}.")
    ] = None,
    seen_by: Annotated[
        str | None,
        typer.Option(
            "--seen-by", help="Acknowledge the lost records of --group in the name of this person. Nothing is listed."
        ),
    ] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="Include findings that are no longer open.")] = False,
    *,
    at: OfTables,
) -> None:
    """List open findings, the worst first. Each has its rule, group, topic and partition, since when it is open, and
    evidence. Among equally severe findings the newest comes first.

    A finding is open if the newest reconciliation, or the newest audit of an extension, found it. EVIDENCE is the state
    record that proves it: its state partition and offset in __share_group_state. The JSON form has one object for each
    finding. The exit code is 0 also when there are findings; scripts should use `acktrail status`. Findings about lost
    records (archived, removed by retention, skipped by a reset) stay open until a person acknowledges them with
    --seen-by; the next reconciliation then closes them.

    Example: acktrail findings --severity error --since 1d
    """
    from_ms = None if since is None else time_ms("--since", since)
    config = at.needed
    from acktrail.tables.delta.store import Tables
    from acktrail.tables.open_findings import open_runs
    from acktrail.view.finding_rows import open_findings
    from acktrail.view.queue_rows import like

    if severity is not None and severity not in SEVERITIES:
        raise InputError(f"there is no severity {severity!r}", hint=f"use one of {', '.join(SEVERITIES)}")
    store = Tables(config)
    if seen_by is not None:
        _acknowledge(store, group or [], seen_by)
        return
    worse = None if severity is None else SEVERITIES[: SEVERITIES.index(severity) + 1]
    runs = open_runs(store)
    listed = open_findings(store, runs, gone_too=all_of_them)
    groups = store.read("queue_statuses", columns=["group_id"])["group_id"].to_pylist() if group else []
    known = {*rule_catalogue().by_id, *(each.rule for each in listed)}
    is_of_rule = like("rule", [] if rule is None else [rule], known)
    is_of_group = like("group", group or [], [*groups, *(each.group_id for each in listed)])
    tests: list[Callable[[FindingRow], bool]] = [
        lambda each: worse is None or each.severity in worse,
        lambda each: is_of_rule(each.rule),
        lambda each: is_of_group(each.group_id),
        lambda each: from_ms is None or (each.first_seen_at or _OLDEST).timestamp() * 1000 >= from_ms,
    ]
    found = [each for each in listed if all(test(each) for test in tests)]
    if at.as_json:
        echo_rows(map(asdict, found))
        return
    if not runs.run_ids:
        typer.echo("nothing was reconciled yet, so no finding is known: run `acktrail run reconcile`")
        return
    typer.echo(findings_text(found, dt.datetime.now(dt.UTC)))


def _acknowledge(store: Tables, groups: list[str], seen_by: str) -> None:
    from acktrail.tables.acknowledged_losses import acknowledge_losses

    if not groups or not seen_by.strip():
        raise InputError("--seen-by needs a name, and the groups", hint="--group GROUP --seen-by NAME")
    noted = acknowledge_losses(store, groups, seen_by.strip(), dt.datetime.now(dt.UTC))
    if not noted.num_rows:
        raise InputError("no matching group has lost records", hint="`acktrail findings` lists them")
    for row in noted.to_pylist():
        where = f"{row['group_id']} {row['topic'] or row['topic_id']} {row['partition']}"
        typer.echo(printable(f"{where}: {row['reason']}"))
    typer.echo("the next reconciliation no longer reports them")


def findings_text(found: Sequence[FindingRow], now: dt.datetime) -> str:
    """One line a finding, the worst first."""
    if not found:
        return "no finding"
    rows = [
        (
            *(each.severity if each.is_open else f"({each.severity})", each.rule, each.group_id),
            *(each.topic or each.topic_id, each.partition, ago(each.first_seen_at, now), each.times_seen),
            _evidence(each),
            each.detail if each.group_id is not None else f"{each.subject}: {each.detail}",
        )
        for each in found
    ]
    text = table(_FINDING_HEADERS, rows)
    return text if all(each.is_open for each in found) else f"{text}\n\n(severity): not open any more"


def _evidence(row: FindingRow) -> str | None:
    place, offset = row.evidence_state_partition, row.evidence_offset
    return None if place is None else f"{place}:{'?' if offset is None else offset}"
