"""Why a connection to a broker cannot work: PEM files that cannot be used, refused logins, the wrong protocol."""

from __future__ import annotations

import socket
import ssl
import struct
from typing import Final

import kafka.errors as kafka_errors

from acktrail.broker.client.client_settings import ClientSettings
from acktrail.errors import AcktrailError, ConfigurationError, Unreachable

_PEM: Final = b"-----BEGIN "
_NO_LISTENER: Final = ("ECONNREFUSED", "DNS", "EHOSTUNREACH", "ENETUNREACH", "Connection timed out")
_OTHER_HOST_NAME: Final = ("Hostname mismatch", "IP address mismatch")
_CLOSED: Final = "it closed the connection"
_SASL_REFUSED: Final = (kafka_errors.SaslAuthenticationFailedError, kafka_errors.UnsupportedSaslMechanismError)

_PROBE_TIMEOUT_S: Final = 1.0
_CORRELATION_ID: Final = 1
_SASL_HANDSHAKE: Final = struct.pack(">hhih8sh5s", 17, 1, _CORRELATION_ID, 8, b"acktrail", 5, b"PLAIN")
"""Api key and version, correlation id, client id, mechanism; before it goes its size."""
_RESPONSE_HEAD: Final = struct.Struct(">iih")
"""Size, correlation id and error code of a SaslHandshake response."""
_ILLEGAL_SASL_STATE: Final = 34
_SASL_CODES: Final = frozenset({0, 33})
"""No error, and UNSUPPORTED_SASL_MECHANISM: both come from a listener that wants a login."""
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_EOF_WHILE_READING"})


def ensure_pem_files(settings: ClientSettings) -> None:
    """Pass when every file that `settings` names can be read and is PEM; a client without TLS needs none.

    Raises:
        ConfigurationError: it names the property and the file.
    """
    if not settings.uses_tls:
        return
    for name, file in (
        ("ssl.ca.location", settings.ca_file),
        ("ssl.certificate.location", settings.certificate_file),
        ("ssl.key.location", settings.key_file),
    ):
        if file is not None:
            _check_pem(name, file)
    if settings.ca_file is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=settings.ca_file)
        except (ssl.SSLError, OSError):
            hint = "name the PEM file of the authority that signed the broker"
            raise _bad_file("ssl.ca.location", settings.ca_file, "holds no certificate", hint) from None


def _check_pem(name: str, file: str) -> None:
    try:
        with open(file, "rb") as opened:
            is_pem = _PEM in opened.read()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise _bad_file(name, file, f"cannot be read: {reason}", "name a PEM file that this user may read") from None
    if not is_pem:
        raise _bad_file(name, file, "is not a PEM file", "export it as PEM (keytool and openssl can)")


def _bad_file(name: str, file: str, fault: str, hint: str) -> ConfigurationError:
    return ConfigurationError(f"{name}: {file} {fault}", hint=hint, data={"property": name, "file": file})


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
    if spoken is not None and spoken != settings.protocol:
        return ConfigurationError(
            f"{address} speaks {spoken}, but security.protocol is {settings.protocol}",
            hint=f"set security.protocol to {spoken}",
            data={"address": address, "spoken": spoken, "configured": settings.protocol},
        )
    return Unreachable(address, reason=_reason(error), hint=_protocol_hint(error, settings))


def _misconfigured(error: Exception, address: str, settings: ClientSettings) -> tuple[str, str]:
    """Message and hint where `error` is about the login or the certificate; empty: it is not."""
    if isinstance(error, _SASL_REFUSED):
        message = f"{address} refused to log in {settings.username!r} with {settings.mechanism}"
        return message, "check sasl.username, sasl.password and sasl.mechanism"
    if isinstance(error, kafka_errors.IllegalSaslStateError):
        protocol = "SSL" if settings.uses_tls else "PLAINTEXT"
        return f"{address} wants no login", f"security.protocol is {settings.protocol}: use {protocol} there"
    if "CERTIFICATE_VERIFY_FAILED" not in str(error):
        return "", ""
    if any(sign in str(error) for sign in _OTHER_HOST_NAME):
        hint = "connect by a name in the certificate; the broker's advertised.listeners must use such a name too"
        return f"the certificate of {address} is for another host name", hint
    hint = "set ssl.ca.location to the authority that signed it (PEM)"
    return f"the certificate of {address} is not trusted", hint


def _protocol_hint(error: Exception, settings: ClientSettings) -> str:
    """A question about security.protocol when the broker took the connection and its listener does not identify
    itself."""
    if settings.uses_tls:
        return f"security.protocol is {settings.protocol}: does that port speak TLS at all?"
    if settings.uses_sasl:
        return f"security.protocol is {settings.protocol}: did it refuse the login of {settings.username!r}?"
    if isinstance(error, kafka_errors.KafkaConnectionError):
        return "security.protocol is PLAINTEXT: does that port want a login (SASL_PLAINTEXT)?"
    return ""


def _reason(error: Exception) -> str:
    """One line without the client's jargon."""
    text = str(error).replace("KafkaConnectionError: ", "")
    known = {
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
    return next((words for sign, words in known.items() if sign in text), text.splitlines()[0] if text else "")


def listener_protocol(address: str) -> str | None:
    """``PLAINTEXT``, ``SSL``, ``SASL_PLAINTEXT`` or ``SASL_SSL``: what the listener at `address` (``host:port``)
    speaks; None: not known.

    Certificates are not checked, and no secret is sent: one SaslHandshake request, which a listener without SASL
    answers with ILLEGAL_SASL_STATE (Kafka: ``KafkaApis.handleSaslHandshakeRequest``).
    """
    host, _, port = address.rpartition(":")
    target = (host.strip("[]"), int(port))
    try:
        uses_tls = _speaks_tls(target)
    except TimeoutError:
        return None
    code = _handshake_code(target, uses_tls=uses_tls)
    if code == _ILLEGAL_SASL_STATE:
        return "SSL" if uses_tls else "PLAINTEXT"
    if code in _SASL_CODES:
        return "SASL_SSL" if uses_tls else "SASL_PLAINTEXT"
    return None


def _speaks_tls(target: tuple[str, int]) -> bool:
    """Raises TimeoutError: the listener is silent."""
    try:
        with socket.create_connection(target, timeout=_PROBE_TIMEOUT_S) as plain, _unchecked().wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        return error.reason is not None and error.reason not in _NOT_TLS
    except TimeoutError:
        raise
    except OSError:
        return False


def _handshake_code(target: tuple[str, int], *, uses_tls: bool) -> int | None:
    """The error code of a SaslHandshake response; None when no such response came."""
    try:
        with socket.create_connection(target, timeout=_PROBE_TIMEOUT_S) as plain:
            if not uses_tls:
                return _handshake(plain)
            with _unchecked().wrap_socket(plain) as encrypted:
                return _handshake(encrypted)
    except OSError:
        return None


def _handshake(connection: socket.socket) -> int | None:
    connection.sendall(struct.pack(">i", len(_SASL_HANDSHAKE)) + _SASL_HANDSHAKE)
    head = b""
    while len(head) < _RESPONSE_HEAD.size:
        received = connection.recv(_RESPONSE_HEAD.size - len(head))
        if not received:
            return None
        head += received
    _, correlation_id, code = _RESPONSE_HEAD.unpack(head)
    return int(code) if correlation_id == _CORRELATION_ID else None


def _unchecked() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
