"""Serves the dashboard: uvicorn at one address."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from acktrail.config import TablesConfig, dashboard_token
from acktrail.connect.config_values import Password
from acktrail.connect.rest.access import Access, is_loopback
from acktrail.connect.rest.http_server import HttpServer
from acktrail.errors import ConfigurationError
from acktrail_dashboard.web.application import create_app

_LEAST_TOKEN: Final = 16


def dashboard_server(
    tables: TablesConfig, *, host: str, port: int, token_file: Path | None = None, hosts: tuple[str, ...] = ()
) -> HttpServer:
    """The dashboard of `tables` at an address of this machine; `port` 0: any free one. `hosts`: names that others reach
    it by, behind a proxy. Raises ConfigurationError: the address is none, or taken; others can reach it and there is no
    token; the token is too short or cannot be read."""
    app = create_app(tables, access=_access(host, token_file, hosts))
    server = HttpServer(app, host, port, option="--port", is_behind_proxy=True)
    app.state.prepare()
    return server


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
