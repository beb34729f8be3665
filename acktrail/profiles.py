"""Named profiles in one TOML file: how to reach each of several clusters, and where its tables are::

    root = "s3://warehouse/acktrail"             # tables of a profile that names none: ROOT/NAME
    "tables.options" = "storage.properties"      # of that root

    [profiles.prod-eu]
    bootstrap.servers = "kafka-eu-1:9093,kafka-eu-2:9093"
    client.config = "prod-eu.properties"

    [profiles.prod-eu.kafka]                     # client properties beside that file; these win
    sasl.password = "${file:/run/secrets/kafka:password}"

    [profiles.staging]
    bootstrap.servers = "staging:9092"
    tables = "/data/staging"

Keys may be written with dots, in quotes, or as tables: they mean the same. Paths that are not absolute begin at the
file's folder. One profile that is wrong does not touch the others: it is an error when it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from acktrail.errors import ConfigurationError, UnknownName, near_names
from acktrail.secrets import has_reference, home_path, is_secret_name, resolve_all, resolved_properties
from acktrail.text_parsing import parse_toml

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_KAFKA: Final = "kafka."
_BROKERS: Final = "bootstrap.servers"
_CLIENT: Final = "client.config"
_TABLES: Final = "tables"
_OPTIONS: Final = "tables.options"
_ROOT: Final = "root"
_OF_A_PROFILE: Final = (_BROKERS, _CLIENT, _TABLES, _OPTIONS)
_OF_ALL: Final = (_ROOT, _OPTIONS)
_POSITION: Final = re.compile(r"\(at ([^)]*)\)$")
_CREDENTIALS: Final = re.compile(r"\w+://[^/]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One cluster, as its file has it: no reference is resolved yet. `bootstrap_servers`, `tables` None: not named.
    `kafka`: client properties, by Kafka's names. `base`: where relative paths begin."""

    name: str
    base: Path
    bootstrap_servers: str | None = None
    client_config: str | None = None
    tables: str | None = None
    tables_options: str | None = None
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)

    def brokers(self) -> str:
        """The brokers' addresses. Raises ConfigurationError: none is named, or a reference leads nowhere."""
        if not self.bootstrap_servers:
            raise self._incomplete("no broker", f"add {_BROKERS} to it, or give --bootstrap-server")
        return self._resolved(_BROKERS, self.bootstrap_servers)

    def client_properties(self) -> dict[str, str]:
        """Client properties: those of the file, then those of the profile, which win. Raises ConfigurationError."""
        own = resolve_all(self.kafka, f"profile {self.name!r}", base=self.base)
        return {**self._file(_CLIENT, self.client_config), **own}

    def tables_uri(self) -> str:
        """The root of the tables. Raises ConfigurationError: neither the profile nor the file names one."""
        if not self.tables:
            raise self._incomplete("no tables", f"add {_TABLES} to it, or {_ROOT} to the file, or give --tables")
        uri = self._resolved(_TABLES, self.tables)
        return uri if "://" in uri else str(self.base / home_path(uri))

    def storage_options(self) -> dict[str, str]:
        """Options of the object storage. Raises ConfigurationError."""
        return self._file(_OPTIONS, self.tables_options)

    def referenced(self) -> frozenset[str]:
        """Names of the client properties whose value has a reference."""
        return frozenset(name for name, text in self.kafka.items() if has_reference(text))

    def _file(self, key: str, text: str | None) -> dict[str, str]:
        if text is None:
            return {}
        return resolved_properties(self.base / home_path(self._resolved(key, text)))

    def _resolved(self, key: str, text: str) -> str:
        return resolve_all({key: text}, f"profile {self.name!r}", base=self.base)[key]

    def _incomplete(self, lacks: str, hint: str) -> ConfigurationError:
        return ConfigurationError(f"profile {self.name!r} names {lacks}", hint=hint, data={"profile": self.name})


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """The profiles of one file, by name; `common`: what the file says for all."""

    file: Path
    common: Mapping[str, str]
    entries: Mapping[str, Any] = field(repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """In the order of the file."""
        return tuple(self.entries)

    def profile(self, name: str) -> Profile:
        """One profile. Raises UnknownName, with the nearest names; ConfigurationError: something in it is wrong."""
        if name not in self.entries:
            raise UnknownName("profile", name, nearest=near_names(name, self.names) or sorted(self.names)[:3])
        where = f"{self.file}, profile {name!r}"
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"{where}: not a valid name of a profile", hint="letters, digits, - and _; at most 63"
            )
        found = _settings(self.entries[name], where, _OF_A_PROFILE, open_prefix=_KAFKA)
        kafka = {key.removeprefix(_KAFKA): text for key, text in found.items() if key.startswith(_KAFKA)}
        _check_no_secret(kafka, where)
        root, own = self.common.get(_ROOT), found.get(_TABLES)
        return Profile(
            name=name,
            base=self.file.parent,
            bootstrap_servers=found.get(_BROKERS),
            client_config=found.get(_CLIENT),
            tables=own or (f"{root.rstrip('/')}/{name}" if root else None),
            tables_options=found.get(_OPTIONS, None if own else self.common.get(_OPTIONS)),
            kafka=kafka,
        )


def read_profiles(file: Path) -> Profiles:
    """The profiles in `file`. Raises ConfigurationError: it cannot be read, is not TOML, or has keys of no meaning
    outside its profiles. No text of the file is shown but its keys."""
    try:
        content = parse_toml(file.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        hint = "ACKTRAIL_PROFILES names the file of profiles"
        raise ConfigurationError(f"cannot read the profiles in {file}: {type(error).__name__}", hint=hint) from error
    except ValueError as error:
        found = _POSITION.search(str(error))
        hint = f'keys that begin alike, such as "{_TABLES}" and "{_OPTIONS}", need quotes; texts too'
        raise ConfigurationError(f"{file} is not TOML{f', {found[1]}' if found else ''}", hint=hint) from None
    entries = content.pop("profiles", {})
    common = _settings(content, str(file), (*_OF_ALL, "profiles"))
    if not isinstance(entries, dict):
        raise ConfigurationError(f"{file}: profiles is not a table", hint="begin each with [profiles.NAME]")
    return Profiles(file=file.absolute(), common=common, entries=entries)


def _settings(entry: Any, where: str, known: Sequence[str], open_prefix: str | None = None) -> dict[str, str]:
    """The keys of a TOML table with their values as text, nested ones with dots: those `known`, and all others that
    begin with `open_prefix`."""
    if not isinstance(entry, dict):
        raise ConfigurationError(f"{where}: not a table", hint="begin it with [profiles.NAME]")
    found = {}
    for key, value in _flat(entry):
        if key not in known and not (open_prefix and key.startswith(open_prefix)):
            near = near_names(key, known, most=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise ConfigurationError(f"{where}: unknown key {key!r}", hint=hint)
        found[key] = _text(value, f"{where}, {key}")
    for key in found.keys() & {_ROOT, _TABLES}:
        if _CREDENTIALS.match(found[key]):
            raise ConfigurationError(f"{where}: {key} contains credentials", hint=f"put them into {_OPTIONS}")
    return found


def _flat(entry: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in entry.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _text(value: Any, where: str) -> str:
    """A value as Kafka's files have it."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float) or value == "":
        raise ConfigurationError(f"{where}: not a text", hint="a text, a number, true or false")
    return str(value)


def _check_no_secret(kafka: Mapping[str, str], where: str) -> None:
    """Pass where every secret is a reference: the file of profiles is for everybody to read."""
    for name, text in kafka.items():
        if is_secret_name(name) and not has_reference(text):
            raise ConfigurationError(
                f"{where}: {name} is a secret in plain text", hint="refer to it: ${env:NAME}, ${file:PATH:KEY}"
            )
