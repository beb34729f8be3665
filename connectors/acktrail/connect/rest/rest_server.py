"""Serves the REST interface: uvicorn on a thread of its own."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from threading import Thread
from typing import Final, Self

import uvicorn

from acktrail.connect.rest.access import Access, Guard, is_loopback
from acktrail.connect.rest.application import application
from acktrail.connect.rest.calls import Calls
from acktrail.connect.runtime.worker import Worker
from acktrail.connect.runtime.worker_config import WorkerConfig
from acktrail.errors import ConfigurationError

_LOOK_S: Final = 0.01
_START_S: Final = 30.0
_END_S: Final = 5


class RestServer:
    """The REST interface of a worker at its configured address. Use it as a context manager."""

    def __init__(self, worker: Worker, config: WorkerConfig) -> None:
        """Takes the address. Raises ConfigurationError: it is none, or taken; it can be reached from elsewhere without
        TLS and authentication; certificate or key cannot be used."""
        host, port = _address(config.listener)
        access = _access(config, host)
        self._socket = _listening(host, port)
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{shown}:{self._socket.getsockname()[1]}"
        self.url = f"{'https' if config.certificate else 'http'}://{self.address}"
        calls = Calls(worker=worker, worker_id=self.address, timeout_s=config.request_timeout_s)
        settings = uvicorn.Config(
            Guard(application(calls), access),
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_END_S,
            ssl_certfile=config.certificate,
            ssl_keyfile=config.private_key,
        )
        try:
            settings.load()
        except (OSError, ssl.SSLError) as error:
            self._socket.close()
            raise ConfigurationError(
                f"the REST interface cannot use its certificate and key: {error}",
                hint="rest.tls.certificate and rest.tls.key are PEM files that belong together",
            ) from error
        if settings.ssl is not None:
            settings.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
        self._server = uvicorn.Server(settings)
        self._thread = Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="acktrail-rest", daemon=True
        )

    def __enter__(self) -> Self:
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # it would show tracebacks, which may have secrets
        self._thread.start()
        deadline = time.monotonic() + _START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise ConfigurationError(
                    f"the REST interface did not start at {self.address}", hint="try again, or another rest.listener"
                )
            time.sleep(_LOOK_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(2 * _END_S)


def _address(listener: str) -> tuple[str, int]:
    host, _, port = listener.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigurationError(f"rest.listener {listener!r} is no host:port", hint="127.0.0.1:8083")
    return host.strip("[]"), int(port)


def _access(config: WorkerConfig, host: str) -> Access:
    is_own = is_loopback(host)
    access = Access(
        token=config.token,
        user=config.user,
        password=config.password,
        hosts=(*config.allowed_hosts, host) if is_own or config.allowed_hosts else None,
    )
    if not is_own and not config.is_insecure and not (access.asks and config.certificate is not None):
        raise ConfigurationError(
            f"rest.listener {config.listener} can be reached from elsewhere, without TLS and authentication",
            hint="set rest.tls.certificate, rest.tls.key and rest.token (or rest.basic.user and rest.basic.password), "
            "listen on 127.0.0.1, or say rest.insecure=true",
        )
    return access


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise ConfigurationError(
            f"the REST interface cannot listen on {host}:{port}: {error.strerror or error}",
            hint="choose another rest.listener; port 0 is any free one",
        ) from error
