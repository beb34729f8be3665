"""Configuration keys as data: type, default, importance, validator, documentation.

From one definition come the parsing of a connector's configuration, its validation key by key, the reference in the
documentation and the help of the command line. The rules of parsing and the texts of errors are those of Kafka's
``org.apache.kafka.common.config.ConfigDef``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from acktrail.connect.config_values import HIDDEN, JAVA_BLANK, PARSERS, ConfigType, text_of
from acktrail.errors import ConfigurationError, InvalidConfiguration
from acktrail.model.package_data import PackageData

_NONE: Final[Mapping[str, str]] = MappingProxyType({})
Validator = Callable[[str, Any], None]
"""Gets a key's name and parsed value (None: not given). Raises ValueError, whose text says what must be."""


class Importance(StrEnum):
    """How much a person should think about a key."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class _NoDefault:
    """The key must be given."""

    def __repr__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Final = _NoDefault()


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """A number from `least` to `most`, both inclusive; None: no bound. `or_null`: it need not be given."""

    least: float | None = None
    most: float | None = None
    or_null: bool = False

    def __call__(self, _name: str, value: Any) -> None:
        if value is None:
            if self.or_null:
                return
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


@dataclass(frozen=True, slots=True)
class Unique:
    """Names, each once."""

    def __call__(self, _name: str, value: Any) -> None:
        if len(set(value or ())) < len(value or ()):
            raise ValueError("Duplicate alias provided.")

    def __str__(self) -> str:
        return "unique names"


_CHECKS: Final[Mapping[str, Validator]] = {
    "name": NonEmptyWithoutControls(),
    "non_empty": NonEmpty(),
    "unique": Unique(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One key. `group` and the order of definition arrange the reference."""

    name: str
    type: ConfigType
    documentation: str
    default: Any = NO_DEFAULT
    importance: Importance = Importance.MEDIUM
    validator: Validator | None = None
    group: str = "Connector"

    @property
    def is_required(self) -> bool:
        return self.default is NO_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValue:
    """One key's value after validation, parsed where it could be, and what is wrong with it."""

    name: str
    value: Any = None
    errors: tuple[str, ...] = ()


class ConfigDef:
    """Keys by name, in the order of their definition, and `open_prefixes`: names that begin so are passed on as they
    are, each with its meaning. Immutable: ``with_keys`` and ``prefixed`` give another one."""

    def __init__(self, keys: Iterable[ConfigKey] = (), open_prefixes: Mapping[str, str] = _NONE) -> None:
        """Raises ValueError when a name is defined twice, or a default is no value of its type."""
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

    def with_keys(self, others: ConfigDef) -> ConfigDef:
        """These keys and then those of `others`."""
        return ConfigDef([*self.keys.values(), *others.keys.values()], self.open_prefixes | others.open_prefixes)

    def prefixed(self, prefix: str) -> ConfigDef:
        """The same keys with `prefix` before their names."""
        keys = [
            replace(
                key,
                name=prefix + key.name,
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

    def validate(self, texts: Mapping[str, Any], hidden: Collection[str] = ()) -> list[ConfigValue]:
        """Every key's value, in the order of definition, and all that is wrong with it; then the other names in
        `texts`: as they are under an open prefix, else unknown, with the nearest name. No error shows the value of a
        key in `hidden`, nor a password."""
        found = [_value(key, texts, is_hidden=name in hidden) for name, key in self.keys.items()]
        return found + [self._other(name, texts[name]) for name in texts if name not in self.keys]

    def _other(self, name: str, value: Any) -> ConfigValue:
        if name.startswith(tuple(self.open_prefixes)):
            return ConfigValue(name=name, value=value)
        near = difflib.get_close_matches(name, self.keys, n=1)
        more = f' Did you mean "{near[0]}"?' if near else ""
        return ConfigValue(name=name, value=value, errors=(f'Unknown configuration "{name}".{more}',))


def _value(key: ConfigKey, texts: Mapping[str, Any], *, is_hidden: bool) -> ConfigValue:
    """As by Kafka, the validator looks at null where nothing could be parsed, and what it refuses is shown all the
    same."""
    value, errors = None, []
    if key.name in texts:
        try:
            value = _parsed(key, texts[key.name], is_hidden=is_hidden)
        except ConfigurationError as error:
            errors.append(error.message)
    elif key.is_required:
        errors.append(f'Missing required configuration "{key.name}" which has no default value.')
    else:
        value = key.default
    try:
        _check(key, value, is_hidden=is_hidden)
    except ConfigurationError as error:
        errors.append(error.message)
    return ConfigValue(name=key.name, value=value, errors=tuple(errors))


def _parsed(key: ConfigKey, value: Any, *, is_hidden: bool = False) -> Any:
    if value is None:
        return None
    try:
        return PARSERS[key.type](value.strip(JAVA_BLANK) if isinstance(value, str) else value)
    except (ValueError, TypeError) as error:
        shown = HIDDEN if is_hidden or key.type is ConfigType.PASSWORD else value
        raise ConfigurationError(f"Invalid value {shown} for configuration {key.name}: {error}") from None


def _check(key: ConfigKey, value: Any, *, is_hidden: bool = False) -> None:
    if key.validator is None:
        return
    try:
        key.validator(key.name, value)
    except ValueError as error:
        shown = "null" if value is None else text_of(key.type, value, hidden=True)
        if key.type is ConfigType.LIST and value is not None:
            shown = f"[{', '.join(value)}]"
        if is_hidden and value is not None:
            shown = HIDDEN
        raise ConfigurationError(f"Invalid value {shown} for configuration {key.name}: {error}") from None


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


def keys_in(package: str, file: str) -> ConfigDef:
    """The keys in a TOML file of `package`: each a table ``key`` with the fields of ``ConfigKey``, ``optional``: its
    default is null, and what a value must be (``least``, ``most``, ``one_of``, ``check``). Raises ValueError, with the
    line: it is no such file."""
    data = PackageData(files(package).joinpath(file).read_text("utf-8"), file, "key")
    return ConfigDef([data.made(row, _key_in) for row in data.data["key"]], data.data.get("open_prefixes", {}))


def _key_in(row: Mapping[str, Any]) -> ConfigKey:
    own = dict(row)
    bounds = {name: own.pop(name) for name in ("least", "most") if name in own}
    texts, check, is_optional = own.pop("one_of", ()), own.pop("check", None), own.pop("optional", False)
    own["type"], own["importance"] = ConfigType(own["type"]), Importance(own.get("importance", Importance.MEDIUM))
    if is_optional:
        own["default"] = None
    if bounds:
        own["validator"] = Between(**bounds, or_null=is_optional)
    elif texts or check:
        own["validator"] = OneOf(tuple(texts)) if texts else _CHECKS[check]
    return ConfigKey(**own)
