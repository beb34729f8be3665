"""Imports Great Expectations lightly.

It tries to import every engine that it can evaluate with and every library that it can draw with, two thirds of the
time of its import. Of the rest a third is spent on copies of fields: each of its models, of pydantic's first version,
gets a deep copy of every field of the model that it extends.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import Any, Final

from pydantic.v1.fields import FieldInfo, ModelField

_OTHER_ENGINES: Final = frozenset(
    {"pyspark", "sqlalchemy", "boto3", "botocore", "google", "azure", "snowflake", "trino"}
)
_FOR_OTHER_USES: Final = frozenset({"altair", "scipy.stats"})
_COPIED: Final = frozenset({list, dict, set, ModelField, FieldInfo})
"""Parts of a field that every model has a copy of."""


class _LightFinder(MetaPathFinder):
    """To this thread ``_OTHER_ENGINES`` count as not installed, and ``_FOR_OTHER_USES`` load when first used. Where one
    engine is loaded already none is hidden, because they need each other: PySpark ends a process that lacks google."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._absent = frozenset[str]() if sys.modules.keys() & _OTHER_ENGINES else _OTHER_ENGINES

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if threading.get_ident() != self._thread:
            return None
        if fullname.partition(".")[0] in self._absent:
            raise ModuleNotFoundError(f"{fullname} is left out", name=fullname)
        spec = PathFinder.find_spec(fullname, path, target) if fullname in _FOR_OTHER_USES else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def light_import() -> Iterator[None]:
    """Around an import by this thread. The garbage collector ignores what is imported, then and later."""
    finder, collects = _LightFinder(), gc.isenabled()
    sys.meta_path.insert(0, finder)
    gc.disable()
    ModelField.__deepcopy__ = _copied_field  # type: ignore[attr-defined]  # no field has one yet
    try:
        yield
    finally:
        del ModelField.__deepcopy__  # type: ignore[attr-defined]  # it has one now
        sys.meta_path.remove(finder)
        gc.freeze()
        if collects:
            gc.enable()


def _copied_field(field: Any, memo: dict[int, Any]) -> Any:
    """A deep copy of a field (``ModelField`` or ``FieldInfo``) that shares what does not change: types, functions and
    values other than collections."""
    copied = memo[id(field)] = copy(field)
    for name in type(field).__slots__:
        value = getattr(field, name, None)
        if type(value) in _COPIED:
            setattr(copied, name, _copied_part(value, memo))
    return copied


def _copied_part(part: Any, memo: dict[int, Any]) -> Any:
    kind = type(part)
    if kind in {list, set}:
        return kind(_copied_part(each, memo) if type(each) in _COPIED else each for each in part)
    if kind is dict:
        return {name: _copied_part(each, memo) if type(each) in _COPIED else each for name, each in part.items()}
    return memo[id(part)] if id(part) in memo else _copied_field(part, memo)
