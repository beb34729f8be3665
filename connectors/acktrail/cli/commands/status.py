"""``acktrail status``: is the trail fresh and complete, and which group is in trouble, on one screen; and ``acktrail
findings``: the rules that are broken now, with names and evidence."""

from __future__ import annotations

import datetime as dt
import fnmatch
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from acktrail.cli import health_text
from acktrail.cli.arrow_without_pandas import lean_tables
from acktrail.cli.common_options import TIME, AsJson, TablesOptions, TablesRoot, echo_rows, json_line
from acktrail.errors import InputError, QualityGateFailed
from acktrail.plain_tables import printable
from acktrail.times import duration_ms, time_ms
from acktrail.view.wording import SEVERITIES

if TYPE_CHECKING:
    from acktrail.tables.delta.store import Tables
    from acktrail.view.cluster_health import ClusterHealth
    from acktrail.view.finding_rows import FindingRow

ACT_ON_IT: Final = QualityGateFailed.exit_code
_REDRAW: Final = "\033[H\033[2J"
_LONGEST_MS: Final = 86_400_000
_LINES: Final = 60
"""Of an answer that no terminal shows."""
_OLDEST: Final = dt.datetime.min.replace(tzinfo=dt.UTC)
"""When a finding was first seen that does not know it."""


def status(
    group: Annotated[
        list[str] | None, typer.Option("--group", help="Only groups that match, shell style. May be repeated.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Until Ctrl-C: drawn again on a terminal, a line each time elsewhere.")
    ] = False,
    every: Annotated[str, typer.Option("--every", help="With --watch, how often to look: 30s, 1m.")] = "10s",
    stale_after: Annotated[
        str, typer.Option("--stale-after", help="An export or statuses older than this are something to act on.")
    ] = "2h",
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show whether the trail is fresh and complete, and which groups are in trouble, the worst first.

    On top export, gaps, findings; then groups, then the share partitions that are not ok or idle, each with since when
    and why, up to the height of the screen. Reads small tables alone, as of the newest reconciliation; no broker.
    The exit code is 0 when there is nothing to act on, and 6 when there is: a status that asks for action, an open
    critical finding, something older than --stale-after, or something that is not known.

    Example: acktrail status --group 'fraud-*'
    """
    every_ms = min(duration_ms("--every", every), _LONGEST_MS)
    stale = dt.timedelta(milliseconds=duration_ms("--stale-after", stale_after))
    config = lean_tables(tables, tables_options)
    from acktrail.tables.delta.store import Tables
    from acktrail.view.cluster_health import cluster_health
    from acktrail.view.finding_rows import stopping_run

    def look() -> tuple[ClusterHealth, dt.datetime, int]:
        now, tables = dt.datetime.now(dt.UTC), Tables(config)
        found = cluster_health(tables, now).of_groups(group or ())
        return found, now, stopping_run(tables, found.run_id)

    while True:
        found, now, stopping = look()
        reasons = found.to_act_on(now, stale)
        if as_json:
            typer.echo(json_line(health_text.health_json(found, now, reasons)))
        elif watch and not sys.stdout.isatty():
            typer.echo(health_text.one_line(found, now, reasons))
        else:
            screen = health_text.screen(found, now, reasons, stopping=stopping, lines=_lines())
            typer.echo(_REDRAW + screen if watch else screen, nl=not watch)
        if not watch:
            break
        sys.stdout.flush()
        time.sleep(every_ms / 1000)
    if reasons:
        raise typer.Exit(ACT_ON_IT)


def _lines() -> int:
    """How many lines the answer may have: those of the terminal, without the one of the next prompt."""
    return shutil.get_terminal_size().lines - 1 if sys.stdout.isatty() else _LINES


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
