"""Frozen dataclasses to plain data (what JSON can hold) and strictly back.

Dataclasses become objects, tuples lists, enumerations their text. Back, every field must be there with the right type,
and no other: a hand-edited file is found out by its shape first, then by its hash.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from acktrail.errors import InputError

T = TypeVar("T")
_PLAIN: Final = frozenset({str, int, bool, type(None)})


def to_json_value(value: Any) -> Any:
    """`value` as objects, lists, text (times to the microsecond), whole numbers, booleans and null."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple or kind is list:
        return [to_json_value(part) for part in value]
    if is_dataclass(kind):
        return {name: to_json_value(getattr(value, name)) for name in _names(kind)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat(timespec="microseconds")
    if isinstance(value, Mapping):
        return {str(key): to_json_value(part) for key, part in value.items()}
    raise TypeError(f"{kind.__name__} is not plain data")


def from_json_value(kind: type[T], data: Any, where: str = "$") -> T:
    """A value of the dataclass `kind` from plain data. Raises InputError: a field is missing, unknown, or of another
    type; it names the field."""
    return _read(kind, data, where)  # type: ignore[no-any-return]  # it was checked against `kind`


def canonical_json(data: Any) -> str:
    """The one text of plain data: keys sorted, no spaces, ASCII."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def fingerprint(data: Any) -> str:
    """``sha256:`` and the digest of the canonical text: equal for equal data in any order or layout."""
    return f"sha256:{hashlib.sha256(canonical_json(data).encode('ascii')).hexdigest()}"


def hash_of(plan: Any) -> str:
    """The hash that `plan`, a dataclass, should have: over all fields but `plan_hash`."""
    data = to_json_value(plan)
    del data["plan_hash"]
    return fingerprint(data)


def with_hash(plan: T) -> T:
    """`plan` with the hash over its other fields."""
    return replace(plan, plan_hash=hash_of(plan))  # type: ignore[type-var]  # a dataclass


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


_hints = cache(get_type_hints)


def _read(kind: Any, data: Any, where: str) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        (inner,) = (part for part in get_args(kind) if part is not type(None))
        return None if data is None else _read(inner, data, where)
    if origin is tuple:
        return _read_tuple(get_args(kind), data, where)
    if is_dataclass(kind):
        return _read_dataclass(kind, data, where)  # type: ignore[arg-type]  # a class: an origin is none
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _read_enum(kind, data, where)
    if type(data) is not kind:
        raise _wrong(where, kind.__name__, data)
    return data


def _read_tuple(parts: tuple[Any, ...], data: Any, where: str) -> Any:
    if not isinstance(data, list):
        raise _wrong(where, "list", data)
    kinds = [parts[0]] * len(data) if parts[-1] is Ellipsis else list(parts)
    if len(kinds) != len(data):
        raise InputError(f"{where}: {len(kinds)} values wanted, {len(data)} found")
    return tuple(
        _read(kind, part, f"{where}[{index}]") for index, (kind, part) in enumerate(zip(kinds, data, strict=True))
    )


def _read_dataclass(kind: type, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise _wrong(where, "object", data)
    names, hints = _names(kind), _hints(kind)
    if odd := sorted(set(names) ^ data.keys()):
        raise InputError(f"{where}: field {odd[0]!r} is {'missing' if odd[0] in names else 'not known'}")
    return kind(**{name: _read(hints[name], data[name], f"{where}.{name}") for name in names})


def _read_enum(kind: type[Enum], data: Any, where: str) -> Any:
    try:
        return kind(data)
    except ValueError:
        raise InputError(f"{where}: {data!r} is none of {', '.join(str(member.value) for member in kind)}") from None


def _wrong(where: str, wanted: str, found: Any) -> InputError:
    return InputError(f"{where}: {wanted} wanted, {type(found).__name__} found")
