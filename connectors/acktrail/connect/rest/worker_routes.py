"""``/``, ``/health`` and ``/admin/loggers``: as Kafka's ``RootResource`` and ``LoggingResource``."""

from __future__ import annotations

import logging
import time
from importlib.metadata import version
from threading import Lock
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response
from starlette.exceptions import HTTPException

from acktrail.connect.rest.answers import Health, LevelChange, LoggerLevel, ServerInfo
from acktrail.connect.rest.calls import Api, LoggerName

router: Final = APIRouter(tags=["Worker"])
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
_MODIFIED: Final[dict[str, int]] = {}
_LOCK: Final = Lock()


@router.get("/", operation_id="serverInfo", summary="Get the worker's version and its Kafka cluster")
async def server_info(api: Api) -> ServerInfo:
    return ServerInfo(version=version("acktrail"), commit="unknown", kafka_cluster_id=api.worker.cluster_id())


@router.get("/health", operation_id="healthCheck", summary="Check that the worker answers")
async def health(api: Api) -> Health:
    await api("health", api.worker.names)
    return Health(status="healthy", message="Worker has completed startup and is ready to handle requests.")


@router.get("/admin/loggers", operation_id="listLoggers", summary="List the loggers whose levels are set")
async def list_loggers() -> dict[str, LoggerLevel]:
    return {name: _level(logger) for name, logger in sorted(_known().items()) if logger.level != logging.NOTSET}


@router.get("/admin/loggers/{logger}", operation_id="getLogger", summary="Get a logger's level")
async def get_logger(name: LoggerName) -> LoggerLevel:
    found = _known().get(name)
    if found is None:
        raise HTTPException(404, f"Logger {name} not found.")
    return _level(found)


@router.put(
    "/admin/loggers/{logger}",
    operation_id="setLevel",
    summary="Set the level of a logger and of those below it",
    response_model=list[str],
    responses={204: {"description": "scope=cluster: this worker is all of it."}},
)
async def set_level(
    name: LoggerName, change: LevelChange, scope: Annotated[str, Query(description="worker or cluster")] = "worker"
) -> list[str] | Response:
    """Names of the loggers whose levels were set."""
    if change.level is None:
        raise HTTPException(400, "Desired 'level' parameter was not specified in request.")
    number = _LEVELS.get(change.level.upper())
    if number is None:
        raise HTTPException(404, f"invalid log level '{change.level}'.")
    with _LOCK:
        changed = sorted(_set(name, number))
    return Response(status_code=204) if scope.lower() == "cluster" else changed


def _set(name: str, number: int) -> list[str]:
    known = _known()
    if name == _ROOT:
        own = known
    else:
        own = {each: logger for each, logger in known.items() if each == name or each.startswith(f"{name}.")}
        own.setdefault(name, logging.getLogger(name))
    for each, logger in own.items():
        if logger.getEffectiveLevel() != number:
            logger.setLevel(number)
            _MODIFIED[each] = int(time.time() * 1_000)
    return list(own)


def _known() -> dict[str, logging.Logger]:
    manager = logging.Logger.manager
    found = {name: each for name, each in dict(manager.loggerDict).items() if isinstance(each, logging.Logger)}
    return {**found, _ROOT: logging.getLogger()}


def _level(logger: logging.Logger) -> LoggerLevel:
    number = logger.getEffectiveLevel()
    word = next((word for word, least in _LEVELS.items() if number >= least), "ALL")
    return LoggerLevel(level=word, last_modified=_MODIFIED.get(logger.name))
