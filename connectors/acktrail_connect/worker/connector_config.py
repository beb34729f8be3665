"""A connector's configuration, with the values of its references: the keys that every connector has, those of its
source, its sink and its transforms.

A configuration is texts by key, as in Kafka Connect. Keys of the sink begin with ``sink.``, those of the transform T
with ``transforms.T.``; all others are the source's or common ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from acktrail.errors import AcktrailError, ConfigurationError, InputError, InvalidConfiguration
from acktrail.secrets import HIDDEN, NoValueThere, Providers, has_reference
from acktrail.text_tables import printable
from acktrail_connect.config_def import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Importance,
    Texts,
    is_reference,
    keys_in,
    names_file,
    takes_reference,
    text_of,
    under,
)
from acktrail_connect.contract import SinkConnector, SourceConnector, Transform
from acktrail_connect.task_execution import FlushPolicy
from acktrail_connect.worker.plugins import PluginKind, load
from acktrail_connect.worker.redaction import Redaction, secrets_of, shown_text

_LOG: Final = logging.getLogger("acktrail.connect")
SINK_PREFIX: Final = "sink."
SINK_CLASS: Final = "sink.class"
DEFAULT_SINK: Final = "DeltaSink"
_MS: Final = 1_000
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


def shown_config(config: Texts) -> dict[str, Any]:
    """A configuration as it may be shown: secrets that are not references are hidden."""
    keys = validate(config)[0].keys
    return {key: shown_text(key, keys[key].type if key in keys else None, text) for key, text in config.items()}


def with_defaults(config: Texts, defaults: Texts) -> dict[str, Any]:
    """The `defaults` that this connector knows, and its own keys: one sink's keys mean nothing to another."""
    keys, _ = validate({**defaults, **config})
    prefixes = tuple(keys.open_prefixes)
    known = {key: text for key, text in defaults.items() if key in keys.keys or key.startswith(prefixes)}
    return {**known, **config}


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


def resolve_config(
    given: Texts,
    providers: Providers,
    *,
    of_operator: Collection[str] = (),
    not_kept: Mapping[str, tuple[str, ...]] | None = None,
    looks: bool = True,
) -> ResolvedConfig:
    """Resolve what can be resolved; what cannot is in `wrong`. Texts of the keys `of_operator` are from files of an
    operator. Secrets in `not_kept` are left out, for these reasons. `looks` False: no other reference is followed, so
    that no caller learns which files there are."""
    with Redaction().errors():
        definitions, _ = validate(given)
    kinds = {name: key.type for name, key in definitions.keys.items()}
    own = replace(providers, seen=set())
    not_kept = not_kept or {}
    given = {**given, **dict.fromkeys(not_kept, HIDDEN)}
    values, wrong = dict[str, Any](), dict[str, tuple[str, ...]]()
    for name, text in given.items():
        try:
            is_free = name in of_operator
            values[name] = _resolved(name, text, kinds.get(name), own, is_free=is_free, looks=looks or is_free)
        except ConfigurationError as error:
            values[name], wrong[name] = text, (f"{name}: {error.with_hint}",)
    passwords = [name for name, kind in kinds.items() if kind is ConfigType.PASSWORD]
    redact = Redaction([*own.seen, *secrets_of(given, values, passwords)])
    return ResolvedConfig(given=given, values=values, wrong={**wrong, **not_kept}, redact=redact)


def _resolved(
    name: str, text: Any, kind: ConfigType | None, providers: Providers, *, is_free: bool, looks: bool
) -> Any:
    """A value. Raises ConfigurationError: it has a reference that it must not have, or that leads nowhere; it names a
    file that no reference may lead to."""
    if text == HIDDEN:
        raise ConfigurationError(
            f"{HIDDEN} stands for a stored secret, and this connector has none here: send the secret"
        )
    value = text
    if isinstance(text, str) and has_reference(text):
        if shapes(name):
            raise ConfigurationError("names of connectors, plug-ins and transforms cannot be references")
        if not is_free and not takes_reference(name, kind):
            message = "only passwords and files of keys or certificates may be references: send the text"
            raise ConfigurationError(message)
        if not looks:
            providers.check(text)
            return text
        value = _led_to(name, text, providers.unbounded() if is_free else providers)
    if names_file(name) and value and isinstance(value, str):
        (providers.unbounded() if is_free else providers).check_file(value, looks=looks)
    return value


def _led_to(name: str, text: str, providers: Providers) -> str:
    try:
        return providers.resolve(text)
    except NoValueThere as error:  # one answer for all: a caller must not learn what is there
        _LOG.warning("%s: %s", printable(name), printable(error.message), extra={"event": "no_value_there"})
        raise ConfigurationError("its reference gives no value; the worker's log has the reason") from None
