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
from typing import Final

from acktrail import __version__
from acktrail.errors import ConfigurationError
from acktrail.plain_tables import printable
from acktrail_dashboard.html.detail_sections import (
    archived_section,
    expectation_section,
    export_section,
    finding_section,
    group_section,
    topic_section,
    unknown_section,
)
from acktrail_dashboard.html.markup import Markup, element
from acktrail_dashboard.html.partition_section import PARTITIONS_SHOWN, partition_section
from acktrail_dashboard.html.report_header import report_header, tiles
from acktrail_dashboard.html.svg import patterns
from acktrail_dashboard.offset_bands import state_windows
from acktrail_dashboard.rows.run_tables import RunTables, rows_of_run
from acktrail_dashboard.summary import most_urgent, summarize
from acktrail_dashboard.wording import instant

_SECTIONS: Final = (
    "Share partitions", "Findings", "Archived", "Expectations", "Groups", "Topics", "Export", "Not known"
)  # fmt: skip
"""Titles of the links; the anchors are the same in lower case with hyphens."""


def render_html(tables: RunTables, run_id: str, *, written_at: datetime, broker: str | None = None) -> str:
    """The page for `run_id`, complete in itself.

    Args:
        tables: rows of any runs; those of `run_id` are shown.
        written_at: the instant to print as the report's own.
        broker: what the caller knows of the broker (address, version); the tables do not hold it.
    """
    own = rows_of_run(tables, run_id)
    summary = summarize(tables, run_id)
    shown = most_urgent(summary, PARTITIONS_SHOWN)
    windows = state_windows(own.share_partition_states, own.reconciliations, {row.key for row in shown})
    body = element(
        "body",
        patterns(),
        element("a", "Skip to the share partitions", href="#share-partitions", class_="skip"),
        report_header(summary, broker=broker),
        element("nav", *map(_link, _SECTIONS), aria_label="Sections"),
        element(
            "main",
            tiles(summary),
            partition_section(summary, shown, windows),
            finding_section(summary),
            archived_section(summary),
            expectation_section(summary),
            group_section(summary),
            topic_section(summary),
            export_section(summary),
            unknown_section(summary),
        ),
        element("footer", f"Written by acktrail {__version__} at {instant(written_at)} from its tables alone."),
    )
    return "<!doctype html>\n" + element("html", _head(run_id), body, lang="en").html + "\n"


def _link(title: str) -> Markup:
    return element("a", title, href=f"#{title.lower().replace(' ', '-')}")


def write_whole(text: str, out: Path) -> Path:
    """Write `text` to `out`: the whole of it, or nothing.

    Raises:
        ConfigurationError: when the folder cannot be written to.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=out.parent, prefix=".report-")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(0o644)
            temporary.replace(out)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise ConfigurationError(
            f"cannot write {out}: {why}", hint="name a file in a folder you may write to"
        ) from error
    return out


def _head(run_id: str) -> Markup:
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy()),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"acktrail: share group report, run {printable(run_id)}"),
        element("style", Markup(_style())),
    )


def _policy() -> str:
    """Nothing may load or run but the one style sheet, by its hash: not even a style attribute."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode("ascii")
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


@cache
def _style() -> str:
    lines = files("acktrail_dashboard").joinpath("style.css").read_text(encoding="utf-8").splitlines()
    return "".join(line.strip() for line in lines)
