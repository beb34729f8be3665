"""One question to a server of acktrail, from the machine that it runs on: what health checks send."""

from __future__ import annotations

import socket
import ssl
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Final

from acktrail.errors import ConfigurationError, RetryableError

_PATIENCE_S: Final = 10.0
_MOST_BYTES: Final = 1 << 24
_OWN: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  # listens at all addresses


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnServer:
    """Where a server listens: `host` and `port`, or the `path` of a Unix socket. `certificate`: its PEM file, where it
    has TLS. `authorization`: what callers must send."""

    host: str = ""
    port: int = 0
    path: Path | None = None
    certificate: Path | None = None
    authorization: str = field(default="", repr=False)

    @property
    def shown(self) -> str:
        return str(self.path) if self.path else f"{self.host}:{self.port}"

    def ask(self, path: str) -> bytes:
        """The body of its answer to a GET. Raises RetryableError: it does not answer, or not with 200;
        ConfigurationError: it refuses the caller, or has no port that can be known."""
        if self.path is None and not self.port:
            raise ConfigurationError(
                "a server with port 0 in its configuration cannot be checked", hint="configure a port"
            )
        try:
            with closing(self._connection()) as connection:
                connection.request("GET", path, headers={"Authorization": self.authorization, "Host": "localhost"})
                answer = connection.getresponse()
                code, body = answer.status, answer.read(_MOST_BYTES)
        except (OSError, HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            message = f"no server answers at {self.shown}: {reason}"
            raise RetryableError(message, hint="check that it runs, and see its log") from error
        if code in {401, 403}:
            message = f"the server at {self.shown} refused the health check with {code}"
            raise ConfigurationError(message, hint="give the health check the same token as the server")
        if code != 200:  # an HTTP status
            raise RetryableError(f"the server at {self.shown} answered with {code}", hint="its log has the reason")
        return body

    def _connection(self) -> HTTPConnection:
        """Its own certificate is the only one that is trusted, with any name in it."""
        host = _OWN.get(self.host.strip("[]"), self.host.strip("[]"))
        if self.certificate is not None:
            context = ssl.create_default_context(cafile=self.certificate)
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.check_hostname = False
            return HTTPSConnection(host, self.port, timeout=_PATIENCE_S, context=context)
        connection = HTTPConnection(host, self.port, timeout=_PATIENCE_S)
        if self.path is not None:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(_PATIENCE_S)
            connection.sock.connect(str(self.path))
        return connection
