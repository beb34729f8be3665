"""Which runs the tables know."""

from __future__ import annotations

from datetime import datetime
from difflib import get_close_matches
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import ConfigurationError, UnknownName
from acktrail.tables.delta.store import Tables

__all__ = ["named_run"]

_INSTANTS: Final = (
    ("reconciliations", "observed_at"),
    ("share_partition_states", "observed_at"),
    ("offset_observations", "observed_at"),
    ("export_ranges", "exported_at"),
)
"""Tables that name runs, each with the column that says when; a run may have rows in any of them."""


def named_run(store: Tables, run_id: str | None) -> str:
    """`run_id` if any table knows it; for None the newest run, a reconciled one before one that only exported.

    Raises:
        UnknownName: no table knows `run_id`.
        ConfigurationError: there is no run at all.
    """
    if run_id is None:
        return _newest(store)
    if not any(_knows(store, name, run_id) for name, _ in _INSTANTS):
        known = {run for name, column in _INSTANTS for run in _runs(store, name, column)}
        raise UnknownName("run", run_id, nearest=get_close_matches(run_id, sorted(known), n=3))
    return run_id


def _newest(store: Tables) -> str:
    for name, column in _INSTANTS:
        runs = _runs(store, name, column)
        if runs:
            return max(runs, key=lambda run: (runs[run], run))
    raise ConfigurationError(f"no run in the tables at {store.root}", hint="run `acktrail export` first")


def _knows(store: Tables, name: str, run_id: str) -> bool:
    return store.read(name, columns=["run_id"], where=pc.field("run_id") == run_id).num_rows > 0


def _runs(store: Tables, name: str, column: str) -> dict[str, datetime]:
    """Every run with its newest instant, read piece by piece."""
    snapshot = store.snapshot(name)
    newest: dict[str, datetime] = {}
    for batch in () if snapshot is None else snapshot.batches(columns=["run_id", column]):
        rows = pa.Table.from_batches([batch]).group_by("run_id").aggregate([(column, "max")]).to_pylist()
        for row in rows:
            if row["run_id"] is not None and row[f"{column}_max"] is not None:
                newest[row["run_id"]] = max(row[f"{column}_max"], newest.get(row["run_id"], row[f"{column}_max"]))
    return newest
