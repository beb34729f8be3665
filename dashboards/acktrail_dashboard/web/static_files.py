"""Style sheets and scripts: known files, read once. An address names one of them; nothing else is looked up."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

_STYLE: Final = "text/css; charset=utf-8"
_SCRIPT: Final = "text/javascript; charset=utf-8"
_FILES: Final = MappingProxyType(
    {
        "report.css": ("style.css", _STYLE),
        "dashboard.css": ("web/static/dashboard.css", _STYLE),
        "dashboard.js": ("web/static/dashboard.js", _SCRIPT),
        "icon.svg": ("web/static/icon.svg", "image/svg+xml"),
        "charts.js": ("web/static/charts.js", _SCRIPT),
        "uplot.css": ("web/static/uplot-1.6.32.min.css", _STYLE),
        "uplot.js": ("web/static/uplot-1.6.32.min.js", _SCRIPT),
        "uplot-license.txt": ("web/static/uplot-LICENSE.txt", "text/plain; charset=utf-8"),
    }
)
"""Name in addresses to file and media type."""


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
    for name, (path, media_type) in _FILES.items():
        content = files("acktrail_dashboard").joinpath(path).read_bytes()
        digest = hashlib.sha256(content).hexdigest()[:16]
        found[name] = StaticFile(content=content, media_type=media_type, digest=digest)
    return MappingProxyType(found)
