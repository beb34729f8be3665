"""Sockets for kafka-python that are closed when they lead to no connection."""

from __future__ import annotations

import ssl
from socket import socket as Socket  # noqa: N812  # the base has a method of this name
from typing import Any, Final

from kafka.net.inet import KafkaNetSocket

_SCHEME: Final = "acktrail-closing"
CLOSING_SOCKETS: Final = f"{_SCHEME}://"
"""As kafka-python's proxy URL: connections go straight to the broker, by sockets of this module."""


class _ClosingSocket(KafkaNetSocket):
    """kafka-python 3.0.12 leaves the socket of a refused connection to the garbage collector. It chooses its sockets'
    class by the scheme of the proxy URL; this one connects as the class without a proxy does."""

    SCHEMES = (_SCHEME,)

    def __init__(self, proxy_url: str | None = None) -> None:
        super().__init__(proxy_url)
        self._opened: Socket | None = None

    def socket(self, *arguments: Any, **options: Any) -> Socket:
        self._opened = opened = super().socket(*arguments, **options)
        return opened

    async def connect(self, *arguments: Any, **options: Any) -> Any:
        """As of the base; what it opened is closed when it raises."""
        try:
            return await super().connect(*arguments, **options)
        except BaseException:
            if self._opened is not None:
                self._opened.close()
            raise


async def tls_handshake(net: Any, sock: ssl.SSLSocket, timeout_at: float | None) -> None:
    """The handshake of a client, in kafka-python's event loop `net`. Raises OSError, and KafkaTimeoutError when the
    other side keeps silent until `timeout_at` (monotonic; kafka-python would wait without an end)."""
    while True:
        try:
            sock.do_handshake()
            return
        except ssl.SSLWantReadError:
            await net.wait_read(sock, timeout_at=timeout_at)
        except ssl.SSLWantWriteError:
            await net.wait_write(sock, timeout_at=timeout_at)
