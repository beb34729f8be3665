"""``/connectors``: as Kafka's ``ConnectorsResource``."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from starlette.exceptions import HTTPException

from acktrail.connect.config_values import JAVA_BLANK, shown
from acktrail.connect.rest.answers import (
    ActiveTopics,
    ConfigChanges,
    ConfigTexts,
    ConnectorInfo,
    ConnectorOffsets,
    ConnectorState,
    ConnectorStatus,
    Message,
    NewConnector,
    TaskId,
    TaskInfo,
    TaskState,
)
from acktrail.connect.rest.calls import Api, Calls, Name
from acktrail.connect.runtime.worker_answers import OffsetEntry, TargetState
from acktrail.errors import UnknownName

router: Final = APIRouter(prefix="/connectors", tags=["Connectors"])
_ALL: Final = "all connectors"


@router.get("", operation_id="listConnectors", summary="List the connectors")
async def list_connectors(api: Api, expand: Annotated[list[str] | None, Query()] = None) -> Any:
    """Names; with ?expand=status&expand=info an object by name."""
    if expand is None:
        return await api(_ALL, api.worker.names)
    return await api(_ALL, partial(_expanded, api, expand))


def _expanded(api: Calls, expand: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in api.worker.names():
        parts: dict[str, Any] = {}
        try:
            if "status" in expand:
                parts["status"] = _dumped(_status(api, name))
            if "info" in expand:
                parts["info"] = _dumped(_info(api, name))
        except UnknownName:  # deleted meanwhile
            continue
        found[name] = parts
    return found


def _dumped(model: ConnectorStatus | ConnectorInfo) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude_none=isinstance(model, ConnectorStatus))


@router.post(
    "", operation_id="createConnector", summary="Create a connector", status_code=201, response_model=ConnectorInfo
)
async def create_connector(api: Api, new: NewConnector, request: Request, response: Response) -> ConnectorInfo:
    """Its configuration is validated first; initial_state RUNNING, PAUSED or STOPPED."""
    name = new.name.strip(JAVA_BLANK)
    config = _named(name, new.config)
    target = TargetState.STARTED if new.initial_state is None else new.initial_state.target
    await api(name, partial(api.worker.create, name, config, target))
    response.headers["Location"] = _location(request, name)
    return await api(name, partial(_info, api, name))


def _named(name: str, config: ConfigTexts) -> ConfigTexts:
    named = config.get("name", name)
    if named != name:
        raise HTTPException(
            400, f"Connector name configuration ({named}) doesn't match connector name in the URL ({name})"
        )
    return {**config, "name": name}


def _location(request: Request, name: str) -> str:
    """As the caller reached the worker."""
    return f"{request.url.scheme}://{request.url.netloc}/connectors/{quote(name, safe='')}"


@router.get("/{connector}", operation_id="getConnector", summary="Get a connector's configuration and tasks")
async def get_connector(api: Api, name: Name) -> ConnectorInfo:
    return await api(name, partial(_info, api, name))


def _info(api: Calls, name: str) -> ConnectorInfo:
    tasks = [TaskId(connector=name, task=number) for number in range(len(api.worker.tasks(name)))]
    return ConnectorInfo(name=name, config=api.worker.config(name), tasks=tasks)


@router.delete("/{connector}", operation_id="deleteConnector", summary="Delete a connector", status_code=204)
async def delete_connector(api: Api, name: Name) -> None:
    """What it wrote stays."""
    await api(name, partial(api.worker.delete, name))


@router.get("/{connector}/config", operation_id="getConnectorConfig", summary="Get a connector's configuration")
async def get_config(api: Api, name: Name) -> dict[str, Any]:
    """Secrets that are not references are shown as [hidden]; [hidden] sent back keeps the value."""
    return await api(name, partial(api.worker.config, name))


@router.put(
    "/{connector}/config",
    operation_id="putConnectorConfig",
    summary="Create a connector, or replace its configuration",
    response_model=ConnectorInfo,
    responses={201: {"description": "It is new.", "model": ConnectorInfo}},
)
async def put_config(api: Api, name: Name, config: ConfigTexts, request: Request, response: Response) -> ConnectorInfo:
    is_new = await api(name, partial(api.worker.put, name, _named(name, config)))
    if is_new:
        response.status_code = 201
        response.headers["Location"] = _location(request, name)
    return await api(name, partial(_info, api, name))


@router.patch("/{connector}/config", operation_id="patchConnectorConfig", summary="Change keys of a configuration")
async def patch_config(api: Api, name: Name, changes: ConfigChanges) -> ConnectorInfo:
    """null removes a key."""
    await api(name, partial(api.worker.patch, name, changes))
    return await api(name, partial(_info, api, name))


@router.get(
    "/{connector}/status",
    operation_id="getConnectorStatus",
    summary="Get the states of a connector and its tasks",
    response_model_exclude_none=True,
)
async def get_status(api: Api, name: Name) -> ConnectorStatus:
    return await api(f"status of {name}", partial(_status, api, name))


def _status(api: Calls, name: str) -> ConnectorStatus:
    state = api.worker.status(name)
    return ConnectorStatus(
        name=name,
        connector=ConnectorState(
            state=state.state, worker_id=api.worker_id, trace=state.trace or None, version=api.worker.version(name)
        ),
        tasks=[_task_state(api, name, number) for number in range(len(api.worker.tasks(name)))],
    )


def _task_state(api: Calls, name: str, number: int) -> TaskState:
    tasks = api.worker.tasks(name)
    if not 0 <= number < len(tasks):
        raise UnknownName("task", f"{name}-{number}")
    status = tasks[number][1].status
    return TaskState(
        id=number,
        state=status.state,
        worker_id=api.worker_id,
        trace=status.trace or None,
        version=api.worker.version(name),
    )


@router.post(
    "/{connector}/restart",
    operation_id="restartConnector",
    summary="Restart a connector",
    status_code=204,
    response_model=None,
    responses={202: {"description": "The states, with what restarts.", "model": ConnectorStatus}},
)
async def restart(
    api: Api,
    name: Name,
    response: Response,
    *,
    include_tasks: Annotated[bool, Query(alias="includeTasks")] = False,
    only_failed: Annotated[bool, Query(alias="onlyFailed")] = False,
) -> Any:
    """With one of the parameters the answer is 202 and the states (KIP-745)."""
    await api(name, partial(api.worker.restart, name, include_tasks=include_tasks, only_failed=only_failed))
    if not (include_tasks or only_failed):
        return Response(status_code=204)
    response.status_code = 202
    return (await api(name, partial(_status, api, name))).model_dump(mode="json", exclude_none=True)


@router.put("/{connector}/pause", operation_id="pauseConnector", summary="Pause a connector", status_code=202)
async def pause(api: Api, name: Name) -> Response:
    """Its tasks end, and are there still."""
    return await _aim(api, name, TargetState.PAUSED, 202)


@router.put("/{connector}/resume", operation_id="resumeConnector", summary="Resume a connector", status_code=202)
async def resume(api: Api, name: Name) -> Response:
    """From PAUSED or STOPPED."""
    return await _aim(api, name, TargetState.STARTED, 202)


@router.put("/{connector}/stop", operation_id="stopConnector", summary="Stop a connector", status_code=204)
async def stop(api: Api, name: Name) -> Response:
    """It has no tasks then, and its offsets can be changed."""
    return await _aim(api, name, TargetState.STOPPED, 204)


async def _aim(api: Calls, name: str, target: TargetState, code: int) -> Response:
    await api(name, partial(api.worker.aim, name, target))
    return Response(status_code=code)


@router.get("/{connector}/tasks", operation_id="getTasks", summary="List a connector's tasks and their configurations")
async def get_tasks(api: Api, name: Name) -> list[TaskInfo]:
    return await api(name, partial(_task_infos, api, name))


def _task_infos(api: Calls, name: str) -> list[TaskInfo]:
    redaction = api.worker.redaction(name)
    return [
        TaskInfo(
            id=TaskId(connector=name, task=number),
            config=redaction.value({key: shown(key, value) for key, value in config.items()}),
        )
        for number, (config, _) in enumerate(api.worker.tasks(name))
    ]


@router.get(
    "/{connector}/tasks/{task}/status",
    operation_id="getTaskStatus",
    summary="Get a task's state",
    response_model_exclude_none=True,
)
async def get_task_status(api: Api, name: Name, task: int) -> TaskState:
    return await api(f"status of {name}", partial(_task_state, api, name, task))


@router.post("/{connector}/tasks/{task}/restart", operation_id="restartTask", summary="Restart a task", status_code=204)
async def restart_task(api: Api, name: Name, task: int) -> None:
    await api(name, partial(api.worker.restart_task, name, task))


@router.get("/{connector}/offsets", operation_id="getOffsets", summary="Get a connector's offsets")
async def get_offsets(api: Api, name: Name) -> ConnectorOffsets:
    """Where the reading of each source partition continues, as committed with the rows."""
    found = await api(name, partial(api.worker.offsets, name))
    entries = api.worker.redaction(name).value([{"partition": each.partition, "offset": each.offset} for each in found])
    return ConnectorOffsets(offsets=entries)


@router.patch("/{connector}/offsets", operation_id="alterOffsets", summary="Change offsets of a stopped connector")
async def alter_offsets(api: Api, name: Name, offsets: ConnectorOffsets) -> Message:
    """All or none; 400 unless the connector is stopped, and where rows would be doubled."""
    if not offsets.offsets:
        raise HTTPException(400, "Partitions / offsets need to be provided for an alter offsets request")
    entries = [OffsetEntry(partition=each.partition, offset=each.offset) for each in offsets.offsets]
    await api(name, partial(api.worker.alter_offsets, name, entries))
    return Message(message="The offsets for this connector have been altered successfully")


@router.delete("/{connector}/offsets", operation_id="resetOffsets", summary="Remove the offsets of a stopped connector")
async def reset_offsets(api: Api, name: Name) -> Message:
    """400 unless the connector is stopped, and where rows would be doubled."""
    await api(name, partial(api.worker.reset_offsets, name))
    return Message(message="The offsets for this connector have been reset successfully")


@router.get("/{connector}/topics", operation_id="getActiveTopics", summary="List the tables that a connector writes")
async def get_topics(api: Api, name: Name) -> dict[str, ActiveTopics]:
    """Under the word topics, as in Connect."""
    return {name: ActiveTopics(topics=await api(name, partial(api.worker.tables, name)))}
