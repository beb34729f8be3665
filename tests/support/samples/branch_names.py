"""What files of the trunk name of branches: metrics, which a board or an alert may show.

They are in docs/reference/metrics.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

_PAGE: Final = Path(__file__).parents[3] / "docs/reference/metrics.md"
_METRIC: Final = re.compile(r"\b(?:acktrail|kafka)_[a-z_]+\b")


def metric_names(text: str) -> set[str]:
    """The metrics that an expression or a document names."""
    return set(_METRIC.findall(text))


def _metrics_of_rows(heading: str) -> set[str]:
    """Those in the first column of the table below a heading of docs/reference/metrics.md."""
    section = _PAGE.read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in rows for name in metric_names(cell)}


def metrics_of_branches() -> set[str]:
    """Served only where the branch is there."""
    return _metrics_of_rows("Metrics of extras")


def is_of_branch(alert: dict[str, Any]) -> bool:
    """Whether an alert asks for one of them."""
    return bool(metric_names(alert["expr"]) & metrics_of_branches())
