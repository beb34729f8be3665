"""Keeping pyarrow from importing pandas, and numpy, for commands that have no use for them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acktrail.config import TablesConfig

if TYPE_CHECKING:
    from acktrail.reconcile.past.history_reader import HistoryReader


def forgo_pandas() -> None:
    """Keep pyarrow from importing pandas, which saves a process most of its start.

    pyarrow looks for pandas once, when it first builds an array from a list, and remembers the outcome. Afterwards
    pandas can be imported as usual, and ``to_pandas`` works; only pandas objects given to pyarrow then count as plain
    sequences. So this is for processes of the command line, never for a library.
    """
    import pyarrow as pa

    with hidden("pandas"):
        pa.array([None])


def forgo_numpy() -> None:
    """Let pyarrow find that there is no numpy and no pandas, which halves its start; arrays have no ``to_numpy`` in
    this process then. All of its modules that look for them are imported."""
    with hidden("numpy", "pandas"):
        import pyarrow as pa

        import_module("acktrail.tables.delta.store")
        pa.scalar(0, pa.timestamp("us", tz="UTC")).as_py()


@contextmanager
def hidden(*names: str) -> Iterator[None]:
    """Imports of these packages fail within the block, unless they are imported already."""
    finder = _Hidden(frozenset(names))
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Hidden:
    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:  # noqa: ARG002  # the import protocol
        if name in self._names:
            raise ModuleNotFoundError(name)


def row_tables(uri: str | None, options_file: Path | None) -> TablesConfig:
    """The tables of a command that reads and writes rows as Python values alone (`forgo_numpy`). Raises
    ConfigurationError, as the next three do: no root is named, or the options cannot be read."""
    found = TablesConfig.from_environment(uri, options_file)
    forgo_numpy()
    return found


def lean_tables(uri: str | None, options_file: Path | None) -> TablesConfig:
    """The tables of a command that needs them and no pandas."""
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
    """The history in the tables of a command that needs no pandas. Raises ConfigurationError also without one."""
    tables = lean_tables(uri, options_file)
    from acktrail.reconcile.past.history_reader import HistoryReader
    from acktrail.tables.delta.store import Tables

    return HistoryReader(Tables(tables))
