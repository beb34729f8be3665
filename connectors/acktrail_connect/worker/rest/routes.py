"""``/``, ``/health``, ``/connectors`` and ``/connector-plugins``, as Kafka's resources of these paths: a route for each
of its methods."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial, wraps
from importlib.metadata import version
from typing import Annotated, Any, Final
from urllib.parse import quote, unquote

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import AfterValidator
from starlette.exceptions import HTTPException

from acktrail.errors import UnknownName
from acktrail.text_parsing import parse_json
from acktrail_connect.config_def import JAVA_BLANK, ConfigKey, shown, text_of
from acktrail_connect.worker.plugins import PluginKind, definition_of, installed
from acktrail_connect.worker.rest import answers
from acktrail_connect.worker.rest.answers import Calls
from acktrail_connect.worker.task_thread import RunState

_ONE: Final = "/connectors/{connector}"
_TASK: Final = f"{_ONE}/tasks/{{task}}"
_PLUGINS: Final = "/connector-plugins"
_PLUGIN: Final = f"{_PLUGINS}/{{plugin}}/config"
_SUFFIX: Final = "Connector"


class _StrictRequest(Request):
    """A request whose body is JSON that all programs understand alike."""

    async def json(self) -> Any:
        try:
            return parse_json(await self.body())
        except ValueError as error:
            raise HTTPException(400, f"the body cannot be read: {error}") from None


class WorkerRoute(APIRoute):
    """A route whose function is called by ``Calls.in_time``. It has the parameter `api`, and `name` where it is about a
    connector, or `new`, which has that name."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **settings: Any) -> None:
        @wraps(endpoint)
        async def answer(*, api: Calls, **given: Any) -> Any:
            call = partial(endpoint, api=api, **given)
            name = given["new"].name.strip(JAVA_BLANK) if "new" in given else given.get("name", "")
            return await api.in_time(endpoint.__name__, name, call)

        is_made_again = inspect.iscoroutinefunction(endpoint)  # where an application takes over the route
        super().__init__(path, endpoint if is_made_again else answer, **settings)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(_StrictRequest(request.scope, request.receive))

        return strict


def _unquoted(segment: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("a name is UTF-8") from None


def _calls(request: Request) -> Calls:
    calls = request.app.state.calls
    assert isinstance(calls, Calls)
    return calls


Api = Annotated[Calls, Depends(_calls)]
Name = Annotated[
    str, Path(alias="connector", description="The connector's name, URL-encoded."), AfterValidator(_unquoted)
]
PluginName = Annotated[str, Path(alias="plugin", description="The plug-in's name."), AfterValidator(_unquoted)]
router: Final = APIRouter(route_class=WorkerRoute)


@router.get("/")
def server_info(api: Api) -> answers.ServerInfo:
    """The worker's version and its Kafka cluster."""
    return answers.ServerInfo(version=version("acktrail"), commit="unknown", kafka_cluster_id=api.worker.cluster_id())


@router.get("/health")
def health_check(api: Api) -> dict[str, str]:
    """Whether the worker answers."""
    api.worker.names()
    return {"status": "healthy", "message": "Worker has completed startup and is ready to handle requests."}


@router.get("/connectors")
def list_connectors(api: Api, expand: Annotated[list[str] | None, Query()] = None) -> Any:
    """Names of the connectors; with ?expand=status&expand=info an object by name."""
    if expand is None:
        return api.worker.names()
    found: dict[str, Any] = {}
    for name in api.worker.names():
        try:
            status = {"status": _without_nulls(get_status(api, name))} if "status" in expand else {}
            info = {"info": get_connector(api, name)} if "info" in expand else {}
        except UnknownName:  # deleted meanwhile
            continue
        found[name] = {**status, **info}
    return found


def _without_nulls(status: answers.ConnectorStatus) -> dict[str, Any]:
    return status.model_dump(mode="json", exclude_none=True)


@router.post("/connectors", status_code=201)
def create_connector(
    api: Api, new: answers.NewConnector, request: Request, response: Response
) -> answers.ConnectorInfo:
    """Create a connector. initial_state is RUNNING, PAUSED or STOPPED."""
    name = new.name.strip(JAVA_BLANK)
    api.worker.create(name, _named(name, new.config), RunState(new.initial_state))
    api.worker.await_tasks(name)
    response.headers["Location"] = _location(request, name)
    return get_connector(api, name)


def _named(name: str, config: answers.ConfigTexts) -> answers.ConfigTexts:
    named = config.get("name", name)
    if named != name:
        message = f"Connector name configuration ({named}) doesn't match connector name in the URL ({name})"
        raise HTTPException(400, message)
    return {**config, "name": name}


def _location(request: Request, name: str) -> str:
    """As the caller reached the worker."""
    return f"{request.url.scheme}://{request.url.netloc}/connectors/{quote(name, safe='')}"


@router.get(_ONE)
def get_connector(api: Api, name: Name) -> answers.ConnectorInfo:
    """A connector's configuration and tasks."""
    tasks = [answers.TaskId(connector=name, task=number) for number in range(len(api.worker.tasks(name)))]
    return answers.ConnectorInfo(name=name, config=api.worker.config(name), tasks=tasks)


@router.delete(_ONE, status_code=204)
def delete_connector(api: Api, name: Name) -> None:
    """Delete a connector. What it wrote stays."""
    api.worker.delete(name)


@router.get(f"{_ONE}/config")
def get_connector_config(api: Api, name: Name) -> dict[str, Any]:
    """A connector's configuration. Secrets that are not references are [hidden]."""
    return api.worker.config(name)


@router.put(f"{_ONE}/config", responses={201: {"description": "It is new.", "model": answers.ConnectorInfo}})
def put_connector_config(
    api: Api, name: Name, config: answers.ConfigTexts, request: Request, response: Response
) -> answers.ConnectorInfo:
    """Create a connector, or replace its configuration. [hidden] keeps the value that the worker has."""
    if api.worker.put(name, _named(name, config)):
        response.status_code = 201
        response.headers["Location"] = _location(request, name)
    api.worker.await_tasks(name)
    return get_connector(api, name)


@router.patch(f"{_ONE}/config")
def patch_connector_config(api: Api, name: Name, changes: answers.ConfigChanges) -> answers.ConnectorInfo:
    """Change keys of a configuration; null removes a key."""
    api.worker.patch(name, changes)
    api.worker.await_tasks(name)
    return get_connector(api, name)


@router.get(f"{_ONE}/status", response_model_exclude_none=True)
def get_status(api: Api, name: Name) -> answers.ConnectorStatus:
    """The states of a connector and its tasks."""
    state = api.worker.status(name)
    own = answers.ConnectorState(
        state=state.state, worker_id=api.worker_id, trace=state.trace or None, version=api.worker.version(name)
    )
    tasks = [get_task_status(api, name, number) for number in range(len(api.worker.tasks(name)))]
    return answers.ConnectorStatus(name=name, connector=own, tasks=tasks)


@router.get(f"{_TASK}/status", response_model_exclude_none=True)
def get_task_status(api: Api, name: Name, task: int) -> answers.TaskState:
    """A task's state."""
    tasks = api.worker.tasks(name)
    if not 0 <= task < len(tasks):
        raise UnknownName("task", f"{name}-{task}")
    status, plugin = tasks[task].status, api.worker.version(name)
    return answers.TaskState(
        id=task, state=status.state, worker_id=api.worker_id, trace=status.trace or None, version=plugin
    )


@router.post(
    f"{_ONE}/restart",
    status_code=204,
    response_model=None,
    responses={202: {"description": "The states, with what restarts.", "model": answers.ConnectorStatus}},
)
def restart_connector(
    api: Api,
    name: Name,
    response: Response,
    *,
    include_tasks: Annotated[bool, Query(alias="includeTasks")] = False,
    only_failed: Annotated[bool, Query(alias="onlyFailed")] = False,
) -> Any:
    """Restart a connector; with includeTasks or onlyFailed the answer is 202 with the states (KIP-745)."""
    api.worker.restart(name, include_tasks=include_tasks, only_failed=only_failed)
    if not (include_tasks or only_failed):
        return Response(status_code=204)
    response.status_code = 202
    return _without_nulls(get_status(api, name))


@router.put(f"{_ONE}/pause", status_code=202, response_model=None)
def pause_connector(api: Api, name: Name) -> Response:
    """Pause a connector. Its tasks end, and are still listed."""
    return _aim(api, name, RunState.PAUSED, 202)


@router.put(f"{_ONE}/resume", status_code=202, response_model=None)
def resume_connector(api: Api, name: Name) -> Response:
    """Resume a paused or stopped connector."""
    return _aim(api, name, RunState.RUNNING, 202)


@router.put(f"{_ONE}/stop", status_code=204, response_model=None)
def stop_connector(api: Api, name: Name) -> Response:
    """Stop a connector. It then has no tasks, and its offsets can be changed."""
    return _aim(api, name, RunState.STOPPED, 204)


def _aim(api: Calls, name: str, target: RunState, code: int) -> Response:
    api.worker.aim(name, target)
    return Response(status_code=code)


@router.get(f"{_ONE}/tasks")
def get_tasks(api: Api, name: Name) -> list[answers.TaskInfo]:
    """A connector's tasks, each with its configuration and its part of the work."""
    redaction, common = api.worker.redaction(name), api.worker.config(name)
    found = []
    for number, task in enumerate(api.worker.tasks(name)):
        own = {key: shown(key, value) for key, value in task.config.items()}
        texts = {
            key: value if isinstance(value, str) else json.dumps(value) for key, value in {**common, **own}.items()
        }
        task_id = answers.TaskId(connector=name, task=number)
        found.append(answers.TaskInfo(id=task_id, config=redaction.value(texts)))
    return found


@router.post(f"{_TASK}/restart", status_code=204)
def restart_task(api: Api, name: Name, task: int) -> None:
    """Restart a task. The call returns at once; the states show when the task runs."""
    api.worker.restart_task(name, task)


@router.get(f"{_ONE}/offsets")
def get_offsets(api: Api, name: Name) -> answers.ConnectorOffsets:
    """The position of each source partition, as committed with the rows."""
    found = [{"partition": partition, "offset": offset} for partition, offset in api.worker.offsets(name)]
    return answers.ConnectorOffsets(offsets=api.worker.redaction(name).value(found))


@router.patch(f"{_ONE}/offsets")
def alter_offsets(api: Api, name: Name, offsets: answers.ConnectorOffsets) -> dict[str, str]:
    """Change positions, all or none. 400 unless the connector is stopped, or if rows would be doubled."""
    if not offsets.offsets:
        raise HTTPException(400, "Partitions / offsets need to be provided for an alter offsets request")
    api.worker.alter_offsets(name, [(each.partition, each.offset) for each in offsets.offsets])
    return {"message": "The offsets for this connector have been altered successfully"}


@router.delete(f"{_ONE}/offsets")
def reset_offsets(api: Api, name: Name) -> dict[str, str]:
    """Remove all positions. 400 unless the connector is stopped, or if rows would be doubled."""
    api.worker.reset_offsets(name)
    return {"message": "The offsets for this connector have been reset successfully"}


@router.get(f"{_ONE}/topics")
def get_active_topics(api: Api, name: Name) -> dict[str, dict[str, list[str]]]:
    """The tables that a connector writes; Connect calls them topics."""
    return {name: {"topics": api.worker.tables(name)}}


@router.get(_PLUGINS)
def list_connector_plugins(
    api: Api,  # noqa: ARG001  # every route has it
    *,
    connectors_only: Annotated[bool, Query(alias="connectorsOnly")] = True,
) -> list[answers.PluginInfo]:
    """The installed sources and sinks; with ?connectorsOnly=false transforms, too."""
    return [
        answers.PluginInfo(class_name=each.name, type=each.kind.value, version=each.version)
        for each in installed()
        if each.kind is not PluginKind.TRANSFORM or not connectors_only
    ]


@router.get(_PLUGIN)
def get_plugin_config(api: Api, plugin: PluginName) -> list[answers.KeyDefinition]:  # noqa: ARG001  # every route has it
    """The configuration keys of a plug-in."""
    try:
        return list(_definitions(definition_of(plugin).keys.values()))
    except UnknownName:
        raise HTTPException(404, f"Unknown plugin {plugin}.") from None


@router.put(f"{_PLUGIN}/validate")
def validate_connector_config(api: Api, plugin: PluginName, config: answers.ConfigTexts) -> answers.ConfigInfos:
    """Check a configuration: every key, its value and its errors. Nothing is created."""
    given = config.get("connector.class")
    if given is None:
        raise HTTPException(400, "Connector config contains no connector type")
    if not _normalized(given).endswith(_normalized(plugin)):
        raise HTTPException(400, f"Included connector type {given} does not match request type {plugin}")
    found = api.worker.validate(config)
    definitions = {each.name: each for each in _definitions(key for key, _ in found if key)}
    return answers.ConfigInfos(
        name=given,
        error_count=sum(len(each.errors) for _, each in found),
        groups=list(dict.fromkeys(each.group for each in definitions.values() if each.group)),
        configs=[
            answers.ValidatedConfig(
                definition=definitions.get(each.name),
                value=answers.KeyValue(name=each.name, value=each.value, errors=list(each.errors)),
            )
            for _, each in found
        ],
    )


def _normalized(name: str) -> str:
    return name.removesuffix(_SUFFIX) or name


def _definitions(keys: Iterable[ConfigKey]) -> Iterator[answers.KeyDefinition]:
    places: Counter[str] = Counter()
    for key in keys:
        places[key.group] += 1
        yield answers.KeyDefinition(
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
