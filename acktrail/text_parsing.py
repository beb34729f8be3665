"""JSON and TOML that somebody else may have written: what no program here can work with is refused.

Python's own parsers take numbers that are none (``NaN``, ``Infinity``, ``1e999``), integers of thousands of digits, and
a key that occurs twice: its first value is lost without a word. They answer data that is nested a thousand deep with
a RecursionError. Nested a little less, it becomes one in what reads it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from typing import Any, Final

MOST_DEPTH: Final = 64
"""Objects and lists within each other. Nothing that acktrail writes or reads has more than ten."""
_TOO_DEEP: Final = f"it is nested more than {MOST_DEPTH} deep"
_INTEGERS: Final = range(-(1 << 63), 1 << 63)
"""Greater ones are no number of Kafka, Delta or Arrow."""
_ZEROS: Final = bytes.maketrans(b"123456789E", b"000000000e")
_LONG: Final = b"0" * 19
_HIGH: Final = b"e000"
"""With all digits as zeros, and without signs: what every number has, or its exponent, that is too large."""
_BACKSLASH: Final = ord("\\")  # a search for one byte is quick
_NO_BRACKET: Final = bytes({*range(256)} - {*b"[]{}"})


def parse_json(text: str | bytes) -> Any:
    """The value in a JSON text (RFC 8259; bytes are UTF-8). Raises ValueError: it is no JSON; it is nested more than
    ``MOST_DEPTH`` deep; a key occurs twice; a number is not finite, or an integer of more than 64 bits; a text in it
    is no Unicode (half a surrogate pair)."""
    try:
        raw, text = (text, text.decode()) if isinstance(text, bytes) else (text.encode(), text)
    except UnicodeError:
        raise ValueError("it is no UTF-8") from None
    try:
        value = _decoded(raw, text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if len(raw) > 2 * MOST_DEPTH and raw.count(b"{") + raw.count(b"[") > MOST_DEPTH and not _is_shallow(raw):
        _check(value)
    if _BACKSLASH in raw and b"\\u" in raw:
        _check_unicode(value)
    return value


def parse_toml(text: str) -> dict[str, Any]:
    """The tables in a TOML text. Raises ValueError: it is not TOML, with line and column; it is nested more than
    ``MOST_DEPTH`` deep, dotted keys among it; a number is not finite, or an integer of more than 64 bits."""
    import tomllib  # every command imports this module, few of them read TOML

    try:
        found = tomllib.loads(text, parse_float=_finite)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _check(found)
    return found


def _decoded(raw: bytes, text: str) -> Any:
    """What is in the text, nested however deep. Hooks, which Python calls for each object or number, and searches cost
    more than all else: a flat object, as of one row of many, goes without where it has as many colons as keys."""
    if raw.count(b"{") == 1 and b"[" not in raw:
        value = _PLAIN.decode(text)
        if type(value) is dict and len(value) == raw.count(b":") and not any(map(_is_odd, value.values())):
            return value
    numbers = raw.translate(_ZEROS, b"+")
    return (_EXACT if _LONG in numbers or _HIGH in numbers else _ONCE).decode(text)


def _is_odd(value: Any) -> bool:
    return (type(value) is int and value not in _INTEGERS) or (type(value) is float and not math.isfinite(value))


def _is_shallow(raw: bytes) -> bool:
    """Whether the brackets of a text show that it is nested little. False where brackets in its strings hide it."""
    left = raw.translate(None, _NO_BRACKET)
    for _ in range(MOST_DEPTH):
        if not left:
            return True
        left = left.replace(b"{}", b"").replace(b"[]", b"")
    return not left


def _check_unicode(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("it has a text that is not Unicode: half of a surrogate pair") from None


def _check(value: Any) -> None:
    """Raise ValueError: `value` is nested too deep, or has an integer of more than 64 bits."""
    level: Collection[Any] = [value]
    for _ in range(MOST_DEPTH + 1):
        inner = [each for each in level if isinstance(each, dict | list)]
        if not inner:
            return
        level = [part for each in inner for part in (each.values() if isinstance(each, dict) else each)]
        for each in level:
            if type(each) is int:
                _bounded(each)
    raise ValueError(_TOO_DEEP)


def _integer(text: str) -> int:
    return _bounded(int(text[:40]))  # Python refuses thousands of digits with other words


def _bounded(number: int) -> int:
    if number not in _INTEGERS:
        raise ValueError("an integer has more than 64 bits")
    return number


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in found if names.count(name) > 1)[:100]!r} occurs twice")
    return found


_PLAIN: Final = json.JSONDecoder(parse_constant=_finite)
_ONCE: Final = json.JSONDecoder(parse_constant=_finite, object_pairs_hook=_once)
_EXACT: Final = json.JSONDecoder(
    object_pairs_hook=_once, parse_constant=_finite, parse_int=_integer, parse_float=_finite
)
