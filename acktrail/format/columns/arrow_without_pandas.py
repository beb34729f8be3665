"""Keeping pyarrow from importing pandas for commands that have no use for it: half of their start, and 36 MB."""

from __future__ import annotations

import sys
from typing import Any


def forgo_pandas() -> None:
    """Keep pyarrow from importing pandas.

    pyarrow looks for pandas once, when it first builds an array from a list, and remembers the outcome. Afterwards
    pandas can be imported as usual, and ``to_pandas`` works; only pandas objects given to pyarrow then count as plain
    sequences. So this is for processes of the command line, never for a library.
    """
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(finder)


class _NoPandas:
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:  # noqa: ARG002  # the import protocol
        if name == "pandas":
            raise ModuleNotFoundError(name)
