"""The REST interface of a worker: routes, errors in Connect's shape, the address and who may call there."""

from __future__ import annotations

from http import HTTPStatus
from importlib.metadata import version
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from acktrail.errors import AcktrailError, ConfigurationError, InputError, InvalidConfiguration, UnknownName
from acktrail.serving.http_server import Access, Guard, HttpServer, is_loopback
from acktrail_connect.worker.rest.answers import Calls, Problem
from acktrail_connect.worker.rest.routes import router
from acktrail_connect.worker.worker import ConnectorConflict, Worker
from acktrail_connect.worker.worker_config import WorkerConfig

_LIST_OF_ERRORS: Final = (
    "You can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"
)


def application(calls: Calls) -> FastAPI:
    """The REST interface of a worker."""
    app = FastAPI(
        title="acktrail connect",
        description="The worker's REST interface, as Kafka Connect's.",
        version=version("acktrail"),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_operation,
        responses={code: {"model": Problem} for code in (400, 401, 403, 404, 409, 500)},
    )
    app.state.calls = calls
    app.include_router(router)
    app.add_exception_handler(AcktrailError, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)
    return app


def _operation(route: APIRoute) -> str:
    """As Kafka names its operations: ``list_connectors`` is listConnectors."""
    first, *others = route.name.split("_")
    return first + "".join(map(str.capitalize, others))


def _problem(code: int, message: str) -> JSONResponse:
    return JSONResponse(Problem(error_code=code, message=message).model_dump(), status_code=code)


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, AcktrailError)
    return _problem(*_code_and_message(error))


def _code_and_message(error: AcktrailError) -> tuple[int, str]:
    if isinstance(error, UnknownName) and error.kind in {"connector", "task"}:
        return 404, f"{error.kind.capitalize()} {error.name} not found"
    if isinstance(error, ConnectorConflict):
        return 409, error.message
    if isinstance(error, InvalidConfiguration):
        texts = [text for each in error.errors.values() for text in each]
        begin = f"Connector configuration is invalid and contains the following {len(texts)} error(s):"
        return 400, "\n".join([begin, *texts, _LIST_OF_ERRORS])
    return 400 if isinstance(error, InputError) else 500, error.with_hint


async def _malformed(_: Request, error: Exception) -> JSONResponse:
    """What was sent is not shown: it may have secrets."""
    assert isinstance(error, RequestValidationError)
    places = (".".join(map(str, each["loc"])) + f": {each['msg']}" for each in error.errors())
    return _problem(400, "; ".join(places))


async def _http_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code, phrase = error.status_code, HTTPStatus(error.status_code).phrase
    return _problem(code, f"HTTP {code} {phrase}" if error.detail == phrase else str(error.detail))


async def _unexpected(_: Request, error: Exception) -> JSONResponse:
    """Its text may have anything in it: only its kind is shown."""
    return _problem(500, f"Internal error: {type(error).__name__}")


def rest_server(worker: Worker, config: WorkerConfig, *, timeout_s: float = 90.0) -> HttpServer:
    """The REST interface of a worker at its configured address. Raises ConfigurationError: it is none, or taken; it
    can be reached from elsewhere without TLS and authentication; certificate or key cannot be used."""
    host, port = _address(config["rest.listener"])
    calls = Calls(worker=worker, timeout_s=timeout_s)
    server = HttpServer(
        Guard(application(calls), _access(config, host)),
        host,
        port,
        option="rest.listener",
        certificate=config.file("rest.tls.certificate"),
        private_key=config.file("rest.tls.key"),
    )
    calls.worker_id = server.address
    return server


def _address(listener: str) -> tuple[str, int]:
    host, _, port = listener.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigurationError(f"rest.listener {listener!r} is no host:port", hint="127.0.0.1:8083")
    return host.strip("[]"), int(port)


def _access(config: WorkerConfig, host: str) -> Access:
    is_own, hosts = is_loopback(host), config["rest.allowed.hosts"]
    access = Access(
        token=config["rest.token"],
        user=config["rest.basic.user"],
        password=config["rest.basic.password"],
        hosts=(*hosts, host) if is_own or hosts else None,
    )
    if not is_own and not config["rest.insecure"] and not (access.asks and config["rest.tls.certificate"] is not None):
        raise ConfigurationError(
            f"rest.listener {config['rest.listener']} can be reached from elsewhere, without TLS and authentication",
            hint="set rest.tls.certificate, rest.tls.key and rest.token (or rest.basic.user and rest.basic.password), "
            "listen on 127.0.0.1, or say rest.insecure=true",
        )
    return access
