"""One connector's configuration: the keys that every connector has, those of its source, its sink and its transforms.

A configuration is texts by key, as in Kafka Connect. Keys of the sink begin with ``sink.``, those of the transform T
with ``transforms.T.``; all others are the source's or common ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from acktrail.connect import plugins
from acktrail.connect.config_def import ConfigDef, ConfigKey, ConfigType, ConfigValue, Importance, keys_in, under
from acktrail.connect.contract import SinkConnector, SourceConnector, Transform
from acktrail.connect.runtime.task_execution import FlushPolicy
from acktrail.errors import AcktrailError, InvalidConfiguration

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
        keys = keys.with_keys(plugins.transform_class(str(plugin)).config_def)
    return keys.prefixed(prefix)


def validate(config: Mapping[str, Any], hidden: Collection[str] = ()) -> tuple[ConfigDef, list[ConfigValue]]:
    """Every key with its value and what is wrong with it, without the values of keys in `hidden`. A plug-in that is not
    there is an error of its key, and the keys that it would have are not known."""
    keys, wrong = COMMON, dict[str, str]()
    parts: list[tuple[str, Callable[[], ConfigDef]]] = [
        ("connector.class", lambda: _own(plugins.source_class(str(config["connector.class"])).config_def)),
        (
            SINK_CLASS,
            lambda: plugins.sink_class(str(config.get(SINK_CLASS, DEFAULT_SINK))).config_def.prefixed(SINK_PREFIX),
        ),
    ]
    parts += [(f"transforms.{name}.type", partial(_transform_def, name, config)) for name in _transform_names(config)]
    for key, found in parts:
        try:
            keys = keys.with_keys(found())
        except KeyError:
            continue
        except AcktrailError as error:
            wrong[key] = error.message + (f"; {error.hint}" if error.hint else "")
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
    source = plugins.source_class(parsed["connector.class"])
    sink = plugins.sink_class(parsed[SINK_CLASS])
    names = _transform_names(config)

    def transforms() -> tuple[Transform, ...]:
        chain = []
        for name in names:
            own = under(parsed, f"transforms.{name}.")
            chain.append(plugins.transform_class(own.pop("type"))(own))
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
