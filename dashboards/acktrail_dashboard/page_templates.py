"""The templates of pages and reports, and the files that pages load: style sheets and scripts, known by name. An
address names one of them; nothing else is looked up."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from acktrail import __version__
from acktrail.model.queue_status import STATUS_TABLE
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.text_tables import printable, printable_parts
from acktrail.times import instant_text
from acktrail.view import finding_rows, history_text, partition_rows, record_evidence, wording
from acktrail_dashboard import offset_bands
from acktrail_dashboard.web.branch_views import branch_templates

ROWS_SHOWN: Final = 200
"""Rows of a table with one body; the others are counted."""
_MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""Of the files that pages load, by how their names end."""
_FILTERS: Final = (
    *(finding_rows.seen_text, instant_text, offset_bands.bands, offset_bands.short, offset_bands.strip_label),
    *(offset_bands.strip_paths, partition_rows.group_line, partition_rows.notes, printable, printable_parts),
    *(record_evidence.hex_lines, wording.ago, wording.counted, wording.counts_text, wording.in_words, wording.instant),
    *(wording.is_trouble, wording.known_sum, wording.number, wording.severity_tone, wording.status_tone),
    *(wording.subject_text, wording.trouble_text, wording.advice_text, wording.verdict_tone),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFile:
    """A file that every page may load. `digest` changes with its content."""

    content: bytes
    media_type: str
    digest: str


@cache
def static_files() -> MappingProxyType[str, StaticFile]:
    """All files by name."""
    found = {}
    for file in files("acktrail_dashboard").joinpath("static").iterdir():
        if media_type := _MEDIA_TYPES.get(Path(file.name).suffix):
            content = file.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:16]
            found[file.name] = StaticFile(content=content, media_type=media_type, digest=digest)
    return MappingProxyType(found)


@cache
def page_templates() -> Environment:
    """The templates, which put out nothing but escaped, visible text and what another template made; an unknown name is
    an error. All of them know the macros of ``macros.html``."""
    found = Environment(
        loader=ChoiceLoader([PackageLoader("acktrail_dashboard", "templates"), *branch_templates()]),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters |= {function.__name__: function for function in _FILTERS}
    found.filters |= {"offset_status_text": history_text.status_text, "tojson_text": json.dumps}
    found.globals |= {
        "address": wording.address,
        "bytes_shown": record_evidence.BYTES_SHOWN,
        "file_digests": {name: file.digest for name, file in static_files().items()},
        "results": wording.RESULTS,
        "rows_shown": ROWS_SHOWN,
        "state_topic": STATE_TOPIC,
        "status_meanings": wording.STATUS_MEANINGS,
        "status_table": STATUS_TABLE,
        "strip_size": (offset_bands.STRIP_WIDTH, offset_bands.STRIP_HEIGHT),
        "verdict_meanings": wording.VERDICT_MEANINGS,
        "version": __version__,
    }
    macros = vars(found.get_template("macros.html").module)
    found.globals |= {name: macro for name, macro in macros.items() if not name.startswith("_")}
    return found


def rendered(template: str, context: Mapping[str, Any]) -> str:
    """A template as HTML."""
    return page_templates().get_template(template).render(context)


def _shown(value: Any) -> Any:
    """What a template puts out for `value`: hidden characters of text are shown, None is nothing."""
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
