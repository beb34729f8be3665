"""What a listener speaks, found out without a login and without trust: no certificate is checked, no secret sent."""

from __future__ import annotations

import re
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

_TIMEOUT_S: Final = 1.0
_CORRELATION_ID: Final = 1
_MECHANISM: Final = b"ACKTRAIL"
"""One that no broker has, so that no login can succeed and the response lists the others."""
_SASL_HANDSHAKE: Final = struct.pack(
    f">hhih8sh{len(_MECHANISM)}s", 17, 1, _CORRELATION_ID, 8, b"acktrail", len(_MECHANISM), _MECHANISM
)
"""Api key and version, correlation id, client id, mechanism; before it goes its size."""
_SIZE: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">ihi")
"""Correlation id, error code and number of mechanisms of a SaslHandshake response."""
_LARGEST_ANSWER: Final = 10_000
_SASL: Final = frozenset({0, 33})
"""Error codes of a listener that wants a login: none, UNSUPPORTED_SASL_MECHANISM."""
_NO_SASL: Final = 34
"""ILLEGAL_SASL_STATE (Kafka: ``KafkaApis.handleSaslHandshakeRequest``)."""
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_EOF_WHILE_READING"})
CERTIFICATE_ALERT: Final = re.compile(r"ALERT_((?:\w+_)?CERTIFICATE(?:_\w+)?|UNKNOWN_CA|ACCESS_DENIED)")
"""In OpenSSL's name for a TLS alert: the other side refuses the certificate, or misses one."""


class Listener(NamedTuple):
    """`protocol`: ``PLAINTEXT``, ``SSL``, ``SASL_PLAINTEXT``, ``SASL_SSL``; None: not known. `mechanisms`: the logins
    that it takes, none where not known. `wants_certificate`: it refuses clients that show none."""

    protocol: str | None
    mechanisms: tuple[str, ...] = ()
    wants_certificate: bool = False


def probe(address: str) -> Listener:
    """Ask the listener at `address` (``host:port``): a TLS handshake, then one SaslHandshake request."""
    host, _, port = address.rpartition(":")
    target = (host.strip("[]"), int(port))
    uses_tls = False
    try:
        with _connected(target, newest=ssl.TLSVersion.TLSv1_2):
            uses_tls = True
    except ssl.SSLError as error:
        # In TLS 1.2 the client's certificate is looked at before the handshake ends, in 1.3 after it.
        if CERTIFICATE_ALERT.search(error.reason or ""):
            return Listener("SSL", wants_certificate=True)
        uses_tls = error.reason is not None and error.reason not in _NOT_TLS
    except TimeoutError:
        return Listener(None)
    except OSError:
        pass
    try:
        with _connected(target, newest=ssl.TLSVersion.MAXIMUM_SUPPORTED if uses_tls else None) as connection:
            code, mechanisms = _handshake(connection)
    except ssl.SSLError as error:
        return Listener("SSL", wants_certificate=CERTIFICATE_ALERT.search(error.reason or "") is not None)
    except (OSError, struct.error):
        return Listener(None)
    if code not in _SASL and code != _NO_SASL:
        return Listener(None)
    transport = "SSL" if uses_tls else "PLAINTEXT"
    return Listener(f"SASL_{transport}", mechanisms) if code in _SASL else Listener(transport)


@contextmanager
def _connected(target: tuple[str, int], *, newest: ssl.TLSVersion | None) -> Iterator[socket.socket]:
    """A connection with TLS up to version `newest`; None: in plain text."""
    with socket.create_connection(target, timeout=_TIMEOUT_S) as plain:
        if newest is None:
            yield plain
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.maximum_version = newest
        with context.wrap_socket(plain) as encrypted:
            yield encrypted


def _handshake(connection: socket.socket) -> tuple[int | None, tuple[str, ...]]:
    """Error code and mechanisms of a SaslHandshake response; None when no such response came."""
    connection.sendall(_SIZE.pack(len(_SASL_HANDSHAKE)) + _SASL_HANDSHAKE)
    (size,) = _SIZE.unpack(_received(connection, _SIZE.size))
    if not _HEAD.size <= size <= _LARGEST_ANSWER:
        return None, ()
    body = _received(connection, size)
    correlation_id, code, count = _HEAD.unpack_from(body)
    return (int(code), _texts(body, count)) if correlation_id == _CORRELATION_ID else (None, ())


def _texts(body: bytes, count: int) -> tuple[str, ...]:
    """`count` texts after the head, each behind its length."""
    at, found = _HEAD.size, []
    for _ in range(count):
        (length,) = struct.unpack_from(">h", body, at)
        found.append(body[at + 2 : at + 2 + length].decode("utf-8", "replace"))
        at += 2 + length
    return tuple(found)


def _received(connection: socket.socket, size: int) -> bytes:
    """`size` bytes, fewer at the end of the stream."""
    received = b""
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            break
        received += piece
    return received
