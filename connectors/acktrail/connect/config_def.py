"""Configuration keys as data: type, default, importance, validator, documentation, recommended values, dependents.

From one definition come the parsing of a connector's configuration, its validation key by key, the reference in the
documentation and the help of the command line. The rules of parsing and the texts of errors are those of Kafka's
``org.apache.kafka.common.config.ConfigDef``.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from acktrail.errors import ConfigurationError, InvalidConfiguration
from acktrail.secrets import is_secret_name

HIDDEN: Final = "[hidden]"
"""What is shown of a password, as by Kafka."""


class ConfigType(StrEnum):
    """Kafka's types of values. A CLASS is the name of a plug-in."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"  # noqa: S105  # the name of a type


class Importance(StrEnum):
    """How much a person should think about a key."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


@dataclass(frozen=True, slots=True)
class Password:
    """A secret: only `value` shows it."""

    value: str = field(repr=False)

    def __str__(self) -> str:
        return HIDDEN


_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class _NoDefault:
    """The key must be given."""

    def __repr__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Final = _NoDefault()

Validator = Callable[[str, Any], None]
"""Gets a key's name and parsed value (None: not given). Raises ValueError, whose text says what must be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """A number from `least` to `most`, both inclusive; None: no bound."""

    least: float | None = None
    most: float | None = None

    def __call__(self, _name: str, value: Any) -> None:
        if value is None:
            raise ValueError("Value must be non-null")
        if self.least is not None and float(value) < float(self.least):
            raise ValueError(f"Value must be at least {self.least}")
        if self.most is not None and float(value) > float(self.most):
            raise ValueError(f"Value must be no more than {self.most}")

    def __str__(self) -> str:
        if self.least is None:
            return f"[...,{self.most}]"
        return f"[{self.least},...]" if self.most is None else f"[{self.least},...,{self.most}]"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of some texts."""

    texts: tuple[str, ...]

    def __call__(self, _name: str, value: Any) -> None:
        if value not in self.texts:
            raise ValueError(f"String must be one of: {', '.join(self.texts)}")

    def __str__(self) -> str:
        return f"[{', '.join(self.texts)}]"


@dataclass(frozen=True, slots=True)
class NonEmpty:
    """A text that is not empty."""

    def __call__(self, _name: str, value: Any) -> None:
        if value is not None and not str(value):
            raise ValueError("String must be non-empty")

    def __str__(self) -> str:
        return "non-empty string"


@dataclass(frozen=True, slots=True)
class NonEmptyWithoutControls:
    """A text that is not empty and has no control characters: a name. Half a character (a lone surrogate) is none
    either, which Kafka lets pass: it is in no URL and no file name."""

    def __call__(self, _name: str, value: Any) -> None:
        if value is None:
            return
        if not value:
            raise ValueError("String may not be empty")
        wrong = [ord(each) for each in value if ord(each) < 0x20 or 0x7F <= ord(each) <= 0x9F]
        wrong += [ord(each) for each in value if 0xD800 <= ord(each) <= 0xDFFF]
        if wrong:
            shown = ", ".join(map(str, wrong))
            raise ValueError(f"String may not contain control sequences but had the following ASCII chars: {shown}")

    def __str__(self) -> str:
        return "non-empty string without ISO control characters"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One key. `recommended` gives the values that make sense beside the others (all parsed), `visible` whether the
    key has a meaning beside them; `dependents` are the keys whose recommended values or visibility hang on this one.
    `group` and the order of definition arrange the reference."""

    name: str
    type: ConfigType
    documentation: str
    default: Any = NO_DEFAULT
    importance: Importance = Importance.MEDIUM
    validator: Validator | None = None
    group: str = "Connector"
    dependents: tuple[str, ...] = ()
    recommended: Callable[[Mapping[str, Any]], Sequence[Any]] | None = None
    visible: Callable[[Mapping[str, Any]], bool] | None = None

    @property
    def is_required(self) -> bool:
        return self.default is NO_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValue:
    """One key's value after validation, parsed where it could be, and what is wrong with it."""

    name: str
    value: Any = None
    recommended_values: tuple[Any, ...] = ()
    errors: tuple[str, ...] = ()
    visible: bool = True


class ConfigDef:
    """Keys by name, in the order of their definition, and `open_prefixes`: names that begin so are passed on as they
    are, each with its meaning. Immutable: ``with_keys`` and ``prefixed`` give another one."""

    def __init__(self, keys: Iterable[ConfigKey] = (), open_prefixes: Mapping[str, str] = _NONE) -> None:
        """Raises ValueError when a name is defined twice, a default is no value of its type, or a dependent is not
        defined."""
        self.open_prefixes: dict[str, str] = dict(open_prefixes)
        self.keys: dict[str, ConfigKey] = {}
        for key in keys:
            if key.name in self.keys:
                raise ValueError(f"configuration {key.name} is defined twice")
            if not key.is_required:
                default = _parsed(key, key.default)
                _check(key, default)
                key = replace(key, default=default)  # noqa: PLW2901  # the parsed default is the key's
            self.keys[key.name] = key
        for key in self.keys.values():
            missing = [name for name in key.dependents if name not in self.keys]
            if missing:
                raise ValueError(f"configuration {key.name} has the undefined dependent {missing[0]}")

    def with_keys(self, others: ConfigDef) -> ConfigDef:
        """These keys and then those of `others`."""
        return ConfigDef([*self.keys.values(), *others.keys.values()], self.open_prefixes | others.open_prefixes)

    def prefixed(self, prefix: str) -> ConfigDef:
        """The same keys with `prefix` before their names. Not for keys whose `recommended` or `visible` look at
        others."""
        keys = [
            replace(
                key,
                name=prefix + key.name,
                dependents=tuple(prefix + name for name in key.dependents),
                recommended=_under(prefix, key.recommended),
                visible=_under(prefix, key.visible),
            )
            for key in self.keys.values()
        ]
        return ConfigDef(keys, {prefix + name: meaning for name, meaning in self.open_prefixes.items()})

    def parse(self, texts: Mapping[str, Any]) -> dict[str, Any]:
        """Values by key, defaults filled in; names under an open prefix keep their texts. Raises InvalidConfiguration
        with every key that is wrong, and every name that is not defined."""
        values = self.validate(texts)
        errors = {value.name: value.errors for value in values if value.errors}
        if errors:
            raise InvalidConfiguration(errors)
        return {value.name: value.value for value in values}

    def validate(self, texts: Mapping[str, Any]) -> list[ConfigValue]:
        """Every key's value, in the order of definition, and all that is wrong with it; then the other names in
        `texts`: as they are under an open prefix, else unknown, with the nearest name."""
        found = {name: _value(key, texts) for name, key in self.keys.items()}
        parsed = {name: value.value for name, value in found.items()}
        others = [self._other(name, texts[name]) for name in texts if name not in self.keys]
        return [
            replace(
                found[name],
                recommended_values=tuple(key.recommended(parsed)) if key.recommended else (),
                visible=key.visible(parsed) if key.visible else True,
            )
            for name, key in self.keys.items()
        ] + others

    def _other(self, name: str, value: Any) -> ConfigValue:
        if name.startswith(tuple(self.open_prefixes)):
            return ConfigValue(name=name, value=value)
        near = difflib.get_close_matches(name, self.keys, n=1)
        more = f' Did you mean "{near[0]}"?' if near else ""
        return ConfigValue(name=name, value=value, errors=(f'Unknown configuration "{name}".{more}',))


def _under(
    prefix: str, function: Callable[[Mapping[str, Any]], Any] | None
) -> Callable[[Mapping[str, Any]], Any] | None:
    """`function` for values whose names have `prefix`."""
    if function is None:
        return None
    return lambda values: function(under(values, prefix))


def _value(key: ConfigKey, texts: Mapping[str, Any]) -> ConfigValue:
    """As by Kafka, the validator looks at null where nothing could be parsed, and what it refuses is shown all the
    same."""
    value, errors = None, []
    if key.name in texts:
        try:
            value = _parsed(key, texts[key.name])
        except ConfigurationError as error:
            errors.append(error.message)
    elif key.is_required:
        errors.append(f'Missing required configuration "{key.name}" which has no default value.')
    else:
        value = key.default
    try:
        _check(key, value)
    except ConfigurationError as error:
        errors.append(error.message)
    return ConfigValue(name=key.name, value=value, errors=tuple(errors))


def _parsed(key: ConfigKey, value: Any) -> Any:
    if value is None:
        return None
    try:
        return _PARSERS[key.type](value.strip(_JAVA_BLANK) if isinstance(value, str) else value)
    except (ValueError, TypeError) as error:
        shown = HIDDEN if key.type is ConfigType.PASSWORD else value
        raise ConfigurationError(f"Invalid value {shown} for configuration {key.name}: {error}") from None


def _check(key: ConfigKey, value: Any) -> None:
    if key.validator is None:
        return
    try:
        key.validator(key.name, value)
    except ValueError as error:
        shown = "null" if value is None else text_of(key.type, value, hidden=True)
        if key.type is ConfigType.LIST and value is not None:
            shown = f"[{', '.join(value)}]"
        raise ConfigurationError(f"Invalid value {shown} for configuration {key.name}: {error}") from None


_INTEGER: Final = re.compile(r"[+-]?\d+")
_DOUBLE: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?"
    r"|0[xX](?P<hex>[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?)"
)
"""What Java's ``Double.parseDouble`` takes."""
_LAST_OF_A_CHAR: Final = "\uffff"
_JAVA_BLANK: Final = "".join(map(chr, range(33)))
"""What Java's ``String.trim`` removes."""
_PLAIN_DOUBLES: Final = (1e-3, 1e7)
"""From the first to below the second Java writes a number without an exponent."""
_INT_BITS: Final = 31
_LONG_BITS: Final = 63


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


def _double(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    found = _DOUBLE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("Not a number of type DOUBLE")
    if found["hex"] is None:
        return float(value.rstrip("fFdD"))
    try:
        return float.fromhex(value.rstrip("fFdD"))
    except OverflowError:
        return float("-inf" if value.startswith("-") else "inf")


def _double_text(value: float) -> str:
    """As Java's ``Double.toString``."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or _PLAIN_DOUBLES[0] <= abs(value) < _PLAIN_DOUBLES[1]:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    shown = "".join(map(str, digits)).rstrip("0")
    power = len(digits) - 1 + int(exponent)
    return f"{'-' * sign}{shown[0]}.{shown[1:] or '0'}E{power}"


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


_PARSERS: Final[dict[ConfigType, Callable[[Any], Any]]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: _text,
    ConfigType.INT: _integer("INT", _INT_BITS),
    ConfigType.LONG: _integer("LONG", _LONG_BITS),
    ConfigType.DOUBLE: _double,
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
    return _double_text(value) if kind is ConfigType.DOUBLE else str(value)


def under(config: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """What `config` has under `prefix`, by the rest of the name."""
    return {name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)}


_REFERENCE: Final = re.compile(r"\$\{(env|file):[^{}]*\}")


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


def reference(definition: ConfigDef) -> str:
    """The keys as Markdown, in the order of their definition, a heading for each group."""
    lines: list[str] = []
    group = None
    for key in definition.keys.values():
        if key.group != group:
            group = key.group
            lines += [f"### {group}", "", "| key | type | default | valid values | importance | meaning |"]
            lines.append("|---|---|---|---|---|---|")
        default = "required" if key.is_required else _default(text_of(key.type, key.default))
        valid = "" if key.validator is None else str(key.validator)
        cells = (f"`{key.name}`", key.type.lower(), default, valid, key.importance.lower(), key.documentation)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    lines += [f"\n`{prefix}*`: {meaning}" for prefix, meaning in definition.open_prefixes.items()]
    return "\n".join(lines)


def _default(text: str | None) -> str:
    if text is None:
        return "none"
    return f"`{text}`" if text else "empty"
