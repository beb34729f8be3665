"""The report of a run: the pieces of the dashboard's pages as one HTML file that opens without a network, a script or a
font of its own; in a folder, with its data beside it, under the run's own name, the newest also under a stable one. And
its text for a terminal: a table that a person reads, then a line for each subject."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.atomic_files import write_whole
from acktrail.config import TablesConfig
from acktrail.errors import UnknownName
from acktrail.history.history_reader import HistoryReader
from acktrail.history.history_tables import CHANGES
from acktrail.model.record_history import ArchivedRange
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.tables.delta.store import Tables
from acktrail.text_tables import printable, table
from acktrail.view import run_summary, wording
from acktrail.view.export_rows import EXPORT_COLUMNS
from acktrail.view.partition_rows import PartitionRow, groups_with_more, most_urgent, notes
from acktrail.view.run_summary import OF_THE_RUN, RunTables, Summary, rows_of_run, run_end, shown_run, summarize
from acktrail_dashboard.offset_bands import state_windows
from acktrail_dashboard.page_templates import rendered, static_files
from acktrail_dashboard.web.branch_views import report_sections

PARTITIONS_SHOWN: Final = 400
REPORT: Final = "acktrail-report"
"""The stem of the files: alone that of the newest run, else before the run."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9.-]+")
_LONGEST: Final = 100
_STATUS_COLUMNS: Final = ("run_id", *KEY_COLUMNS, "status", "status_since", "reason")
ROWS_SHOWN: Final = 60
FINDINGS_SHOWN: Final = 10
_TITLES: Final = ("GROUP", "TOPIC", "PARTITION", "START OFFSET", "LAG", "ARCHIVED", "STATUS", "VERDICT", "NOTE")
_NUMBERS: Final = frozenset({2, 3, 4, 5})


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What was written of a run. `newest`: the page under the stable name; None: a later run was observed."""

    page: Path
    data: Path
    newest: Path | None
    summary: Summary


def read_run(config: TablesConfig, run_id: str | None) -> tuple[RunTables, str]:
    """The tables of `run_id`, or of the run observed last, and that run's id.

    Raises:
        InputError: nothing was reconciled yet.
        UnknownName: `run_id` is no reconcile run.
        ConfigurationError, RetryableError: the tables cannot be read.
    """
    tables = Tables(config)
    chosen = shown_run(tables, run_id)
    is_own = pc.field("run_id") == chosen
    own = {name: tables.read(name, where=is_own) for name in OF_THE_RUN}
    if not own["reconciliations"].num_rows:
        own["offset_observations"] = tables.read("offset_observations", where=is_own)
    found = RunTables(
        **own,
        findings=tables.read("findings"),
        topics=tables.read("topics"),
        queue_statuses=tables.read("queue_statuses", columns=_STATUS_COLUMNS, where=is_own),
        export_ranges=tables.read("export_ranges", columns=EXPORT_COLUMNS),
        archived_offsets=(looked := tables.read("archived_offsets")),
        archived=_history_of_archived(tables, own["share_partition_states"], looked),
    )
    ended = run_end(found)
    return replace(found, branches={each.name: each.read(tables, ended) for each in report_sections()}), chosen


def _history_of_archived(tables: Tables, states: pa.Table, looked: pa.Table) -> tuple[ArchivedRange, ...]:
    """What the history has of groups that archived more than their state shows; none where it does not know them."""
    if not tables.exists(CHANGES):
        return ()
    reader, found = HistoryReader(tables), []
    for group_id in groups_with_more(states, looked):
        with suppress(UnknownName):
            found += reader.archived(group_id)
    return tuple(found)


def render_html(tables: RunTables, run_id: str, *, written_at: datetime, broker: str | None = None) -> str:
    """The page for `run_id`, complete in itself; `tables` may have rows of other runs too.

    `broker`: what the caller knows of it (address, version); the tables do not hold it.
    """
    own, summary = rows_of_run(tables, run_id), summarize(tables, run_id)
    shown, totals = most_urgent(summary.partitions, PARTITIONS_SHOWN), summary.totals
    keys = {row.key for row in shown}
    context = {
        "summary": summary,
        "trouble": run_summary.trouble(summary),
        "lines": run_summary.lines(summary),
        "unknowns": run_summary.unknowns(summary),
        "archived_note": run_summary.archived_note(summary),
        "shown": shown,
        "windows": state_windows(own.share_partition_states, own.reconciliations, keys),
        "shares": {
            "groups": [(wording.status_tone(word), count) for word, count in totals.group_statuses.items()],
            "verdicts": [(wording.verdict_tone(word), count) for word, count in totals.verdicts.items()],
            "findings": [(wording.severity_tone(word), count) for word, count in totals.findings.items()],
            "rules": wording.tally((row.tone for row in summary.expectations), reversed(wording.TONES)).items(),
        },
        "sections": [each for each in report_sections() if each.name in summary.branches],
        "broker": broker,
        "written_at": written_at,
        "visit": None,
        "style": _style(),
        "policy": _policy(),
    }
    return rendered("report.html", context)


def publish(
    tables: TablesConfig, run_id: str | None, folder: Path, *, kept: int, broker: str | None = None
) -> Publication:
    """Write page and JSON of `run_id` (None: the run observed last) to `folder`, each whole or not at all, and remove
    those of all but the `kept` runs written last. Raises as `read_run`; ConfigurationError: `folder` cannot be
    written."""
    rows, chosen = read_run(tables, run_id)
    found = summarize(rows, chosen)
    html, data = render_html(rows, chosen, written_at=datetime.now(UTC), broker=broker), run_summary.summary_json(found)
    is_newest = shown_run(Tables(tables), None) == chosen
    stem = f"{REPORT}-{file_name(chosen)}"
    page = write_whole(html, folder / f"{stem}.html")
    publication = Publication(
        page=page,
        data=write_whole(data, folder / f"{stem}.json"),
        newest=write_whole(html, folder / f"{REPORT}.html") if is_newest else None,
        summary=found,
    )
    if is_newest:
        write_whole(data, folder / f"{REPORT}.json")
    prune(folder, REPORT, kept=kept)
    return publication


def file_name(run_id: str) -> str:
    """A run id as a part of a file's name: letters, digits, ``.`` and ``-``; different ids give different names."""
    readable = _UNSAFE.sub("-", run_id)[:_LONGEST]
    return readable if readable == run_id else f"{readable}-{hashlib.sha256(run_id.encode()).hexdigest()[:12]}"


def prune(folder: Path, stem: str, *, kept: int) -> None:
    """Remove the files ``STEM-RUN.*`` in `folder` of all but the `kept` runs written last (at least one)."""
    by_run: dict[str, list[Path]] = {}
    for file in folder.glob(f"{stem}-*"):
        if file.is_file() and file.suffix in {".html", ".json"}:
            by_run.setdefault(file.stem, []).append(file)
    newest_first = sorted(by_run.values(), key=_written_at, reverse=True)
    for own in newest_first[max(kept, 1) :]:
        for file in own:
            file.unlink(missing_ok=True)


def _written_at(files: Iterable[Path]) -> tuple[float, str]:
    return max((file.stat().st_mtime, file.name) for file in files)


def _policy() -> str:
    """Nothing may load or run but the one style sheet, by its hash: not even a style attribute."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode("ascii")
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _style() -> str:
    lines = static_files()["report.css"].content.decode().splitlines()
    return "".join(line.strip() for line in lines)


def render_text(summary: Summary) -> str:
    """Plain lines of text, columns aligned, names made safe for a terminal and long ones cut in the middle."""
    head, shown = summary.head, most_urgent(summary.partitions, ROWS_SHOWN)
    more = len(summary.partitions) - len(shown)
    own = (each for each in report_sections() if each.name in summary.branches)
    found = {**run_summary.lines(summary), **{each.title: each.line(summary.branches[each.name]) for each in own}}
    cluster = printable(head.cluster_id or "unknown")
    return "\n".join(
        [
            f"Run {printable(head.run_id)}, observed {wording.instant(head.observed_to)}, cluster {cluster}",
            "",
            table(_TITLES, map(_cells, shown), numbers=_NUMBERS),
            *([f"… {wording.counted(more, 'more share partition')}; every one is in --json"] if more else ()),
            "",
            *(f"{name:<13} {text}" for name, text in found.items()),
            *_findings(summary),
        ]
    )


def _cells(row: PartitionRow) -> tuple[str, ...]:
    return (
        row.group_id,
        wording.topic_text(row.topic, row.topic_id),
        wording.number(row.partition),
        wording.number(row.start_offset.value),
        wording.number(row.lag.value),
        wording.number(row.archived.value),
        "not known" if row.status is None else wording.in_words(row.status),
        wording.in_words(row.verdict) + (" (moved)" if row.moved else ""),
        "; ".join(notes(row)).replace(".; ", ". "),
    )


def _findings(summary: Summary) -> list[str]:
    """The worst ones, each with its evidence."""
    found = []
    for row in summary.findings[:FINDINGS_SHOWN]:
        where = wording.address(row.evidence_state_partition, row.evidence_offset)
        about = ": ".join(map(printable, (row.rule, wording.subject_text(row), row.detail)))
        found.append(f"  {printable(row.severity):<8}  {about}{f' [{where}]' if where else ''}")
    more = len(summary.findings) - len(found)
    return [*found, *([f"  … {wording.counted(more, 'more finding')}"] if more else ())]
