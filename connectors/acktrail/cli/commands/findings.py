"""``acktrail findings``: the rules that are broken now, with names and evidence."""

from __future__ import annotations

import datetime as dt
import fnmatch
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from acktrail.cli.arrow_without_pandas import lean_tables
from acktrail.cli.common_options import TIME, AsJson, TablesOptions, TablesRoot
from acktrail.cli.text import health_text
from acktrail.cli.text.json_text import echo_rows
from acktrail.errors import InputError
from acktrail.plain_tables import printable
from acktrail.times import time_ms
from acktrail.view.wording import SEVERITIES

if TYPE_CHECKING:
    from acktrail.tables.delta.store import Tables
    from acktrail.view.finding_rows import FindingRow

_OLDEST: Final = dt.datetime.min.replace(tzinfo=dt.UTC)
"""When a finding was first seen that does not know it."""


def findings(
    severity: Annotated[
        str | None, typer.Option("--severity", help="This severity and worse: critical, error, warning, info.")
    ] = None,
    rule: Annotated[str | None, typer.Option("--rule", help="Only rules that match, shell style.")] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", help="Only groups that match, shell style. May be repeated.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help=f"Only what was first seen at or after this time: {TIME}.")
    ] = None,
    seen_by: Annotated[
        str | None,
        typer.Option("--seen-by", help="Acknowledge the archived records of --group in this name; list nothing."),
    ] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="Also those that are not open any more.")] = False,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """List the findings that are open, the worst and then the newest first: rule, place, since when, and evidence.

    Open is what the newest reconciliation saw, and the newest audit of a branch. EVIDENCE is the state record that
    shows it: its state partition and offset in __share_group_state. The JSON form has one object for each finding. The
    exit code is 0 also when there are findings: `acktrail status` is the one for scripts.
    Archived records stay a finding, and what archived most of its records keeps the status `archived_unseen`, until
    somebody acknowledges them with --seen-by, or for ACKTRAIL_UNSEEN (7 days); from the next reconciliation on.

    Example: acktrail findings --severity error --since 1d
    """
    from_ms = None if since is None else time_ms("--since", since)
    config = lean_tables(tables, tables_options)
    from acktrail.tables.delta.store import Tables
    from acktrail.view.finding_rows import open_findings

    if severity is not None and severity not in SEVERITIES:
        raise InputError(f"there is no severity {severity!r}", hint=f"use one of {', '.join(SEVERITIES)}")
    store = Tables(config)
    if seen_by is not None:
        _acknowledge(store, group or [], seen_by)
        return
    worse = None if severity is None else SEVERITIES[: SEVERITIES.index(severity) + 1]
    tests: list[Callable[[FindingRow], bool]] = [
        lambda each: worse is None or each.severity in worse,
        lambda each: rule is None or fnmatch.fnmatchcase(each.rule, rule),
        lambda each: not group or _is_one_of(each.group_id, group),
        lambda each: from_ms is None or (each.first_seen_at or _OLDEST).timestamp() * 1000 >= from_ms,
    ]
    listed = open_findings(store, gone_too=all_of_them)
    found = [each for each in listed if all(test(each) for test in tests)]
    if as_json:
        echo_rows(map(asdict, found))
        return
    typer.echo(health_text.findings_text(found, dt.datetime.now(dt.UTC)))


def _acknowledge(store: Tables, groups: list[str], seen_by: str) -> None:
    from acktrail.reconcile.findings import note_seen

    if not groups or not seen_by.strip():
        raise InputError("--seen-by needs a name, and the groups", hint="--group GROUP --seen-by NAME")
    noted = note_seen(store, groups, seen_by.strip(), dt.datetime.now(dt.UTC))
    if not noted.num_rows:
        raise InputError("no group of that name has archived records", hint="`acktrail findings` lists them")
    for row in noted.to_pylist():
        where = f"{row['group_id']} {row['topic'] or row['topic_id']} {row['partition']}"
        typer.echo(printable(f"{where}: {row['reason']}"))
    typer.echo("the next reconciliation leaves them out")


def _is_one_of(group_id: str | None, patterns: list[str]) -> bool:
    return group_id is not None and any(fnmatch.fnmatchcase(group_id, pattern) for pattern in patterns)
