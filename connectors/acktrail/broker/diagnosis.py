"""Why a connection to a broker failed, as an error that says what to do."""

from __future__ import annotations

import socket
import ssl
from typing import Final

import kafka.errors as kafka_errors

from acktrail.broker.settings import ClientSettings
from acktrail.errors import AcktrailError, ConfigurationError, Unreachable

__all__ = ["explain", "speaks_tls"]

_PROBE_TIMEOUT_S: Final = 2.0
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_EOF_WHILE_READING"})
_HUNG_UP: Final = "it closed the connection"
_SASL_REFUSED: Final = (
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
)


def explain(error: Exception, address: str, settings: ClientSettings) -> AcktrailError:
    """The error to raise after `error` ended a connection to `address` (``host:port``)."""
    if isinstance(error, _SASL_REFUSED):
        return ConfigurationError(
            f"{address} refused to log in {settings.username!r} with {settings.mechanism}",
            hint="check sasl.username, sasl.password and sasl.mechanism",
            data={"address": address},
        )
    if isinstance(error, kafka_errors.IllegalSaslStateError):
        return ConfigurationError(
            f"{address} wants no login",
            hint=f"security.protocol is {settings.protocol}: use {'SSL' if settings.uses_tls else 'PLAINTEXT'} there",
            data={"address": address},
        )
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return ConfigurationError(
            f"the certificate of {address} is not trusted",
            hint="set ssl.ca.location to the authority that signed it (PEM), and use the name it is for",
            data={"address": address},
        )
    if isinstance(error, kafka_errors.IncompatibleBrokerVersion):
        return Unreachable(address, reason="it does not serve clients", hint="is this a controller's port?")
    return Unreachable(address, reason=_reason(error), hint=_protocol_hint(error, address, settings))


def speaks_tls(address: str) -> bool:
    """Whether a TLS server answers at `address`. Its certificate is not looked at and nothing is sent to it."""
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=host.strip("[]")),
        ):
            return True
    except ssl.SSLError as error:
        return error.reason is not None and error.reason not in _NOT_TLS
    except OSError:
        return False


def _protocol_hint(error: Exception, address: str, settings: ClientSettings) -> str:
    """What to say about security.protocol, when the broker took the connection but not what was spoken on it."""
    text = str(error)
    if any(sign in text for sign in ("ECONNREFUSED", "DNS", "EHOSTUNREACH", "ENETUNREACH", "Connection timed out")):
        return "check the address, that the broker runs, and the network"
    if settings.uses_tls:
        return f"security.protocol is {settings.protocol}: does that port speak TLS at all?"
    if speaks_tls(address):
        return f"that port speaks TLS, security.protocol is {settings.protocol}: set it to SSL or SASL_SSL"
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
        "socket disconnected": _HUNG_UP,
        "reset by peer": _HUNG_UP,
    }
    return next((words for sign, words in known.items() if sign in text), text.splitlines()[0] if text else "")
