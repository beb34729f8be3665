"""Tables that keep one row a key and renew it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable

__all__ = ["UPSERT_RULES", "UpsertRule", "merge_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertRule:
    """`keys` name a row and are never null. A newer row (by `last_seen_at`) replaces all columns but `kept`.

    `counted` grows by the new row's number when another run than the last brings it.
    """

    keys: tuple[str, ...]
    kept: tuple[str, ...] = ("first_seen_at",)
    counted: str | None = None

    def last_of_each(self, rows: pa.Table) -> pa.Table:
        """`rows` with the last row of each key alone."""
        keys = zip(*(rows[key].to_pylist() for key in self.keys), strict=True)
        last = {key: index for index, key in enumerate(keys)}
        return rows.take(pa.array(sorted(last.values()), pa.int64()))


UPSERT_RULES: Final[Mapping[str, UpsertRule]] = MappingProxyType(
    {
        "topics": UpsertRule(keys=("cluster_id", "topic_id")),
        "findings": UpsertRule(keys=("cluster_id", "rule", "subject"), counted="times_seen"),
    }
)
"""How each keyed table is renewed."""


def merge_rows(delta: DeltaTable, keyed: UpsertRule, rows: pa.Table, properties: CommitProperties) -> None:
    """Merge `rows` (every column of the table, each key once) into `delta` in one commit.

    The expressions name columns only: values come as rows and are never part of any text.
    """
    merger = delta.merge(
        rows,
        " AND ".join(f"stored.{key} = new.{key}" for key in keyed.keys),
        source_alias="new",
        target_alias="stored",
        merge_schema=len(delta.schema().fields) != len(rows.column_names),
        commit_properties=properties,
    )
    merger.when_matched_update(_updates(keyed, rows.column_names), "new.last_seen_at >= stored.last_seen_at")
    merger.when_not_matched_insert_all()
    merger.execute()


def _updates(keyed: UpsertRule, columns: list[str]) -> dict[str, str]:
    updates = {name: f"new.{name}" for name in columns if name not in (*keyed.keys, *keyed.kept)}
    if keyed.counted is not None:
        name = keyed.counted
        updates[name] = f"CASE WHEN stored.run_id = new.run_id THEN stored.{name} ELSE stored.{name} + new.{name} END"
    return updates
