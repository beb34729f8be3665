"""A network and a server that fail on request: an HTTP proxy before an object storage.

A process of its own, for delta-rs holds the interpreter's lock while it waits for some answers. The server listens at a
Unix socket, so that no port is ever raced for. Commands are lines of JSON on stdin, each answered by one line on
stdout; the first line on stdout has three ports: with faults, without, without but with TLS. It ends when stdin does.

Arguments: files of a certificate and its key.

A fault is a mapping: `method` and `path` (a regular expression) say which requests it is for, `times` how many of them,
`then` faults that begin with it, `action` what happens:

=============  ====================================================================================
status         `code` is the answer, with `error` as S3's code for it; the server gets nothing
status_after   the server gets the request, the client gets `code` in place of its answer
agree_after    where the server says that a condition does not hold, the client gets success
cut_before     the connection ends; the server gets nothing
cut_after      the server gets the request, then the connection ends within its answer
silence_after  the server gets the request, and nobody ever answers
delay          the request waits `seconds`
hold_before    the request waits until ``release``
hold_after     the server gets the request, its answer waits until ``release``
=============  ====================================================================================
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_CODES = {500: "InternalError", 503: "SlowDown", 409: "ConditionalRequestConflict", 403: "AccessDenied"}
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}
_NEVER_S = 600.0


@dataclass(kw_only=True)
class Network:
    """What all connections share. `upstream` is the server's Unix socket, in the abstract namespace."""

    upstream: str = ""
    faults: list[dict[str, Any]] = field(default_factory=list)
    hits: int = 0
    released: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fault_for(self, method: str, path: str) -> Mapping[str, Any]:
        """The first fault that is meant for a request, which is used up by one; none: {}."""
        with self.lock:
            for fault in self.faults:
                if fault["times"] > 0 and fault["method"] in ("", method) and re.search(fault["path"], path):
                    fault["times"] -= 1
                    self.hits += 1
                    self.faults = [*fault.get("then", ()), *self.faults]
                    return fault
        return {}

    def obey(self, command: dict[str, Any]) -> dict[str, Any]:
        """Do what a line asks for; answer how many requests faults have hit since they were set."""
        with self.lock:
            if "upstream" in command:
                self.upstream = command["upstream"]
            if "faults" in command:
                self.faults, self.hits = command["faults"], 0
                self.released.clear()
            if command.get("release"):
                self.released.set()
            return {"hits": self.hits}


class UpstreamConnection(http.client.HTTPConnection):
    """To a server at a Unix socket."""

    def __init__(self, name: str) -> None:
        super().__init__("localhost", timeout=60)
        self._name = name

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(f"\0{self._name}")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    network: Network
    has_faults: bool

    def do_GET(self) -> None:
        fault = self.network.fault_for(self.command, self.path) if self.has_faults else {}
        action = fault.get("action", "")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._wait_before(action, fault)
        if action == "status":
            self._fail(fault["code"], fault.get("error"))
            return
        answer = b"" if action == "cut_before" else self._ask(body)
        if action == "status_after":
            self._fail(fault["code"])
            return
        if action == "agree_after" and answer.startswith(b"HTTP/1.1 412"):
            answer = b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 0\r\n\r\n'
        if action in {"silence_after", "hold_after"}:
            self.network.released.wait(_NEVER_S)
        if action in {"cut_before", "silence_after"} or not answer:
            self.close_connection = True
            return
        if action == "cut_after":
            answer, self.close_connection = answer[: len(answer) // 2], True
        with contextlib.suppress(OSError):
            self.wfile.write(answer)

    do_PUT = do_POST = do_PATCH = do_DELETE = do_HEAD = do_GET  # noqa: N815  # names that http.server calls

    def _wait_before(self, action: str, fault: Mapping[str, Any]) -> None:
        if action == "delay":
            time.sleep(fault["seconds"])
        if action == "hold_before":
            self.network.released.wait(_NEVER_S)

    def _ask(self, body: bytes) -> bytes:
        """The server's whole answer; empty when it gave none."""
        try:
            with contextlib.closing(UpstreamConnection(self.network.upstream)) as connection:
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    connection.putheader(name, value)
                connection.endheaders(body)
                got = connection.getresponse()
                content = got.read()
        except (OSError, http.client.HTTPException):
            return b""
        length = got.headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
        lines = [f"HTTP/1.1 {got.status} {got.reason}", f"Content-Length: {length}"]
        lines += [f"{name}: {value}" for name, value in got.headers.items() if name.lower() not in _HOP]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + content

    def _fail(self, status: int, error: str | None = None) -> None:
        text = f"<Error><Code>{error or _CODES[status]}</Code><Message>as told</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":  # its answer has no body: the client would take one for the next answer
            self.wfile.write(text)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # named so by http.server
        """Nothing on stderr."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hung up is nobody's error."""


def listen(network: Network, *, has_faults: bool = False, tls: ssl.SSLContext | None = None) -> int:
    """Take connections at a port of its own, which is the result."""
    handler = type("Bound", (Handler,), {"network": network, "has_faults": has_faults})
    server = Server(("127.0.0.1", 0), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return int(server.server_address[1])


def main(certificate: str, key: str) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    network = Network()
    ports = [listen(network, has_faults=True), listen(network), listen(network, tls=tls)]
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(network.obey(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
