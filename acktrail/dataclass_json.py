"""Frozen dataclasses as plain data, what JSON can hold, and back: dataclasses become objects, tuples lists,
enumerations their text. Back, every field must be there with the right type, and no other.

Example: ``Totals(groups=1, unit=CountUnit.RECORDS)`` is ``{"groups": 1, "unit": "records"}``.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from acktrail.errors import DamagedTables, InputError, MalformedFile
from acktrail.text_parsing import parse_json

T = TypeVar("T")
_PLAIN: Final = frozenset({str, int, bool, type(None)})
_hints = cache(get_type_hints)


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
    raise TypeError(f"{kind.__name__} is not supported plain data")


def from_json_value(kind: type[T], data: Any, where: str = "$") -> T:
    """A value of the dataclass `kind` from plain data. Raises InputError: a field is missing, unknown, or of another
    type; it names the way to the field."""
    try:
        return _read(kind, data)  # type: ignore[no-any-return]  # it was checked against `kind`
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: {error}") from error


def canonical_json(data: Any) -> str:
    """The one text of plain data: keys sorted, no spaces, ASCII."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def fingerprint(data: Any) -> str:
    """``sha256:`` and the digest of the canonical text: equal for equal data in any order or layout."""
    return f"sha256:{hashlib.sha256(canonical_json(data).encode('ascii')).hexdigest()}"


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


def _read(kind: Any, data: Any) -> Any:
    """`data` as a `kind`. Raises TypeError, ValueError: it is none."""
    parts = get_args(kind)
    if get_origin(kind) in (Union, types.UnionType):
        return None if data is None else _read(next(part for part in parts if part is not type(None)), data)
    wanted: Any = list if parts else dict if is_dataclass(kind) else str if issubclass(kind, Enum) else kind
    if type(data) is not wanted:
        raise TypeError(f"{wanted.__name__} wanted, {type(data).__name__} found")
    if parts:
        kinds = [parts[0]] * len(data) if parts[-1] is Ellipsis else parts
        if len(kinds) != len(data):
            raise ValueError(f"{len(kinds)} values wanted, {len(data)} found")
        return tuple(_at(index, *each) for index, each in enumerate(zip(kinds, data, strict=True)))
    values = [member.value for member in kind] if issubclass(kind, Enum) else [data]
    if data not in values:
        raise ValueError(f"{data!r} is none of {', '.join(values)}")
    return _read_dataclass(kind, data) if wanted is dict else kind(data)


def _read_dataclass(kind: type, data: Mapping[str, Any]) -> Any:
    names, hints = _names(kind), _hints(kind)
    if odd := sorted(set(names) ^ data.keys()):
        raise ValueError(f"field {odd[0]!r} is {'missing' if odd[0] in names else 'not known'}")
    return kind(**{name: _at(name, hints[name], data[name]) for name in names})


def _at(place: str | int, kind: Any, data: Any) -> Any:
    """A part, whose place an error names."""
    try:
        return _read(kind, data)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place}: {error}") from error


def json_object(text: str, where: str, what: str, marks: Mapping[str, object], *, hint: str) -> dict[str, Any]:
    """The JSON object in `text`, which comes from `where` and has these `marks`: names with values. Raises
    MalformedFile: it has none or others, so that it is no `what`."""
    try:
        data: Any = parse_json(text)
    except ValueError as error:
        raise MalformedFile(f"is not JSON: {error}", file=where, hint=hint) from error
    if not isinstance(data, dict) or {name: data.get(name) for name in marks} != marks:
        raise MalformedFile(f"is not {'an' if what[0] in 'aeiou' else 'a'} {what}", file=where, hint=hint)
    return data


def stored_object(text: str, table: str, column: str) -> dict[str, Any]:
    """The JSON object in a column of a table. Raises DamagedTables: it is none."""
    found: dict[str, Any] = stored_value(text, table, column, dict)
    return found


def stored_value(text: str, table: str, column: str, *kinds: type) -> Any:
    """The JSON value, of one of `kinds`, in a column of a table. Raises DamagedTables: it is none."""
    try:
        data: Any = parse_json(text)
        if not isinstance(data, kinds):
            raise TypeError(f"it is not a {kinds[0].__name__}")
    except (ValueError, TypeError) as error:
        message = f"table {table}: the {column} of a row is not JSON of acktrail: {error}"
        hint = "another program wrote into the table: `acktrail change audit` and the log of the storage show when"
        raise DamagedTables(message, hint=hint, table=table, data={"column": column}) from error
    return data
