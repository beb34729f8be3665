"""Serves the dashboard: uvicorn at one address."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import Final

import uvicorn

from acktrail.config import TablesConfig, dashboard_token
from acktrail.connect.config_values import Password
from acktrail.connect.rest.access import Access, is_loopback
from acktrail.errors import ConfigurationError
from acktrail_dashboard.web.application import create_app

_LEAST_TOKEN: Final = 16
_END_S: Final = 5


class DashboardServer:
    """The dashboard of `tables` at an address of this machine."""

    def __init__(
        self, tables: TablesConfig, *, host: str, port: int, token_file: Path | None = None, hosts: tuple[str, ...] = ()
    ) -> None:
        """Takes the address; `port` 0: any free one. `hosts`: names that others reach it by, behind a proxy. Raises
        ConfigurationError: the address is none, or taken; others can reach it and there is no token; the token is too
        short or cannot be read."""
        access = _access(host, token_file, hosts)
        app = create_app(tables, access=access)
        self._socket = _listening(host, port)
        app.state.prepare()
        shown = f"[{host}]" if ":" in host else host
        self.url: Final = f"http://{shown}:{self._socket.getsockname()[1]}/"
        settings = uvicorn.Config(
            app,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_END_S,
        )
        self.server: Final = uvicorn.Server(settings)

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM."""
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # it would show tracebacks, which may have secrets
        self.server.run(sockets=[self._socket])


def _access(host: str, token_file: Path | None, hosts: tuple[str, ...]) -> Access:
    token = _token(token_file)
    is_own = is_loopback(host)
    if token is None and not is_own:
        raise ConfigurationError(
            f"others can reach {host}, and the dashboard has no token",
            hint="give --token-file or set ACKTRAIL_DASHBOARD_TOKEN, or listen on 127.0.0.1",
        )
    own_names = (*hosts, host) if is_own or hosts else None
    return Access(token=None if token is None else Password(token), hosts=own_names)


def _token(file: Path | None) -> str | None:
    if file is None:
        token = dashboard_token()
    else:
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"cannot read the token in {file}", hint="name a text file") from error
    if token is not None and len(token) < _LEAST_TOKEN:
        message = f"the token of the dashboard has fewer than {_LEAST_TOKEN} characters"
        raise ConfigurationError(message, hint="make one: openssl rand -hex 24")
    return token


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise ConfigurationError(
            f"the dashboard cannot listen on {host}:{port}: {error.strerror or error}",
            hint="choose another --port; 0 is any free one",
        ) from error
