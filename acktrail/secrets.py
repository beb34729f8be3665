"""Secrets by reference, written as for Kafka's configuration providers (KIP-297, KIP-421, KIP-887).

==================== ==============================================================================
``${env:NAME}``      the environment variable NAME
``${file:PATH}``     the text of a file, without the line break at its end
``${file:PATH:KEY}`` the value of KEY in a file of ``key=value`` lines
==================== ==============================================================================

A text may have several references, and other text between them. What a reference leads to is not searched for further
references. PATH and KEY have no ``:`` and no ``}``. A provider that is not known is refused, unlike in Kafka, which
passes the text on: a misspelt reference must not become a password.

No error shows a value, nor the text around a reference: both may be secret. Files of ``key=value`` lines are those that
Kafka's tools take with ``--command-config``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple

from acktrail.errors import ConfigurationError, near_names

_REFERENCE: Final = re.compile(r"\$\{([^{}:]*):([^{}]*)\}")
_ENV: Final = "env"
_FILE: Final = "file"
_PROVIDERS: Final = (_ENV, _FILE)
_SYNTAX: Final = "write ${env:NAME}, ${file:PATH} or ${file:PATH:KEY}"
_LARGEST_FILE: Final = 1 << 20
_SECRET: Final = re.compile(
    r"passwd|password|passphrase|secret|token|jaas|credential|authorization|webhook|proxy[._-]?url|default[._-]headers"
    r"|(access|account|api|customer|encryption|master|private|sas|shared|signing)[._-]?key"
    r"|key\.pem|keystore\.key|oauthbearer\.config|(^|[._-])(pass|pwd)$"
)
"""In names of Kafka's clients, of object storages as obstore has them, and of what plug-ins connect to."""
_SAYS_WHERE: Final = (".url", ".uri", ".id", ".location", ".file", ".path", ".ms", ".seconds")
"""Ends of names that hold no secret although a word in them sounds so: ``sasl.oauthbearer.token.endpoint.url``."""


def has_reference(text: str) -> bool:
    """Whether `text` has a reference, understood or not.

    >>> has_reference("${env:USER}:${file:/run/login:password}"), has_reference("$HOME")
    (True, False)
    """
    return _REFERENCE.search(text) is not None


def reference_to(file: object) -> str:
    """A reference to the whole text of a file, whose path has no ``:``, ``{`` and ``}``."""
    return f"${{file:{file}}}"


def references_in(text: str) -> list[str]:
    """The references of `text` that are understood.

    >>> references_in("${env:USER}:${file:/run/login:password} ${vault:x}")
    ['${env:USER}', '${file:/run/login:password}']
    """
    found = []
    for match in _REFERENCE.finditer(text):
        with suppress(ConfigurationError):
            found.append(_Reference.of(match).shown)
    return found


class _Reference(NamedTuple):
    """A reference as it is `shown`; `key` is empty where the whole file or a variable is meant."""

    shown: str
    provider: str
    place: str
    key: str

    @classmethod
    def of(cls, match: re.Match[str]) -> _Reference:
        """Raises ConfigurationError: it is not understood."""
        provider, place = match[1], match[2]
        if provider not in _PROVIDERS:
            near = near_names(provider.lower(), _PROVIDERS, most=1)
            hint = f"did you mean ${{{near[0]}:...}}?" if near else _SYNTAX
            raise ConfigurationError("the reference has an unknown provider", hint=hint)
        place, is_keyed, key = place.rpartition(":") if provider == _FILE and ":" in place else (place, "", "")
        if not place or (is_keyed and not key) or ":" in place or "\0" in place:
            raise ConfigurationError(f"the reference to {provider} is incomplete", hint=_SYNTAX)
        return cls(match[0], provider, place, key)


class NoValueThere(ConfigurationError):
    """A reference that may be resolved, and gives nothing: its file is absent, unreadable, none, or has no such key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Providers:
    """Where references may lead. `base`: where relative paths begin (None: the working folder). `folders`: where files
    must lie, links followed (None: anywhere), as Kafka's ``allowed.paths``. `variables`: names that variables of the
    environment must have, ``*`` for any part (None: any), as Kafka's ``allowlist.pattern``. `withheld`: texts whose own
    references lead to what no other may read; a folder among them stands for all that is in it. `of_operator`: the same
    of texts that only an operator's own may follow. `is_for_owner`: only the owner of a file may be able to read it.
    What was found is added to `seen`, so that it can be hidden."""

    base: Path | None = None
    folders: Sequence[Path] | None = None
    variables: Sequence[str] | None = None
    withheld: Sequence[str] = ()
    of_operator: Sequence[str] = ()
    is_for_owner: bool = False
    seen: set[str] = field(default_factory=set, repr=False, compare=False)

    def unbounded(self) -> Providers:
        """The same for texts of the operator: their references lead anywhere but to what is withheld."""
        return replace(self, folders=None, variables=None, of_operator=())

    def resolve(self, text: str) -> str:
        """`text` with what its references lead to in their place. Raises ConfigurationError: a reference is not
        understood, or leads elsewhere than allowed; NoValueThere."""

        def found(match: re.Match[str]) -> str:
            value = self._value(_Reference.of(match))
            self.seen.add(value)
            return value

        return _REFERENCE.sub(found, text)

    def check(self, text: str) -> None:
        """Pass where the references of `text` are understood and allowed. No file is looked at. Raises
        ConfigurationError."""
        for match in _REFERENCE.finditer(text):
            wanted = _Reference.of(match)
            self._ensure_allowed(wanted, Path(os.path.abspath(self._path(wanted.place))))

    def check_file(self, path: str, *, looks: bool = True) -> None:
        """Pass where a reference might lead to the file at `path`. `looks` False: links are not followed. Raises
        ConfigurationError."""
        wanted = _Reference(path, _FILE, os.path.abspath(path), "")
        self._ensure_allowed(wanted, _real(Path(wanted.place)) if looks else Path(wanted.place))
        if looks:
            self._ensure_not_withheld(wanted)

    def _value(self, wanted: _Reference) -> str:
        self._ensure_allowed(wanted, _real(self._path(wanted.place)))
        self._ensure_not_withheld(wanted)
        if wanted.provider == _FILE:
            return self._of_file(wanted.shown, wanted.place, wanted.key)
        value = os.environ.get(wanted.place)
        if value is None:
            raise ConfigurationError(f"{wanted.shown}: the variable is not set", hint=f"set {wanted.place}")
        return value

    def _ensure_not_withheld(self, wanted: _Reference) -> None:
        for texts, whose in (
            (self.withheld, "what is the worker's own"),
            (self.of_operator, "a secret of an operator's file"),
        ):
            owners = (_Reference.of(own) for text in texts for own in _REFERENCE.finditer(text))
            if any(self._reaches(wanted, own) for own in owners):
                hint = "refer to a secret of the connector's own"
                raise ConfigurationError(f"{wanted.shown}: it points to {whose}", hint=hint)

    def _ensure_allowed(self, wanted: _Reference, path: Path) -> None:
        """`path`: the file of a reference, absolute."""
        if wanted.provider == _ENV:
            if self.variables is not None and not any(fnmatchcase(wanted.place, each) for each in self.variables):
                message = f"{wanted.shown}: the variable is not one of those allowed"
                raise ConfigurationError(message, hint=_allowed("variables", [*self.variables, wanted.place]))
        elif self.folders is not None:
            places = {each for folder in self.folders for each in (_real(folder), Path(os.path.abspath(folder)))}
            if not any(path.is_relative_to(each) for each in places):
                message = f"{wanted.shown}: the file is outside of the allowed folders"
                folder = Path(os.path.abspath(self._path(wanted.place))).parent
                more = "FOLDER OF THE FILE" if any(map(folder.is_relative_to, places)) else folder  # links are followed
                raise ConfigurationError(message, hint=_allowed("paths", [*self.folders, more]))

    def _reaches(self, wanted: _Reference, own: _Reference) -> bool:
        """Whether `wanted` gives all or a part of what `own` gives."""
        if wanted.provider != own.provider or (wanted.key and own.key and wanted.key != own.key):
            return False
        if own.provider == _ENV:
            return wanted.place == own.place
        file, other = self._path(wanted.place), self._path(own.place)
        try:
            if file.samefile(other):  # by another name
                return True
        except OSError:
            pass
        return _real(file).is_relative_to(_real(other))

    def _path(self, place: str) -> Path:
        return home_path(place) if self.base is None else self.base / home_path(place)

    def _of_file(self, shown: str, place: str, key: str) -> str:
        path = self._path(place)
        try:
            self._check_file(shown, path)
            if not key:
                return path.read_text(encoding="utf-8-sig").removesuffix("\n")
            properties = _properties(shown, path)
        except OSError as error:
            raise NoValueThere(f"{shown}: cannot read {path}: {error.strerror}", hint="check the path") from None
        except UnicodeDecodeError:
            raise NoValueThere(f"{shown}: {path} is not UTF-8 text", hint="name the file with the secret") from None
        if key not in properties:
            raise NoValueThere(f"{shown}: {path} has no such key", hint="one key=value a line")
        return properties[key]

    def _check_file(self, shown: str, path: Path) -> None:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # a pipe or a device would be waited for
            raise NoValueThere(f"{shown}: {path} is not a regular file", hint="a reference must lead to a regular file")
        if found.st_size > _LARGEST_FILE:
            raise NoValueThere(f"{shown}: {path} is larger than 1 MiB", hint="name the file with the secret")
        if self.is_for_owner and is_foreign(found):
            raise ConfigurationError(f"{shown}: another user owns {path}", hint=f"chown it to user {os.geteuid()}")
        if self.is_for_owner and found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigurationError(f"{shown}: other users can read or write {path}", hint=f"chmod 600 {path}")


def is_foreign(found: os.stat_result) -> bool:
    """Whether a file is owned by neither this process's user nor root."""
    return found.st_uid not in {os.geteuid(), 0}


def _properties(shown: str, path: Path) -> dict[str, str]:
    try:
        return read_properties(path)
    except ConfigurationError as error:
        raise NoValueThere(f"{shown}: {error.message}", hint=error.hint) from None


def _real(path: Path) -> Path:
    """Without links; of a circle of links what it can."""
    return Path(os.path.realpath(path))


def _allowed(what: str, names: Sequence[object]) -> str:
    """The line that allows all of `names`."""
    line = f'config.providers.allowed.{what} = "{",".join(map(str, names))}"'
    return f"an operator allows it in the worker's file, above [connector]: {line}"


def read_properties(file: Path) -> dict[str, str]:
    """``key=value`` lines; blank lines and lines that start with ``#`` are skipped. Raises ConfigurationError when the
    file cannot be read or a line has no ``=``. The line's text is not shown."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {file}: {type(error).__name__}", hint="check the path") from error
    pairs: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, separator, value = text.partition("=")
        if not separator:
            raise ConfigurationError(f"{file}, line {number}: not key=value", hint="one key=value a line")
        pairs[key.strip()] = value.strip()
    return pairs


def home_path(text: str) -> Path:
    """A path as people write it: ``~/`` is the user's home."""
    return Path.home() / text[2:] if text.startswith("~/") else Path(text)


def resolve_all(
    properties: Mapping[str, str], subject: str, *, base: Path | None = None, kept_to_owner: Collection[str] = ()
) -> dict[str, str]:
    """`properties` with every value resolved; errors begin with `subject` and the property's name. Only the owner may
    be able to read files that those in `kept_to_owner` refer to."""
    resolved = {}
    for name, text in properties.items():
        try:
            resolved[name] = Providers(base=base, is_for_owner=name in kept_to_owner).resolve(text)
        except ConfigurationError as error:
            raise ConfigurationError(f"{subject}, {name}: {error.message}", hint=error.hint) from None
    return resolved


def resolved_properties(file: Path) -> dict[str, str]:
    """``key=value`` lines with every reference resolved; relative ones begin at the file's folder. Raises
    ConfigurationError."""
    return resolve_all(read_properties(file), str(file), base=file.absolute().parent)


def is_secret_name(name: str) -> bool:
    """Whether a property of this name holds a secret, by the words in it.

    >>> is_secret_name("sasl.password"), is_secret_name("sasl.oauthbearer.token.endpoint.url")
    (True, False)
    """
    lower = name.lower()
    return _SECRET.search(lower) is not None and ("proxy" in lower or not lower.endswith(_SAYS_WHERE))


HIDDEN: Final = "[hidden]"
"""What is shown of a password, as by Kafka."""
_USER_INFO: Final = re.compile(r"\b([a-z][a-z0-9+-]{0,20})://([^/?#\s'\"]+)@", re.IGNORECASE)
_CONTAINERS: Final = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""Schemes of Azure that have a container before the ``@``."""


def user_info(text: str) -> list[str]:
    """What stands before the ``@`` of URLs in `text`: users, keys, passwords."""
    return [match[2] for match in _USER_INFO.finditer(text) if _is_login(match)]


def without_user_info(text: str) -> str:
    """`text`, with user and password of URLs hidden.

    >>> without_user_info("s3://key:word@bucket/x, abfss://container@account/y, http://token@host")
    's3://[hidden]@bucket/x, abfss://container@account/y, http://[hidden]@host'
    """
    return _USER_INFO.sub(lambda match: f"{match[1]}://{HIDDEN}@" if _is_login(match) else match[0], text)


def _is_login(match: re.Match[str]) -> bool:
    return ":" in match[2] or match[1].lower() not in _CONTAINERS


@dataclass(frozen=True, slots=True)
class Password:
    """A secret: only `value` shows it."""

    value: str = field(repr=False)

    def __str__(self) -> str:
        return HIDDEN
