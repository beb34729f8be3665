"""A connector's configuration, with the values of its references and a redaction of its secrets: the keys that every
connector has, those of its source, its sink and its transforms. These are plug-ins, found by entry point, so that
others add theirs.

A configuration is texts by key, as in Kafka Connect. Keys of the sink begin with ``sink.``, those of the transform T
with ``transforms.T.``; all others are the source's or common ones.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final
from urllib.parse import quote, quote_plus

from acktrail.branches import is_there
from acktrail.connect.config_def import (
    HIDDEN,
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Importance,
    Texts,
    is_reference,
    is_secret,
    keys_in,
    shown,
    text_of,
    under,
)
from acktrail.connect.contract import SinkConnector, SourceConnector, Transform
from acktrail.connect.runtime.task_execution import FlushPolicy
from acktrail.errors import (
    AcktrailError,
    ConfigurationError,
    InputError,
    InvalidConfiguration,
    MissingDependency,
    UnknownName,
)
from acktrail.secrets import Providers


class PluginKind(StrEnum):
    """What a plug-in is, by Connect's words."""

    SOURCE = "source"
    SINK = "sink"
    TRANSFORM = "transformation"


_BASES: Mapping[PluginKind, type[Any]] = {
    PluginKind.SOURCE: SourceConnector,
    PluginKind.SINK: SinkConnector,
    PluginKind.TRANSFORM: Transform,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """An installed plug-in: the name that configurations use, and the version of the package that it comes from."""

    name: str
    kind: PluginKind
    version: str


@cache
def _installed(kind: PluginKind) -> Mapping[str, EntryPoint]:
    found = entry_points(group=f"acktrail.connect.{kind.value}s")
    return {each.name: each for each in found if not each.value.startswith("acktrail") or is_there(each.value)}


def installed() -> list[Plugin]:
    """All plug-ins by kind and name. Nothing of them is imported."""
    return [
        Plugin(name=name, kind=kind, version=version_of(kind, name) or "unknown")
        for kind in PluginKind
        for name in sorted(_installed(kind))
    ]


def version_of(kind: PluginKind, name: str) -> str | None:
    """The version of the package that a plug-in comes from; None: not known."""
    found = _installed(kind).get(name)
    return None if found is None or found.dist is None else found.dist.version


def load(kind: PluginKind, name: str) -> type[Any]:
    """The class of the plug-in `name`. Raises UnknownName (no such plug-in), MissingDependency (its package lacks
    something), ConfigurationError (it is none)."""
    found = _installed(kind).get(name)
    if found is None:
        raise UnknownName(f"{kind.value} plug-in", name, nearest=difflib.get_close_matches(name, _installed(kind), n=3))
    try:
        loaded = found.load()
    except ImportError as error:
        raise MissingDependency(
            f"the plug-in {name} cannot be loaded: {error}", hint="install the extra or the package that it needs"
        ) from error
    if not (isinstance(loaded, type) and issubclass(loaded, _BASES[kind])):
        raise ConfigurationError(
            f"the plug-in {name} is no {kind.value}", hint=f"it must extend {_BASES[kind].__name__}"
        )
    return loaded


def definition_of(name: str) -> ConfigDef:
    """The keys of the plug-in `name` of any kind; raises UnknownName."""
    kinds = [kind for kind in PluginKind if name in _installed(kind)]
    if not kinds:
        known = [each for kind in PluginKind for each in _installed(kind)]
        raise UnknownName("plug-in", name, nearest=difflib.get_close_matches(name, known, n=3))
    definition: ConfigDef = load(kinds[0], name).config_def
    return definition


SINK_PREFIX: Final = "sink."
SINK_CLASS: Final = "sink.class"
DEFAULT_SINK: Final = "DeltaSink"
_MS: Final = 1_000
_SHORTEST: Final = 4
"""A shorter text is in every second word: hiding it would hide the error, and show where it stands."""
COMMON: Final = keys_in(__package__, "common_keys.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPolicy:
    """What a task does about errors; times in seconds, `timeout_s` None: without end."""

    tolerates_refusals: bool = False
    dead_letter_table: str = "dead_letters"
    timeout_s: float | None = None
    longest_pause_s: float = 10.0
    restarts: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorPlan:
    """A connector that can be started: every part is configured, nothing is opened. `transforms` makes a new chain for
    each task."""

    name: str
    source: SourceConnector
    sink: SinkConnector
    transforms: Callable[[], tuple[Transform, ...]]
    tasks_max: int
    flush: FlushPolicy
    errors: ErrorPolicy


def _own(source: ConfigDef) -> ConfigDef:
    """A source's keys without common ones that it may refine."""
    return ConfigDef([key for key in source.keys.values() if key.name not in COMMON.keys], source.open_prefixes)


def _transform_names(config: Mapping[str, Any]) -> list[str]:
    texts = str(config.get("transforms") or "").split(",")
    return list(dict.fromkeys(text.strip() for text in texts if text.strip()))


def _transform_def(name: str, config: Mapping[str, Any]) -> ConfigDef:
    prefix = f"transforms.{name}."
    kind = ConfigKey(
        name="type",
        type=ConfigType.CLASS,
        documentation=f"The plug-in of the transform {name}.",
        importance=Importance.HIGH,
        group=f"Transforms: {name}",
    )
    keys = ConfigDef([kind])
    plugin = config.get(f"{prefix}type")
    if plugin is not None:
        keys = keys.with_keys(load(PluginKind.TRANSFORM, str(plugin)).config_def)
    return keys.prefixed(prefix)


def validate(config: Mapping[str, Any], hidden: Collection[str] = ()) -> tuple[ConfigDef, list[ConfigValue]]:
    """Every key with its value and what is wrong with it, without the values of keys in `hidden`. A plug-in that is not
    there is an error of its key, and the keys that it would have are not known."""
    keys, wrong = COMMON, dict[str, str]()
    parts: list[tuple[str, Callable[[], ConfigDef]]] = [
        ("connector.class", lambda: _own(load(PluginKind.SOURCE, str(config["connector.class"])).config_def)),
        (
            SINK_CLASS,
            lambda: load(PluginKind.SINK, str(config.get(SINK_CLASS, DEFAULT_SINK))).config_def.prefixed(SINK_PREFIX),
        ),
    ]
    parts += [(f"transforms.{name}.type", partial(_transform_def, name, config)) for name in _transform_names(config)]
    for key, found in parts:
        try:
            keys = keys.with_keys(found())
        except KeyError:
            continue
        except AcktrailError as error:
            wrong[key] = error.with_hint
    values = [
        replace(value, errors=(wrong[value.name],)) if value.name in wrong else value
        for value in keys.validate(config, hidden)
        if value.name in keys.keys or not wrong
    ]
    known = {value.name for value in values}
    values += [ConfigValue(name=key, errors=(text,)) for key, text in wrong.items() if key not in known]
    return keys, values


def shapes(name: str) -> bool:
    """Whether a key decides what connector this is, and which keys it has: no secret, and no reference to one."""
    return name in {"name", "connector.class", SINK_CLASS, "transforms"} or (
        name.startswith("transforms.") and name.endswith(".type")
    )


def plan(config: Mapping[str, Any], hidden: Collection[str] = ()) -> ConnectorPlan:
    """A connector from its configuration, where references to secrets are resolved already. Raises
    InvalidConfiguration with all that is wrong, or what a plug-in finds wrong; no text of a key shows a value of those
    in `hidden`."""
    _, values = validate(config, hidden)
    errors = {value.name: value.errors for value in values if value.errors}
    if errors:
        raise InvalidConfiguration(errors)
    parsed = {value.name: value.value for value in values}
    source = load(PluginKind.SOURCE, parsed["connector.class"])
    sink = load(PluginKind.SINK, parsed[SINK_CLASS])
    names = _transform_names(config)

    def transforms() -> tuple[Transform, ...]:
        chain = []
        for name in names:
            own = under(parsed, f"transforms.{name}.")
            chain.append(load(PluginKind.TRANSFORM, own.pop("type"))(own))
        return tuple(chain)

    if transforms() and not sink.takes_transformed_logs and source.reads_logs:
        message = (
            f"{parsed[SINK_CLASS]} keeps the records of a log whole: {parsed['connector.class']} cannot be transformed"
        )
        raise InvalidConfiguration({"transforms": (message,)}, hint="transform on the way to another sink")
    timeout = parsed["errors.retry.timeout.ms"]
    return ConnectorPlan(
        name=parsed["name"],
        source=source(
            {key: value for key, value in parsed.items() if not key.startswith((SINK_PREFIX, "transforms."))}
        ),
        sink=sink(under(parsed, SINK_PREFIX)),
        transforms=transforms,
        tasks_max=parsed["tasks.max"],
        flush=FlushPolicy(
            rows=parsed["flush.records"],
            size_bytes=parsed["flush.size.bytes"],
            interval_s=parsed["flush.interval.ms"] / _MS,
        ),
        errors=ErrorPolicy(
            tolerates_refusals=parsed["errors.tolerance"] == "all",
            dead_letter_table=parsed["errors.deadletterqueue.table"],
            timeout_s=None if timeout < 0 else timeout / _MS,
            longest_pause_s=parsed["errors.retry.delay.max.ms"] / _MS,
            restarts=parsed["task.restarts.max"],
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedConfig:
    """`given`: as a person wrote it, `values`: resolved, by key. `wrong`: what is wrong with references, by
    key. `redact` hides every secret of it."""

    given: Texts
    values: Texts
    wrong: Mapping[str, tuple[str, ...]]
    redact: Redaction

    @property
    def hidden(self) -> frozenset[str]:
        """Keys whose values come from a reference."""
        return frozenset(name for name, value in self.values.items() if self.given.get(name) != value)

    def plan(self) -> ConnectorPlan:
        """Raises InvalidConfiguration with all that is wrong; other errors of a plug-in, without the secrets."""
        with self.redact.errors():
            if self.wrong:
                raise InvalidConfiguration(self.wrong)
            try:
                return plan(self.values, self.hidden)
            except InvalidConfiguration:
                raise
            except (ConfigurationError, InputError) as error:
                raise InvalidConfiguration({"connector.class": (error.with_hint,)}) from None

    def validated(self) -> list[tuple[ConfigKey | None, ConfigValue]]:
        """Every key that was given or that there is, with its value as it may be shown."""
        with self.redact.errors():
            keys, found = validate(self.values, self.hidden)
            return [(keys.keys.get(each.name), self._shown(keys.keys.get(each.name), each)) for each in found]

    def _shown(self, key: ConfigKey | None, value: ConfigValue) -> ConfigValue:
        """A key's text as it may be shown, and its errors: those of its reference, else its own."""
        raw, kind = self.given.get(value.name), ConfigType.STRING if key is None else key.type
        if isinstance(raw, str) and is_reference(raw):
            text: str | None = raw
        else:
            text = shown_text(value.name, kind, text_of(kind, value.value))
            text = None if text is None else self.redact(str(text))
        errors = tuple(map(self.redact, self.wrong.get(value.name, ()) or value.errors))
        return ConfigValue(name=self.redact(value.name), value=text, errors=errors)


def resolve_config(given: Texts, providers: Providers) -> ResolvedConfig:
    """Resolve what can be resolved; what cannot is in `wrong`."""
    own = replace(providers, seen=set())
    values, wrong = dict[str, Any](), dict[str, tuple[str, ...]]()
    for name, text in given.items():
        values[name], error = _resolved(name, text, own)
        wrong |= error
    with Redaction(own.seen).errors():
        definitions, _ = validate(values)
    passwords = [name for name, key in definitions.keys.items() if key.type is ConfigType.PASSWORD]
    redact = Redaction([*own.seen, *secrets_of(given, values, passwords)])
    return ResolvedConfig(given=given, values=values, wrong=wrong, redact=redact)


def _resolved(name: str, text: Any, providers: Providers) -> tuple[Any, dict[str, tuple[str, ...]]]:
    """A value and what is wrong with its references."""
    try:
        value = providers.resolve(text) if isinstance(text, str) else text
    except AcktrailError as error:
        return text, {name: (f"{name}: {error.message}",)}
    if shapes(name) and value != text:
        return text, {name: (f"{name}: names of connectors, plug-ins and transforms are no references",)}
    return value, {}


class Redaction:
    """Hides `secrets` in a text, in any case, also where it quotes them as Python, JSON or a URL does."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms: set[str] = set()
        for secret in secrets:
            for form in (secret, secret.strip(), *secret.splitlines()):
                if len(form) >= _SHORTEST:
                    forms |= _forms(form)
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        found = "|".join(map(re.escape, longest_first))
        self._pattern = re.compile(found, re.IGNORECASE) if found else None

    def __call__(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(HIDDEN, text)

    def value(self, value: Any) -> Any:
        """A value of JSON without the secrets in its texts."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return {self.value(key): self.value(each) for key, each in value.items()}
        return [self.value(each) for each in value] if isinstance(value, list | tuple) else value

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Errors within the block come out without the secrets. Raises ConfigurationError in place of one that is not
        acktrail's: a plug-in's own, which may show anything."""
        try:
            yield
        except AcktrailError as error:
            raise self.error(error) from None
        except Exception as error:  # noqa: BLE001  # a plug-in raises what it likes
            raise ConfigurationError(self(f"{type(error).__name__}: {error}")) from None

    def error(self, error: AcktrailError) -> AcktrailError:
        """The same error without the secrets, and without what caused it."""
        error.message, error.hint = self(error.message), self(error.hint)
        error.args = (error.message,)
        error.data = {key: self(value) if isinstance(value, str) else value for key, value in error.data.items()}
        if isinstance(error, InvalidConfiguration):
            error.errors = {self(key): tuple(map(self, texts)) for key, texts in error.errors.items()}
            error.data["errors"] = {key: list(texts) for key, texts in error.errors.items()}
        error.__cause__, error.__suppress_context__ = None, True
        return error


def _forms(text: str) -> set[str]:
    """A text as it is quoted. In some scripts a letter's other case depends on the whole text: both are made."""
    cases = {text, text.upper(), text.lower()}
    return {
        form
        for each in cases
        for form in (
            each,
            repr(each)[1:-1],
            json.dumps(each)[1:-1],
            json.dumps(each, ensure_ascii=False)[1:-1],
            quote(each, safe="", errors="replace"),
            quote(each, errors="replace"),
            quote_plus(each, errors="replace"),
        )
    }


def secrets_of(given: Mapping[str, Any], resolved: Mapping[str, Any], passwords: Collection[str] = ()) -> list[str]:
    """The secrets of a configuration: what a reference led to, and texts of keys whose name or type (`passwords`) says
    that they are secret."""
    found = []
    for name, value in resolved.items():
        is_one = (name in passwords or is_secret(name)) and not is_reference(value)
        if isinstance(value, str) and (given.get(name) != value or is_one):
            found.append(value)
    return found


def shown_text(name: str, kind: ConfigType | None, text: Any) -> Any:
    """A configured text as it may be shown: a password is hidden unless it is a reference to one."""
    if kind is ConfigType.PASSWORD and text and not is_reference(text):
        return HIDDEN
    return shown(name, text)
