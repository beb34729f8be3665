"""Keeping pyarrow from importing pandas, for commands that have no use for it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acktrail.config import TablesConfig

if TYPE_CHECKING:
    from acktrail.tables.past.history_reader import HistoryReader

__all__ = ["forgo_pandas", "lean_history", "lean_tables", "optional_lean_tables"]


def forgo_pandas() -> None:
    """Keep pyarrow from importing pandas, which saves a process most of its start.

    pyarrow looks for pandas once, when it first builds an array from a list, and remembers the outcome. Afterwards
    pandas can be imported as usual, and ``to_pandas`` works; only pandas objects given to pyarrow then count as plain
    sequences. So this is for processes of the command line, never for a library.
    """
    import pyarrow as pa

    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(_NoPandas)


def lean_tables(uri: str | None, options_file: Path | None) -> TablesConfig:
    """The tables of a command that needs them and no pandas; see ``TablesConfig.from_environment``.

    Raises:
        ConfigurationError: when no root is named, or the options cannot be read.
    """
    found = TablesConfig.from_environment(uri, options_file)
    forgo_pandas()
    return found


def optional_lean_tables(uri: str | None, options_file: Path | None) -> TablesConfig | None:
    """`lean_tables`; None where neither the arguments nor the environment name a root."""
    found = TablesConfig.optional_from_environment(uri, options_file)
    if found is not None:
        forgo_pandas()
    return found


def lean_history(uri: str | None, options_file: Path | None) -> HistoryReader:
    """The history in the tables of a command that needs no pandas.

    Raises:
        ConfigurationError: as `lean_tables`, or when there is no history.
    """
    tables = lean_tables(uri, options_file)
    from acktrail.tables.delta.store import Tables
    from acktrail.tables.past.history_reader import HistoryReader

    return HistoryReader(Tables(tables))


class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:  # noqa: ARG004  # the import protocol's
        if name == "pandas":
            raise ModuleNotFoundError(name)
