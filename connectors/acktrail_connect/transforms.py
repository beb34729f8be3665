"""Transforms that come with acktrail: rows by names, hidden texts, other tables."""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import ConfigurationError
from acktrail_connect.config_def import keys_in
from acktrail_connect.contract import Transform


def _globs(texts: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(text) for text in texts))


class Filter(Transform):
    """Keeps rows by the names of groups and topics."""

    description = "Keeps the rows of some groups and topics."
    config_def = keys_in(__package__, "filter_keys.toml")
    _COLUMNS: ClassVar[Mapping[str, str]] = {"groups": "group_id", "topics": "topic"}

    def apply(self, table: str, rows: pa.Table) -> tuple[str, pa.Table]:
        """A table without the column passes whole; a row without a name is kept unless names are asked for."""
        for key, column in self._COLUMNS.items():
            wanted, unwanted = self.config.get(key), self.config.get(f"{key}.exclude")
            if column in rows.column_names and (wanted or unwanted):
                rows = rows.filter(self._kept(rows[column], wanted, unwanted))
        return table, rows

    @staticmethod
    def _kept(names: pa.ChunkedArray, wanted: list[str] | None, unwanted: list[str] | None) -> pa.Array:
        distinct = pc.unique(names).to_pylist()
        matches = _globs(wanted or ["*"]).match
        refuses = _globs(unwanted).match if unwanted else lambda _: None
        kept = [name for name in distinct if name is not None and matches(name) and not refuses(name)]
        allowed = pc.is_in(names, value_set=pa.array(kept, names.type))
        return allowed if wanted else pc.or_(allowed, pc.is_null(names))


class Mask(Transform):
    """Hides the texts of some columns."""

    description = "Hides the values of some columns of text: null, or a keyed hash that keeps them apart."
    config_def = keys_in(__package__, "mask_keys.toml")

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Raises ConfigurationError when hashes have no key."""
        super().__init__(config)
        if config["with"] == "hash" and config["key"] is None:
            raise ConfigurationError(
                "the transform Mask needs a secret key for its hashes", hint="set its key: ${file:...}"
            )

    def apply(self, table: str, rows: pa.Table) -> tuple[str, pa.Table]:
        for column in self.config["columns"]:
            if column in rows.column_names:
                index = rows.column_names.index(column)
                rows = rows.set_column(index, rows.schema.field(index), self._masked(rows[column]))
        return table, rows

    def _masked(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if not pa.types.is_string(column.type):
            raise ConfigurationError(
                f"the transform Mask masks only text, not {column.type}", hint="give only columns of text"
            )
        if self.config["with"] == "null":
            return pa.chunked_array([pa.nulls(len(column), column.type)])
        key = self.config["key"].value.encode()
        distinct = pc.unique(column)
        texts = [
            None if text is None else hashlib.blake2b(text.encode(), key=key[:64], digest_size=8).hexdigest()
            for text in distinct.to_pylist()
        ]
        return pa.chunked_array([pa.array(texts, column.type).take(pc.index_in(column, distinct).combine_chunks())])


class Route(Transform):
    """Sends rows to another table."""

    description = "Renames tables: those whose whole name matches a regular expression."
    config_def = keys_in(__package__, "route_keys.toml")

    def apply(self, table: str, rows: pa.Table) -> tuple[str, pa.Table]:
        found = re.fullmatch(self.config["regex"], table)
        return (found.expand(self.config["replacement"]) if found else table), rows
