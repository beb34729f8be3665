"""The reports of runs in a folder: a page and its data under the run's own name, the newest also under a stable one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from acktrail.config import TablesConfig
from acktrail_dashboard.html.report import render_html, write_whole
from acktrail_dashboard.summary import read_run, shown_run, summarize, summary_json
from acktrail_dashboard.summary_types import Summary

REPORT: Final = "acktrail-report"
"""The stem of the files: alone that of the newest run, else before the run."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9.-]+")
_LONGEST: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What was written of a run. `newest`: the page under the stable name; None: a later run was observed."""

    page: Path
    data: Path
    newest: Path | None
    summary: Summary


def publish(
    tables: TablesConfig, run_id: str | None, folder: Path, *, kept: int, broker: str | None = None
) -> Publication:
    """Write page and JSON of `run_id` (None: the run observed last) to `folder`, each whole or not at all, and remove
    those of all but the `kept` runs written last. Raises as `acktrail_dashboard.command.report`."""
    rows, chosen = read_run(tables, run_id)
    found = summarize(rows, chosen)
    html, data = render_html(rows, chosen, written_at=datetime.now(UTC), broker=broker), summary_json(found)
    is_newest = shown_run(tables, None) == chosen
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
