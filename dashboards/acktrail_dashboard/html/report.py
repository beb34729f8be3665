"""The report: one HTML file that opens without a network, a script or a font of its own."""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from acktrail import __version__
from acktrail.errors import ConfigurationError
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.plain_tables import printable, printable_parts
from acktrail_dashboard import offset_bands, trouble_wording, wording
from acktrail_dashboard.branch_views import branch_templates, report_sections
from acktrail_dashboard.ranking import ranked_groups
from acktrail_dashboard.rows.run_tables import RunTables, rows_of_run
from acktrail_dashboard.status_wording import status_text, status_tone
from acktrail_dashboard.summary import summarize
from acktrail_dashboard.summary_types import Summary

PARTITIONS_SHOWN: Final = 400
ROWS_SHOWN: Final = 200
"""Rows of a table with one body; the others are counted."""

_FILTERS: Final = (
    offset_bands.bands, offset_bands.short, offset_bands.strip_label, offset_bands.strip_paths, printable,
    printable_parts, status_text, status_tone, trouble_wording.group_line, trouble_wording.status_notes,
    trouble_wording.statuses_line, trouble_wording.trouble, wording.result_tone, wording.severity_tone,
    wording.subject_text, wording.verdict_tone, wording.counted, wording.failed_line, wording.findings_line,
    wording.instant, wording.known_sum, wording.notes, wording.number, wording.quality_line, wording.trail,
    wording.unknowns, wording.verdict_text, wording.verdicts_line,
)  # fmt: skip


def render_html(tables: RunTables, run_id: str, *, written_at: datetime, broker: str | None = None) -> str:
    """The page for `run_id`, complete in itself; `tables` may have rows of other runs too.

    `broker`: what the caller knows of it (address, version); the tables do not hold it.
    """
    own, summary = rows_of_run(tables, run_id), summarize(tables, run_id)
    ranked, totals = ranked_groups(summary, PARTITIONS_SHOWN), summary.totals
    return (
        page_templates()
        .get_template("page.html")
        .render(
            summary=summary,
            ranked=ranked,
            groups={row.group_id: row for row in summary.groups},
            windows=offset_bands.state_windows(
                own.share_partition_states, own.reconciliations, {row.key for group in ranked for row in group.shown}
            ),
            status_shares=[(status_tone(word), count) for word, count in totals.group_statuses],
            verdict_shares=[(wording.verdict_tone(word), count) for word, count in totals.verdicts],
            finding_shares=[(wording.severity_tone(word), count) for word, count in totals.findings],
            result_shares=wording.tally(map(wording.result_tone, summary.expectations), reversed(wording.TONES)),
            archived_note=_archived_note(summary),
            sections=[each for each in report_sections() if each.name in summary.branches],
            broker=broker,
            written_at=written_at,
        )
    )


@cache
def page_templates() -> Environment:
    """The templates of the page, which put out nothing but escaped, visible text and what another template made."""
    found = Environment(
        loader=ChoiceLoader([PackageLoader("acktrail_dashboard", "html"), *branch_templates()]),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters |= {function.__name__: function for function in _FILTERS}
    found.globals |= {
        "address": wording.address,
        "policy": _policy(),
        "rows_shown": ROWS_SHOWN,
        "state_topic": STATE_TOPIC,
        "strip_size": (offset_bands.STRIP_WIDTH, offset_bands.STRIP_HEIGHT),
        "status_meanings": trouble_wording.STATUS_MEANINGS,
        "style": _style(),
        "verdict_meanings": wording.VERDICT_MEANINGS,
        "version": __version__,
    }
    return found


def _shown(value: Any) -> Any:
    """What a template puts out for `value`: hidden characters of text are shown, None is nothing."""
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _archived_note(summary: Summary) -> str | None:
    now = sum(row.records for row in summary.archived if row.retained)
    earlier = sum(row.records for row in summary.archived) - now
    unlisted = summary.totals.archived_seen - now - earlier
    parts = [f"{wording.counted(now, 'record')} in the current state: no consumer of its group will see them again"]
    parts += [f"{wording.number(earlier)} in the history only"] if earlier else []
    parts += [f"{wording.number(unlisted)} more whose offsets are not in the history"] if unlisted > 0 else []
    return "; ".join(parts) if now or earlier or unlisted > 0 else None


def write_whole(text: str, out: Path) -> Path:
    """Write `text` to `out`, all of it or nothing. Raises ConfigurationError: the folder cannot be written to."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".report-") as folder:
            draft = Path(folder, out.name)
            with draft.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.chmod(0o644)
            draft.replace(out)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise ConfigurationError(
            f"cannot write {out}: {why}", hint="name a file in a folder you may write to"
        ) from error
    return out


def _policy() -> str:
    """Nothing may load or run but the one style sheet, by its hash: not even a style attribute."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode("ascii")
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


@cache
def _style() -> str:
    lines = files("acktrail_dashboard").joinpath("style.css").read_text(encoding="utf-8").splitlines()
    return "".join(line.strip() for line in lines)
