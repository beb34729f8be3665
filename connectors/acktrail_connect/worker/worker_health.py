"""Whether a running worker and its connectors are healthy, as its REST interface says."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from acktrail.errors import ConfigurationError, RetryableError
from acktrail.serving.health_check import OwnServer
from acktrail.serving.tokens import token_in
from acktrail.text_parsing import parse_json
from acktrail.text_tables import printable
from acktrail_connect.worker.worker_config import WorkerConfig

_FAILED: Final = "FAILED"


def worker_states(file: Path) -> dict[str, list[str]]:
    """The states of each connector and of its tasks, by name. `file` is the configuration that the worker was started
    with. Raises RetryableError: the worker does not answer, or a connector or a task failed; ConfigurationError."""
    server = _server(WorkerConfig.read(file))
    try:
        answer = parse_json(server.ask("/connectors?expand=status"))
        parts = {name: [each["status"]["connector"], *each["status"]["tasks"]] for name, each in answer.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"what answers at {server.shown} is no worker"
        raise ConfigurationError(message, hint="another program uses its address") from error
    for name, states in parts.items():
        _ensure_not_failed(name, states)
    return {name: [part["state"] for part in states] for name, states in parts.items()}


def _ensure_not_failed(name: str, parts: list[Mapping[str, Any]]) -> None:
    failed = [part for part in parts if part["state"] == _FAILED]
    if failed:
        lines = [line for part in failed for line in (part.get("trace") or "").splitlines() if line]
        reason = printable(lines[-1]) if lines else "no reason is known"
        hint = "correct what it names, then restart the connector by REST, or the worker"
        raise RetryableError(f"connector {printable(name)} failed: {reason}", hint=hint)


def _server(config: WorkerConfig) -> OwnServer:
    """Where the worker listens, and what it asks callers for."""
    if not config.has_rest:
        raise ConfigurationError(
            "the worker has no REST interface, so its health cannot be checked", hint="set rest.listener or rest.socket"
        )
    if config["rest.socket"] is not None:
        return OwnServer(path=config.file("rest.socket"), authorization=_authorization(config))
    host, _, port = config["rest.listener"].rpartition(":")
    return OwnServer(
        host=host,
        port=int(port) if port.isdecimal() else 0,
        certificate=config.file("rest.tls.certificate"),
        authorization=_authorization(config),
    )


def _authorization(config: WorkerConfig) -> str:
    token, user, password = config["rest.token"], config["rest.basic.user"], config["rest.basic.password"]
    if token is None and user is None and config["rest.socket"] is None:
        token = token_in(config.token_file, "the token of REST")
    if token is not None:
        return f"Bearer {token.value}"
    return "" if user is None else "Basic " + base64.b64encode(f"{user}:{password.value}".encode()).decode()
