"""Results of validations added up by suite: what trends and metrics show of ``quality_results``."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

COUNTED_COLUMNS: Final = ("run_id", "evaluated_at", "suite", "severity", "state", "element_count")
"""The columns of ``quality_results`` that totals are made of."""
_KEY: Final = ("run_id", "evaluated_at", "suite")
_STATES: Final = ("holds", "fails", "noted", "not_evaluated")


def suite_totals(results: pa.Table) -> pa.Table:
    """One row for each validation and suite in rows of ``quality_results``: ``_KEY``, how many expectations have each
    of ``_STATES``, how many of those that fail are critical (`critical_fails`), and how many rows they compared
    (`rows_compared`)."""
    flags = {state: pc.equal(results["state"], state) for state in _STATES}
    flags["critical_fails"] = pc.and_(flags["fails"], pc.equal(results["severity"], "critical"))
    counts = {name: flag.cast(pa.int64()) for name, flag in flags.items()}
    counts["rows_compared"] = pc.fill_null(results["element_count"], 0)
    rows = pa.table({**{name: results[name] for name in _KEY}, **counts})
    summed = rows.group_by(list(_KEY), use_threads=False).aggregate([(name, "sum") for name in counts])
    return summed.rename_columns([name.removesuffix("_sum") for name in summed.column_names])
