"""Servers that are no brokers: they keep silent, answer something else, or only make TLS handshakes."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["no_broker"]


@contextmanager
def no_broker(*, answer: bytes | None = None, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """An address that takes connections, and says `answer` or makes a handshake with `tls`; without either: nothing."""
    taken: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            taken.append(connection)
            if answer is not None:
                connection.recv(4096)
                connection.sendall(answer)
            if tls is not None:
                with suppress(OSError):
                    taken.append(tls.wrap_socket(connection, server_side=True))

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        for connection in taken:
            connection.close()
