"""Configuration keys as data: type, default, importance, validator, documentation; and which values are shown.

From one definition come the parsing of a connector's configuration, its validation key by key, the reference in the
documentation and the help of the command line. The rules of parsing and the texts of errors are those of Kafka's
``org.apache.kafka.common.config.ConfigDef``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib.resources import files
from typing import Any, Final

from acktrail.errors import ConfigurationError, InvalidConfiguration, near_names
from acktrail.package_data import PackageData
from acktrail.secrets import HIDDEN, Password, is_secret_name, user_info

Texts = Mapping[str, Any]
"""A configuration as a person writes it: texts by key."""
_INTEGER: Final = re.compile(r"[+-]?\d+")
_LAST_OF_A_CHAR: Final = "\uffff"
JAVA_BLANK: Final = "".join(map(chr, range(33)))
"""What Java's ``String.trim`` removes."""
_INT_BITS: Final = 31
_LONG_BITS: Final = 63
_FILES: Final = (
    *(".location", "_token_file", "_key_file", "_credentials_file"),
    *("service_account", "_account_path", "application_credentials"),
)
"""Ends of names of files."""
_PUBLIC_FILES: Final = ("ca.location", "crl.location", "truststore.location")
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


def text_of(kind: ConfigType, value: Any) -> str | None:
    """A parsed value as the text that would be parsed to it; None stays None. A password is hidden."""
    if value is None:
        return None
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


def takes_reference(name: str, kind: ConfigType | None) -> bool:
    """Whether a key's text may refer to a secret: it is one itself, or names a file with a key or a certificate."""
    return kind is ConfigType.PASSWORD or is_secret(name) or name.endswith(".location")


def names_file(name: str) -> bool:
    """Whether a key's text is the path of a file with a secret or a certificate, which a client reads and may send."""
    return name.lower().endswith(_FILES)


def names_credentials(name: str) -> bool:
    """Whether a key names a file that says who the client is, not one with the certificates of others.

    >>> names_credentials("option.google_service_account"), names_credentials("kafka.ssl.ca.location")
    (True, False)
    """
    return names_file(name) and not name.lower().endswith(_PUBLIC_FILES)


def shown(name: str, text: Any) -> Any:
    """A configured text as it may be shown: hidden where the name says that it is a secret, unless it is a reference
    to one (``${file:...}``), and where a URL in it has a user or a password."""
    is_one = is_secret(name) and text and not is_reference(text)
    return HIDDEN if is_one or (isinstance(text, str) and user_info(text)) else text


class Importance(StrEnum):
    """How much a person should think about a key."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


NO_DEFAULT: Final = object()
"""The key must be given."""


@dataclass(frozen=True, slots=True)
class Validator:
    """A rule for parsed values (None: not given). `text` says what is valid, `fault` what is wrong with a value; None:
    nothing is."""

    text: str
    fault: Callable[[Any], str | None] = field(compare=False, repr=False)


def between(least: float | None = None, most: float | None = None, *, or_null: bool = False) -> Validator:
    """A number from `least` to `most`, both inclusive; None: no bound. `or_null`: it need not be given."""

    def fault(value: Any) -> str | None:
        if value is None:
            return None if or_null else "Value must be non-null"
        if least is not None and value < least:
            return f"Value must be at least {least}"
        return f"Value must be no more than {most}" if most is not None and value > most else None

    bounds = ["..." if least is None else str(least), *([] if None in (least, most) else ["..."])]
    return Validator(f"[{','.join([*bounds, '...' if most is None else str(most)])}]", fault)


def one_of(*texts: str) -> Validator:
    """One of some texts."""
    shown = ", ".join(texts)
    return Validator(f"[{shown}]", lambda value: None if value in texts else f"String must be one of: {shown}")


def _fault_of_a_name(value: str | None) -> str | None:
    """No control characters. Half a character (a lone surrogate) is refused too, which Kafka lets pass: it is in no URL
    and no file name."""
    if not value:
        return None if value is None else "String may not be empty"
    codes = list(map(ord, value))
    wrong = [code for code in codes if code < 0x20 or 0x7F <= code <= 0x9F]
    wrong += [code for code in codes if 0xD800 <= code <= 0xDFFF]
    shown = ", ".join(map(str, wrong))
    return f"String may not contain control sequences but had the following ASCII chars: {shown}" if wrong else None


NAME: Final = Validator("non-empty string without ISO control characters", _fault_of_a_name)
NON_EMPTY: Final = Validator(
    "non-empty string", lambda value: "String must be non-empty" if value is not None and not str(value) else None
)
_UNIQUE: Final = Validator(
    "unique names", lambda value: "Duplicate alias provided." if len(set(value or ())) < len(value or ()) else None
)
_FOLDER_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_FOLDER: Final = Validator(
    "name of a folder: letters, digits, '_', '.' and '-'",
    lambda value: None if value is None or _FOLDER_NAME.fullmatch(value) else "String must be the name of a folder",
)
_CHECKS: Final = {"name": NAME, "non_empty": NON_EMPTY, "unique": _UNIQUE, "folder": _FOLDER}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One key. `group` and the order of definition arrange the reference. `says_where` False: a text that has nothing
    to do with where a connection goes; a change of any other one makes a caller of REST send the secrets again."""

    name: str
    type: ConfigType
    documentation: str
    default: Any = NO_DEFAULT
    importance: Importance = Importance.MEDIUM
    validator: Validator | None = None
    group: str = "Connector"
    says_where: bool = True

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

    def __init__(self, keys: Iterable[ConfigKey] = (), open_prefixes: Mapping[str, str] | None = None) -> None:
        """Raises ValueError when a name is defined twice, or a default is no value of its type."""
        self.open_prefixes: dict[str, str] = dict(open_prefixes or {})
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
        keys = [replace(key, name=prefix + key.name) for key in self.keys.values()]
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
        near = near_names(name, self.keys, most=1)
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
    fault = None if key.validator is None else key.validator.fault(value)
    if fault is None:
        return
    shown = "null" if value is None else HIDDEN if is_hidden else text_of(key.type, value)
    if isinstance(value, list) and not is_hidden:
        shown = f"[{', '.join(value)}]"
    raise ConfigurationError(f"Invalid value {shown} for configuration {key.name}: {fault}")


def reference(definition: ConfigDef) -> str:
    """The keys as Markdown, in the order of their definition, a heading for each group."""
    lines: list[str] = []
    group = None
    for key in definition.keys.values():
        if key.group != group:
            group = key.group
            lines += [f"### {group}", "", "| key | type | default | valid values | importance | meaning |"]
            lines.append("|---|---|---|---|---|---|")
        text = None if key.is_required else text_of(key.type, key.default)
        default = "required" if key.is_required else {None: "none", "": "empty"}.get(text, f"`{text}`")
        valid = "" if key.validator is None else key.validator.text
        cells = (f"`{key.name}`", key.type.lower(), default, valid, key.importance.lower(), key.documentation)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    lines += [f"\n`{prefix}*`: {meaning}" for prefix, meaning in definition.open_prefixes.items()]
    return "\n".join(lines)


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
        own["validator"] = between(**bounds, or_null=is_optional)
    elif texts or check:
        own["validator"] = one_of(*texts) if texts else _CHECKS[check]
    return ConfigKey(**own)
