"""Decoded rows as records of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from acktrail.format.columns.record_columns import share_partition_of
from acktrail.model.batches import StateBatch
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone


def record_of(row: Mapping[str, Any]) -> StateRecord:
    """The record of one decoded row."""
    key = share_partition_of(row)
    if row["record_type"] == "tombstone":
        return Tombstone(key=key)
    kind = ShareUpdate if row["record_type"] == "update" else ShareSnapshot
    numbers = {field.name: row[field.name] for field in fields(kind) if field.name not in {"key", "batches"}}
    return kind(key=key, batches=tuple(StateBatch(**batch) for batch in row["batches"]), **numbers)
