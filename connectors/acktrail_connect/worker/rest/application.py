"""The REST interface of a worker: routes, errors in Connect's shape, the address and who may call there."""

from __future__ import annotations

import logging
from http import HTTPStatus
from importlib.metadata import version
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from acktrail.errors import AcktrailError, ConfigurationError, InputError, InvalidConfiguration, UnknownName
from acktrail.serving.access import Access, Guard
from acktrail.serving.http_server import HttpServer, ListenAddress, Tls
from acktrail.serving.tokens import checked_token, kept_token
from acktrail_connect.worker.rest.answers import Calls, Problem
from acktrail_connect.worker.rest.change_log import ChangeLog
from acktrail_connect.worker.rest.routes import router
from acktrail_connect.worker.worker import ConnectorConflict, Worker
from acktrail_connect.worker.worker_config import WorkerConfig

_LOG: Final = logging.getLogger("acktrail.connect")
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
    can be reached from elsewhere without TLS; certificate, key or token cannot be used."""
    place = _place(config)
    access = _access(config)
    calls = Calls(worker=worker, timeout_s=timeout_s)
    server = HttpServer(
        ChangeLog(Guard(application(calls), access), worker.config),
        place,
        access,
        tls=Tls(
            certificate=config.file("rest.tls.certificate"),
            private_key=config.file("rest.tls.key"),
            is_of_proxy=config["rest.behind.tls.proxy"],
        ),
        hint="set rest.tls.certificate and rest.tls.key, or rest.behind.tls.proxy = true where a proxy has the TLS, or "
        "listen on 127.0.0.1",
    )
    calls.worker_id = server.address
    return server


def _place(config: WorkerConfig) -> ListenAddress:
    path = config.file("rest.socket")
    if path is not None:
        return ListenAddress(option="rest.socket", path=path)
    return ListenAddress.parse(config["rest.listener"], "rest.listener")


def _access(config: WorkerConfig) -> Access:
    """Callers of a Unix socket need no token: its file says who may connect. Others need one that is made at the first
    start, where none and no user is configured."""
    token, user, names = config["rest.token"], config["rest.basic.user"], tuple(config["rest.allowed.hosts"])
    password = config["rest.basic.password"]
    if user is not None and (not user or ":" in user):
        raise ConfigurationError("rest.basic.user is empty or has a colon", hint="use a user name without a colon")
    if password is not None:
        password = checked_token(password.value, "rest.basic.password")
    if token is not None:
        token = checked_token(token.value, "rest.token")
    elif user is None and config["rest.socket"] is None:
        hint = "set config.storage.dir to a folder that the worker may write, or rest.token, or rest.socket"
        token = kept_token(config.token_file, "the token of REST", hint=hint)
        _LOG.info("callers of REST send the token in %s", config.token_file, extra={"event": "rest_token"})
    return Access(token=token, user=user, password=password, hosts=names)
