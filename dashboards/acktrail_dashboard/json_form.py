"""The summary as JSON: for programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from typing import Any

from acktrail.times import utc_text
from acktrail_dashboard.summary_types import Summary

__all__ = ["summary_json"]


def summary_json(summary: Summary) -> str:
    """One JSON object in ASCII: field names as in `acktrail_dashboard.summary_types`.

    Unknown is null, with a reason beside it; instants are ISO 8601 in UTC; counts by name are objects.
    """
    form = asdict(summary)
    totals = form["totals"]
    totals["verdicts"], totals["findings"] = dict(summary.totals.verdicts), dict(summary.totals.findings)
    for group in form["groups"]:
        group["configs"] = dict(group["configs"])
    return json.dumps(form, default=_plain, ensure_ascii=True)


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return utc_text(value, "auto")
    raise TypeError(f"no JSON form for {type(value).__name__}")
