"""Why a connection to a broker cannot work: PEM files that cannot be used, refused logins, the wrong protocol."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import kafka.errors as kafka_errors

from acktrail.broker.client.client_settings import ClientSettings
from acktrail.errors import AcktrailError, ConfigurationError, Unreachable

_PEM: Final = b"-----BEGIN "
_NO_LISTENER: Final = ("ECONNREFUSED", "DNS", "EHOSTUNREACH", "ENETUNREACH", "Connection timed out")
_OTHER_HOST_NAME: Final = ("Hostname mismatch", "IP address mismatch")
_CLOSED: Final = "it closed the connection"
_REASONS: Final = {
    "ECONNREFUSED": "connection refused",
    "DNS": "the name does not resolve",
    "EHOSTUNREACH": "no route to host",
    "ENETUNREACH": "network unreachable",
    "timed out": "no answer in time",
    "Timeout": "no answer in time",
    "Handshake failed": "TLS handshake failed",
    "Invalid frame length": "it does not speak Kafka's protocol",
    "socket disconnected": _CLOSED,
    "reset by peer": _CLOSED,
}
_SASL_REFUSED: Final = (kafka_errors.SaslAuthenticationFailedError, kafka_errors.UnsupportedSaslMechanismError)

_PROBE_TIMEOUT_S: Final = 1.0
_CORRELATION_ID: Final = 1
_SASL_HANDSHAKE: Final = struct.pack(">hhih8sh5s", 17, 1, _CORRELATION_ID, 8, b"acktrail", 5, b"PLAIN")
"""Api key and version, correlation id, client id, mechanism; before it goes its size."""
_RESPONSE_HEAD: Final = struct.Struct(">iih")
"""Size, correlation id and error code of a SaslHandshake response."""
_PROTOCOLS: Final[dict[int | None, str]] = {0: "SASL_PLAINTEXT", 33: "SASL_PLAINTEXT", 34: "PLAINTEXT"}
"""By the handshake's error code. 0 and UNSUPPORTED_SASL_MECHANISM come from a listener that wants a login,
ILLEGAL_SASL_STATE from one that wants none."""
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_EOF_WHILE_READING"})


def ensure_pem_files(settings: ClientSettings) -> None:
    """Pass when every file that `settings` names can be read and is PEM; a client without TLS needs none. Raises
    ConfigurationError with the property and the file."""
    if not settings.uses_tls:
        return
    files = {
        "ssl.ca.location": settings.ssl_cafile,
        "ssl.certificate.location": settings.ssl_certfile,
        "ssl.key.location": settings.ssl_keyfile,
    }
    for name, file in files.items():
        fault, hint = _pem_fault(name, file) if file is not None else ("", "")
        if fault:
            raise ConfigurationError(f"{name}: {file} {fault}", hint=hint, data={"property": name, "file": file})


def _pem_fault(name: str, file: str) -> tuple[str, str]:
    """What is wrong with a file, and what to do; empty: nothing."""
    try:
        if _PEM not in Path(file).read_bytes():
            return "is not a PEM file", "export it as PEM (keytool and openssl can)"
        if name == "ssl.ca.location":
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=file)
    except ssl.SSLError:
        return "holds no certificate", "name the PEM file of the authority that signed the broker"
    except OSError as error:
        return f"cannot be read: {error.strerror or type(error).__name__}", "name a PEM file that this user may read"
    return "", ""


def explain(error: Exception, address: str, settings: ClientSettings) -> AcktrailError:
    """The error to raise after `error` ended a connection to `address` (``host:port``)."""
    if isinstance(error, kafka_errors.IncompatibleBrokerVersion):
        return Unreachable(address, reason="it does not serve clients", hint="is this a controller's port?")
    message, hint = _misconfigured(error, address, settings)
    if message:
        return ConfigurationError(message, hint=hint, data={"address": address})
    if any(sign in str(error) for sign in _NO_LISTENER):
        hint = "check the address, that the broker runs, and the network"
        return Unreachable(address, reason=_reason(error), hint=hint)
    spoken = listener_protocol(address)
    if spoken is not None and spoken != settings.security_protocol:
        return ConfigurationError(
            f"{address} speaks {spoken}, but security.protocol is {settings.security_protocol}",
            hint=f"set security.protocol to {spoken}",
            data={"address": address, "spoken": spoken, "configured": settings.security_protocol},
        )
    hint, configured = "", f"security.protocol is {settings.security_protocol}"
    if settings.uses_tls:
        hint = f"{configured}: does that port speak TLS at all?"
    elif settings.uses_sasl:
        hint = f"{configured}: did it refuse the login of {settings.sasl_plain_username!r}?"
    elif isinstance(error, kafka_errors.KafkaConnectionError):
        hint = f"{configured}: does that port want a login (SASL_PLAINTEXT)?"
    return Unreachable(address, reason=_reason(error), hint=hint)


def _misconfigured(error: Exception, address: str, settings: ClientSettings) -> tuple[str, str]:
    """Message and hint where `error` is about the login or the certificate; empty: it is not."""
    if isinstance(error, _SASL_REFUSED):
        message = f"{address} refused to log in {settings.sasl_plain_username!r} with {settings.sasl_mechanism}"
        return message, "check sasl.username, sasl.password and sasl.mechanism"
    if isinstance(error, kafka_errors.IllegalSaslStateError):
        protocol = "SSL" if settings.uses_tls else "PLAINTEXT"
        return f"{address} wants no login", f"security.protocol is {settings.security_protocol}: use {protocol} there"
    if "CERTIFICATE_VERIFY_FAILED" not in str(error):
        return "", ""
    if any(sign in str(error) for sign in _OTHER_HOST_NAME):
        hint = "connect by a name in the certificate; the broker's advertised.listeners must use such a name too"
        return f"the certificate of {address} is for another host name", hint
    hint = "set ssl.ca.location to the authority that signed it (PEM)"
    return f"the certificate of {address} is not trusted", hint


def _reason(error: Exception) -> str:
    """One line without the client's jargon."""
    text = str(error).replace("KafkaConnectionError: ", "")
    return next((words for sign, words in _REASONS.items() if sign in text), text.partition("\n")[0])


def listener_protocol(address: str) -> str | None:
    """``PLAINTEXT``, ``SSL``, ``SASL_PLAINTEXT`` or ``SASL_SSL``: what the listener at `address` (``host:port``)
    speaks; None: not known.

    Certificates are not checked, and no secret is sent: one SaslHandshake request, which a listener without SASL
    answers with ILLEGAL_SASL_STATE (Kafka: ``KafkaApis.handleSaslHandshakeRequest``).
    """
    host, _, port = address.rpartition(":")
    target = (host.strip("[]"), int(port))
    uses_tls = False
    try:
        with _connected(target, uses_tls=True):
            uses_tls = True
    except ssl.SSLError as error:
        uses_tls = error.reason is not None and error.reason not in _NOT_TLS
    except TimeoutError:
        return None
    except OSError:
        pass
    try:
        with _connected(target, uses_tls=uses_tls) as connection:
            protocol = _PROTOCOLS.get(_handshake_code(connection))
    except OSError:
        return None
    return protocol.replace("PLAINTEXT", "SSL") if protocol and uses_tls else protocol


@contextmanager
def _connected(target: tuple[str, int], *, uses_tls: bool) -> Iterator[socket.socket]:
    with socket.create_connection(target, timeout=_PROBE_TIMEOUT_S) as plain:
        if not uses_tls:
            yield plain
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with context.wrap_socket(plain) as encrypted:
            yield encrypted


def _handshake_code(connection: socket.socket) -> int | None:
    """The error code of a SaslHandshake response; None when no such response came."""
    connection.sendall(struct.pack(">i", len(_SASL_HANDSHAKE)) + _SASL_HANDSHAKE)
    head = b""
    while len(head) < _RESPONSE_HEAD.size:
        received = connection.recv(_RESPONSE_HEAD.size - len(head))
        if not received:
            return None
        head += received
    _, correlation_id, code = _RESPONSE_HEAD.unpack(head)
    return int(code) if correlation_id == _CORRELATION_ID else None
