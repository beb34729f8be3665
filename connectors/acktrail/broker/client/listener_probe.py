"""Which security protocol a Kafka listener speaks, found without a login."""

from __future__ import annotations

import socket
import ssl
import struct
from typing import Final

__all__ = ["listener_protocol"]

_TIMEOUT_S: Final = 1.0
_SASL_HANDSHAKE: Final = 17
_CORRELATION_ID: Final = 1
_CLIENT_ID: Final = b"acktrail"
_MECHANISM: Final = b"PLAIN"
_HEAD: Final = struct.Struct(">iih")
"""Size, correlation id and error code of a SaslHandshake response."""
_ILLEGAL_SASL_STATE: Final = 34
_SASL_CODES: Final = frozenset({0, 33})
"""No error, and UNSUPPORTED_SASL_MECHANISM: both come from a listener that wants a login."""
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_EOF_WHILE_READING"})


def listener_protocol(address: str) -> str | None:
    """``PLAINTEXT``, ``SSL``, ``SASL_PLAINTEXT`` or ``SASL_SSL``; None: the listener at `address` (``host:port``) does
    not tell.

    Certificates are not checked, and no secret is sent: one SaslHandshake request, which a listener without SASL
    answers with ILLEGAL_SASL_STATE (Kafka: ``KafkaApis.handleSaslHandshakeRequest``).
    """
    host, _, port = address.rpartition(":")
    place = (host.strip("[]"), int(port))
    try:
        uses_tls = _speaks_tls(place)
    except TimeoutError:
        return None
    code = _handshake_code(place, uses_tls=uses_tls)
    if code == _ILLEGAL_SASL_STATE:
        return "SSL" if uses_tls else "PLAINTEXT"
    if code in _SASL_CODES:
        return "SASL_SSL" if uses_tls else "SASL_PLAINTEXT"
    return None


def _speaks_tls(place: tuple[str, int]) -> bool:
    """Raises TimeoutError: nothing was answered at all."""
    try:
        with socket.create_connection(place, timeout=_TIMEOUT_S) as plain, _unchecked().wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        return error.reason is not None and error.reason not in _NOT_TLS
    except TimeoutError:
        raise
    except OSError:
        return False


def _handshake_code(place: tuple[str, int], *, uses_tls: bool) -> int | None:
    """The error code of a SaslHandshake response; None when no such response came."""
    try:
        with socket.create_connection(place, timeout=_TIMEOUT_S) as plain:
            if not uses_tls:
                return _ask(plain)
            with _unchecked().wrap_socket(plain) as encrypted:
                return _ask(encrypted)
    except OSError:
        return None


def _ask(connection: socket.socket) -> int | None:
    connection.sendall(_request())
    head = b""
    while len(head) < _HEAD.size:
        piece = connection.recv(_HEAD.size - len(head))
        if not piece:
            return None
        head += piece
    _, correlation_id, code = _HEAD.unpack(head)
    return int(code) if correlation_id == _CORRELATION_ID else None


def _request() -> bytes:
    body = struct.pack(">hhi", _SASL_HANDSHAKE, 1, _CORRELATION_ID) + _text(_CLIENT_ID) + _text(_MECHANISM)
    return struct.pack(">i", len(body)) + body


def _text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def _unchecked() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
