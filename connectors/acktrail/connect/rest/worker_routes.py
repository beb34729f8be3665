"""``/``, ``/health``, ``/admin/loggers`` and ``/connector-plugins``, as Kafka's resources of these paths."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from importlib.metadata import version
from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.exceptions import HTTPException

from acktrail.connect.config_def import ConfigKey
from acktrail.connect.config_values import text_of
from acktrail.connect.plugins import PluginKind, definition_of, installed
from acktrail.connect.rest.answers import (
    ConfigInfos,
    ConfigTexts,
    Health,
    KeyDefinition,
    KeyValue,
    LevelChange,
    LoggerLevel,
    PluginInfo,
    ServerInfo,
    ValidatedConfig,
)
from acktrail.connect.rest.calls import Api, LoggerName, PluginName
from acktrail.errors import UnknownName

router: Final = APIRouter()
_ROOT: Final = "root"
_LEVELS: Final = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG - 5,
    "ALL": 1,
}
"""Kafka's words for the numbers of Python's levels."""
_PLUGINS: Final = "/connector-plugins"
_SUFFIX: Final = "Connector"


@router.get("/", tags=["Worker"], operation_id="serverInfo", summary="Get the worker's version and its Kafka cluster")
async def server_info(api: Api) -> ServerInfo:
    return ServerInfo(version=version("acktrail"), commit="unknown", kafka_cluster_id=api.worker.cluster_id())


@router.get("/health", tags=["Worker"], operation_id="healthCheck", summary="Check that the worker answers")
async def health(api: Api) -> Health:
    await api("health", api.worker.names)
    return Health(status="healthy", message="Worker has completed startup and is ready to handle requests.")


@router.get(
    "/admin/loggers", tags=["Worker"], operation_id="listLoggers", summary="List the loggers whose levels are set"
)
async def list_loggers() -> dict[str, LoggerLevel]:
    return {name: _level(logger) for name, logger in sorted(_known().items()) if logger.level != logging.NOTSET}


@router.get("/admin/loggers/{logger}", tags=["Worker"], operation_id="getLogger", summary="Get a logger's level")
async def get_logger(name: LoggerName) -> LoggerLevel:
    found = _known().get(name)
    if found is None:
        raise HTTPException(404, f"Logger {name} not found.")
    return _level(found)


@router.put(
    "/admin/loggers/{logger}",
    tags=["Worker"],
    operation_id="setLevel",
    summary="Set the level of a logger and of those below it",
)
async def set_level(name: LoggerName, change: LevelChange) -> list[str]:
    """Names of the loggers whose levels were set."""
    if change.level is None:
        raise HTTPException(400, "Desired 'level' parameter was not specified in request.")
    number = _LEVELS.get(change.level.upper())
    if number is None:
        raise HTTPException(404, f"invalid log level '{change.level}'.")
    return sorted(_set(name, number))


def _set(name: str, number: int) -> list[str]:
    known = _known()
    if name == _ROOT:
        own = known
    else:
        own = {each: logger for each, logger in known.items() if each == name or each.startswith(f"{name}.")}
        own.setdefault(name, logging.getLogger(name))
    for logger in own.values():
        logger.setLevel(number)
    return list(own)


def _known() -> dict[str, logging.Logger]:
    manager = logging.Logger.manager
    found = {name: each for name, each in dict(manager.loggerDict).items() if isinstance(each, logging.Logger)}
    return {**found, _ROOT: logging.getLogger()}


def _level(logger: logging.Logger) -> LoggerLevel:
    number = logger.getEffectiveLevel()
    word = next((word for word, least in _LEVELS.items() if number >= least), "ALL")
    return LoggerLevel(level=word)


@router.get(_PLUGINS, tags=["Plug-ins"], operation_id="listConnectorPlugins", summary="List the installed plug-ins")
async def list_plugins(
    api: Api, *, connectors_only: Annotated[bool, Query(alias="connectorsOnly")] = True
) -> list[PluginInfo]:
    """Sources and sinks; with ?connectorsOnly=false transforms as well."""
    found = await api("plug-ins", installed)
    kinds = (PluginKind.SOURCE, PluginKind.SINK)
    return [
        PluginInfo(class_name=each.name, type=each.kind.value, version=each.version)
        for each in found
        if each.kind in kinds or not connectors_only
    ]


@router.get(
    f"{_PLUGINS}/{{plugin}}/config",
    tags=["Plug-ins"],
    operation_id="getPluginConfig",
    summary="Get the configuration keys of a plug-in",
)
async def plugin_config(api: Api, name: PluginName) -> list[KeyDefinition]:
    try:
        keys = await api("plug-ins", partial(definition_of, name))
    except UnknownName:
        raise HTTPException(404, f"Unknown plugin {name}.") from None
    return _definitions(list(keys.keys.values()))


@router.put(
    f"{_PLUGINS}/{{plugin}}/config/validate",
    tags=["Plug-ins"],
    operation_id="validateConnectorConfig",
    summary="Validate a connector's configuration",
)
async def validate(api: Api, name: PluginName, config: ConfigTexts) -> ConfigInfos:
    """Every key, what it is, its value and what is wrong with it. Nothing is made."""
    given = config.get("connector.class")
    if given is None:
        raise HTTPException(400, "Connector config contains no connector type")
    if not _normalized(given).endswith(_normalized(name)):
        raise HTTPException(400, f"Included connector type {given} does not match request type {name}")
    found = await api("validation", partial(api.worker.validate, config))
    definitions = {each.name: each for each in _definitions([key for key, _ in found if key])}
    return ConfigInfos(
        name=given,
        error_count=sum(len(each.errors) for _, each in found),
        groups=list(dict.fromkeys(each.group for each in definitions.values() if each.group)),
        configs=[
            ValidatedConfig(
                definition=definitions.get(each.name),
                value=KeyValue(name=each.name, value=each.value, errors=list(each.errors)),
            )
            for _, each in found
        ],
    )


def _normalized(name: str) -> str:
    return name.removesuffix(_SUFFIX) or name


def _definitions(keys: list[ConfigKey]) -> list[KeyDefinition]:
    places: Counter[str] = Counter()
    found = []
    for key in keys:
        places[key.group] += 1
        found.append(
            KeyDefinition(
                name=key.name,
                type=key.type.value,
                required=key.is_required,
                default_value=None if key.is_required else text_of(key.type, key.default),
                importance=key.importance.value,
                documentation=key.documentation,
                group=key.group,
                order_in_group=places[key.group],
                display_name=key.name,
            )
        )
    return found
