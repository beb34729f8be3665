"""Types of configured values, texts to values and back by the rules of Kafka's ``ConfigDef``, and what may be shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from acktrail.secrets import is_secret_name

HIDDEN: Final = "[hidden]"
"""What is shown of a password, as by Kafka."""


Texts = Mapping[str, Any]
"""A configuration as a person writes it: texts by key."""
_INTEGER: Final = re.compile(r"[+-]?\d+")
_LAST_OF_A_CHAR: Final = "\uffff"
JAVA_BLANK: Final = "".join(map(chr, range(33)))
"""What Java's ``String.trim`` removes."""
_INT_BITS: Final = 31
_LONG_BITS: Final = 63
_REFERENCE: Final = re.compile(r"\$\{(env|file):[^{}]*\}")


class ConfigType(StrEnum):
    """Kafka's types of values. A CLASS is the name of a plug-in."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    LONG = "LONG"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"  # noqa: S105  # the name of a type


@dataclass(frozen=True, slots=True)
class Password:
    """A secret: only `value` shows it."""

    value: str = field(repr=False)

    def __str__(self) -> str:
        return HIDDEN


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.upper() in {"TRUE", "FALSE"}:
        return value.upper() == "TRUE"
    raise ValueError("Expected value to be either true or false")


def _integer(name: str, bits: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        if isinstance(value, str) and _INTEGER.fullmatch(value) and max(value) <= _LAST_OF_A_CHAR:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not -(1 << bits) <= value < 1 << bits:
            raise ValueError(f"Not a number of type {name}")
        return value

    return parse


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"Expected value to be a string, but it was a {type(value).__name__}")
    return value


def _list(value: Any) -> list[str]:
    if isinstance(value, list):
        return [_text(each) for each in value]
    if not isinstance(value, str):
        raise TypeError("Expected a comma separated list.")
    return re.split(r"\s*,\s*", value, flags=re.ASCII) if value else []


def _password(value: Any) -> Password:
    return value if isinstance(value, Password) else Password(_text(value))


PARSERS: Final[dict[ConfigType, Callable[[Any], Any]]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: _text,
    ConfigType.INT: _integer("INT", _INT_BITS),
    ConfigType.LONG: _integer("LONG", _LONG_BITS),
    ConfigType.LIST: _list,
    ConfigType.CLASS: _text,
    ConfigType.PASSWORD: _password,
}


def text_of(kind: ConfigType, value: Any, *, hidden: bool = True) -> str | None:
    """A parsed value as the text that would be parsed to it; None stays None. A password is hidden unless `hidden` is
    False."""
    if value is None:
        return None
    if kind is ConfigType.PASSWORD and not hidden:
        return str(value.value)
    if kind is ConfigType.BOOLEAN:
        return "true" if value else "false"
    if kind is ConfigType.LIST:
        return ",".join(value)
    return str(value)


def under(config: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """What `config` has under `prefix`, by the rest of the name."""
    return {name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)}


def is_secret(name: str) -> bool:
    """Whether a key's name says that its value is a secret."""
    return is_secret_name(name) or "private" in name.lower()


def is_reference(text: Any) -> bool:
    """Whether a text is one reference to a secret and nothing else."""
    return isinstance(text, str) and _REFERENCE.fullmatch(text) is not None


def shown(name: str, text: Any) -> Any:
    """A configured text as it may be shown: hidden where the name says that it is a secret, unless it is a reference
    to one (``${file:...}``)."""
    return HIDDEN if is_secret(name) and text and not is_reference(text) else text
