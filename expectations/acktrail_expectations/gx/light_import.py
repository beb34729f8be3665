"""An import that leaves out what the importer can do without.

Great Expectations tries to import every engine that it can evaluate with and every library that it can draw with. Of
these acktrail uses pandas alone: the others cost two thirds of the time of the import.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType


@contextmanager
def light_import(*, absent: Collection[str], lazy: Collection[str]) -> Iterator[None]:
    """Around an import by this thread.

    Top-level packages in `absent` count as not installed: for packages that the importer treats as optional. Where one
    of them is loaded already none is hidden, because they need each other: PySpark ends a process that lacks google.
    Modules in `lazy` are loaded when an attribute of theirs is first asked for. Other threads' imports, and later ones,
    are as usual. The garbage collector ignores what is imported, then and later.
    """
    finder = _LightFinder(absent, lazy)
    collects = gc.isenabled()
    sys.meta_path.insert(0, finder)
    gc.disable()
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        gc.freeze()
        if collects:
            gc.enable()


class _LightFinder(MetaPathFinder):
    def __init__(self, absent: Collection[str], lazy: Collection[str]) -> None:
        self._thread = threading.get_ident()
        self._absent = frozenset[str]() if sys.modules.keys() & set(absent) else frozenset(absent)
        self._lazy = frozenset(lazy)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if threading.get_ident() != self._thread:
            return None
        if fullname.partition(".")[0] in self._absent:
            raise ModuleNotFoundError(f"{fullname} is left out", name=fullname)
        if fullname not in self._lazy:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec
