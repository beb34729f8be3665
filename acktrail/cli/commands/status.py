"""``acktrail status``: is the trail fresh and complete, and which group is in trouble, on one screen."""

from __future__ import annotations

import datetime as dt
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from acktrail.cli.common_options import OfTables, json_line
from acktrail.errors import QualityGateFailed
from acktrail.text_tables import KnownSum, printable, table
from acktrail.times import duration_ms, instant_text, utc_text
from acktrail.view.wording import ago, counts_text, headline, in_words, trouble_text, who_is_not_known

if TYPE_CHECKING:
    import pyarrow as pa

    from acktrail.view.cluster_health import ClusterHealth

ACT_ON_IT: Final = QualityGateFailed.exit_code
_REDRAW: Final = "\033[H\033[2J"
_LONGEST_MS: Final = 86_400_000
_LINES: Final = 60
"""Of an answer that no terminal shows."""
_LEAST_ROWS: Final = 3
_GROUP_HEADERS: Final = ("GROUP", "STATUS", "SINCE", "SHARE PARTITIONS", "UNFINISHED")
_QUEUE_HEADERS: Final = ("GROUP", "TOPIC", "PARTITION", "STATUS", "SINCE", "UNFINISHED", "REASON")
_HELPERS: Final = ("words", "counts", "rank")
_TOLD: Final = ("status", "reason", "group_id", "topic")
"""Columns of rows that say nothing of their own."""
Row = Mapping[str, Any]


def status(
    group: Annotated[
        list[str] | None, typer.Option("--group", help="Only groups that match, shell style. May be repeated.")
    ] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Repeat until Ctrl-C. A terminal is redrawn; other outputs get one line each time."
        ),
    ] = False,
    every: Annotated[
        str, typer.Option("--every", help="With --watch: how often to refresh, for example 30s, 1m.")
    ] = "10s",
    stale_after: Annotated[
        str, typer.Option("--stale-after", help="Exit with 6 if the export or the statuses are older than this.")
    ] = "2h",
    *,
    at: OfTables,
) -> None:
    """Show how old the export is, and which groups are in trouble. The worst groups come first. Gaps and failed rules
    are shown, too.

    First come export, gaps and findings, then groups, then the share partitions that are neither ok nor idle: since
    when, and why. The output is cut at the height of the screen. The command reads small tables, as the newest
    reconciliation wrote them, and connects to no broker. Exit code 0: there is nothing to act on. Exit code 6: a status
    requires action, a critical finding is open, the export or the statuses are older than --stale-after, or something
    is unknown.

    Example: acktrail status --group 'fraud-*'
    """
    every_ms = min(duration_ms("--every", every), _LONGEST_MS)
    stale = dt.timedelta(milliseconds=duration_ms("--stale-after", stale_after))
    config = at.needed
    from acktrail.tables.delta.store import Tables
    from acktrail.view.check_rows import stopping_run
    from acktrail.view.cluster_health import cluster_health

    while True:
        now, tables = dt.datetime.now(dt.UTC), Tables(config)
        tables.ensure_there()
        found = cluster_health(tables, now).of_groups(group or ())
        reasons = found.to_act_on(now, stale)
        if at.as_json:
            typer.echo(json_line(health_json(found, now, reasons)))
        elif watch and not sys.stdout.isatty():
            typer.echo(one_line(found, now, reasons))
        else:
            text = screen(found, now, reasons, stopping=stopping_run(tables, found.run_id), lines=_lines())
            typer.echo(_REDRAW + text if watch else text, nl=not watch)
        if not watch:
            break
        sys.stdout.flush()
        time.sleep(every_ms / 1000)
    if reasons:
        raise typer.Exit(ACT_ON_IT)


def _lines() -> int:
    """How many lines the answer may have: those of the terminal, without the one of the next prompt."""
    return shutil.get_terminal_size().lines - 1 if sys.stdout.isatty() else _LINES


def screen(found: ClusterHealth, now: dt.datetime, reasons: Sequence[str], *, stopping: int, lines: int) -> str:
    """Who is in trouble, freshness and completeness, then groups, then the share partitions in trouble; at most `lines`
    lines, where that leaves a few rows of each. The last line has what is to be acted on. `stopping`: critical rules
    that stopped the newest run."""
    head = [_headline(found, stopping), *_head(found, now)]
    verdict = printable(f"act on: {'; '.join(reasons)}" if reasons else _nothing(found))
    room = max(lines - len(head) - 2, 0)
    groups = [_group_row(each, now) for each in _rows(found.groups)]
    queues = [_queue_row(each, now) for each in _in_trouble(found)]
    of_groups = _block(_GROUP_HEADERS, groups, room // 2, "group(s)")
    of_queues = _block(_QUEUE_HEADERS, queues, room - len(of_groups), "share partition(s) in trouble")
    return "\n".join([*head, *of_groups, *of_queues, "", verdict])


def one_line(found: ClusterHealth, now: dt.datetime, reasons: Sequence[str]) -> str:
    """The same in a line, with its time, for a log."""
    what = "; ".join(reasons) if reasons else _nothing(found)
    return printable(
        f"{utc_text(now)} exported {ago(found.exported_at, now)}, observed {ago(found.observed_at, now)}; "
        f"groups: {counts_text(found.group_statuses)}; {what}"
    )


def _nothing(found: ClusterHealth) -> str:
    looks = "; ".join(found.to_look_at())
    return f"nothing to act on{f'; to look at: {looks}' if looks else ''}"


def health_json(found: ClusterHealth, now: dt.datetime, reasons: Sequence[str]) -> dict[str, Any]:
    """Everything that is known, with all share partitions that are in trouble; rows have the columns of the tables."""
    groups = [
        {
            **each,
            "unfinished_records": _unfinished(each).total,
            "known_unfinished_records": _unfinished(each).known,
            "statuses": dict(zip(each["words"], each["counts"], strict=True)),
        }
        for each in _rows(found.groups)
    ]
    queues = [{**each, "told": trouble_text(*(each[name] for name in _TOLD))} for each in _in_trouble(found)]
    return {
        "cluster_id": found.cluster_id,
        "at": now,
        "act_on": list(reasons),
        "exported_at": found.exported_at,
        "in_future": found.ahead,
        "newest_record_at": instant_text(found.newest_record_ms),
        "observed_at": found.observed_at,
        "run_id": found.run_id,
        "gaps": None if found.gaps is None else {reason: asdict(each) for reason, each in found.gaps.items()},
        "verdicts": found.verdicts,
        "statuses": None if found.queues is None else found.statuses,
        "group_statuses": None if found.groups is None else found.group_statuses,
        "groups": None if found.groups is None else [*map(_own, groups)],
        "in_trouble": None if found.queues is None else [*map(_own, queues)],
        "findings": None if found.findings is None else [asdict(each) for each in found.findings],
        "changes": None if found.changes is None else found.changes.to_pylist(),
        "unknown": found.unknown,
    }


def _rows(rows: pa.Table | None) -> list[dict[str, Any]]:
    return [] if rows is None else rows.to_pylist()


def _in_trouble(found: ClusterHealth) -> list[dict[str, Any]]:
    from acktrail.view.queue_rows import in_trouble

    return [] if found.queues is None else in_trouble(found.queues).to_pylist()


def _own(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _HELPERS}


def _headline(found: ClusterHealth, stopping: int) -> str:
    if found.no_share_group is not None:
        return printable(found.no_share_group)
    if "queues" in found.unknown:
        return printable(who_is_not_known(found.unknown["queues"]))
    worst = ((each["group_id"], each["status"], each["status_since"]) for each in _rows(found.groups))
    critical = (found.severities or {}).get("critical", 0)
    return headline(worst, found.group_statuses, stopping=stopping, critical_findings=critical)[0]


def _head(found: ClusterHealth, now: dt.datetime) -> list[str]:
    changes = _rows(found.changes)
    newest = ago(found.newest_record_at, now)
    lines = [
        f"cluster   {found.cluster_id or 'unknown'}",
        f"export    {ago(found.exported_at, now)}; newest state record {newest}; {_gaps(found, now)}",
        f"verdicts  {amounts(found.verdicts)}; reconciled {ago(found.reconciled_at, now)}",
        f"findings  {amounts(found.severities)}",
        f"statuses  {_statuses_line(found, now)}",
        *([f"changes   {_changes_line(changes, now)}"] if changes else ()),
        *(f"unknown   {name}: {why}" for name, why in found.unknown.items()),
    ]
    return [printable(line) for line in lines]


def _gaps(found: ClusterHealth, now: dt.datetime) -> str:
    from acktrail.view.cluster_health import LOSSES

    if found.gaps is None:
        return "gaps unknown"
    lost = {reason: each for reason, each in found.gaps.items() if reason in LOSSES}
    if not lost:
        return "complete since the first export" if found.exported_at else "nothing exported"
    return "not complete: " + ", ".join(
        f"{each.gaps:,} gap(s) {reason} ({each.offsets:,} offsets, the newest {ago(each.newest_at, now)})"
        for reason, each in lost.items()
    )


def _statuses_line(found: ClusterHealth, now: dt.datetime) -> str:
    if found.groups is None or found.queues is None:
        return "unknown"
    if found.no_share_group is not None:
        return f"{ago(found.observed_at, now)}: {found.no_share_group}"
    groups = f"{len(found.groups):,} group(s), {counts_text(found.group_statuses)}"
    return f"{ago(found.observed_at, now)}: {groups}; {len(found.queues):,} share partition(s)"


def _changes_line(changes: Sequence[Row], now: dt.datetime) -> str:
    newest = changes[0]
    where = f"{newest['group_id']} {newest['topic'] or newest['topic_id']} {newest['partition']}"
    what = f"{in_words(newest['before'])} to {in_words(newest['after'] or 'gone')}"
    return f"{len(changes):,} in 24 h, the newest {ago(newest['changed_at'], now)}: {where} from {what}"


def _block(headers: Sequence[str], rows: list[tuple[object, ...]], most: int, what: str) -> list[str]:
    """An empty line, the table's lines, and how many rows were left out; nothing without rows. `most`: lines."""
    if not rows:
        return []
    fits = max(most - 2, _LEAST_ROWS)
    shown = rows if len(rows) <= fits else rows[: max(fits - 1, _LEAST_ROWS)]
    more = len(rows) - len(shown)
    return ["", *table(headers, shown).split("\n"), *([f"… {more:,} more {what}; --json has all"] if more else ())]


def _group_row(row: Row, now: dt.datetime) -> tuple[object, ...]:
    own = f"{row['counts'][0]:,} of {row['partitions']:,}"
    return row["group_id"], in_words(row["status"]), ago(row["status_since"], now), own, _unfinished(row)


def _unfinished(group: Row) -> KnownSum:
    return KnownSum(group["unfinished_records"] or 0, group["unfinished_unknown"])


def _queue_row(row: Row, now: dt.datetime) -> tuple[object, ...]:
    unfinished = None if row["unfinished_records"] is None else f"{row['unfinished_records']:,}"
    place = (row["group_id"], row["topic"] or row["topic_id"], row["partition"], in_words(row["status"]))
    return (*place, ago(row["status_since"], now), unfinished, trouble_text(*(row[name] for name in _TOLD)))


def amounts(counts: Mapping[str, int] | None) -> str:
    """Counts by name, in their order; what matches comes last."""
    if counts is None:
        return "unknown"
    return counts_text(dict(sorted(counts.items(), key=lambda pair: pair[0] == "match")))
