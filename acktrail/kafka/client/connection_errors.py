"""Why a connection to a broker cannot work: refused logins and certificates, the wrong protocol, no listener."""

from __future__ import annotations

import re
from typing import Final

from kafka import errors as kafka_errors

from acktrail.errors import AcktrailError, ConfigurationError, Unreachable
from acktrail.kafka.client.client_settings import ClientSettings

_NO_LISTENER: Final = ("ECONNREFUSED", "DNS", "EHOSTUNREACH", "ENETUNREACH", "Connection timed out", "NodeNotReady")
_OTHER_HOST_NAME: Final = ("Hostname mismatch", "IP address mismatch")
_CERTIFICATE_ALERT: Final = re.compile(r"ALERT_((?:\w+_)?CERTIFICATE(?:_\w+)?|UNKNOWN_CA|ACCESS_DENIED)")
"""In OpenSSL's name for a TLS alert: the other side refuses the certificate, or misses one."""
_CLOSED: Final = "it closed the connection"
_NO_KAFKA: Final = "it does not speak Kafka's protocol"
_CLASS: Final = re.compile(r"(\[Error -?\d+\] )?(\w+Error(: |$))+")
_REASONS: Final = {
    "ECONNREFUSED": "connection refused",
    "DNS": "the name does not resolve",
    "EHOSTUNREACH": "no route to host",
    "ENETUNREACH": "network unreachable",
    "NodeNotReady": "the last connection failed",
    "timed out": "no answer in time",
    "TimedOut": "no answer in time",
    "Timeout": "no answer in time",
    "Handshake failed": "TLS handshake failed",
    "Invalid frame length": _NO_KAFKA,
    "no in-flight-requests": _NO_KAFKA,
    "correlation id": _NO_KAFKA,
    "Node not connected": _CLOSED,
    "Error: closed": _CLOSED,
    "Connection closed": _CLOSED,
    "socket disconnected": _CLOSED,
    "reset by peer": _CLOSED,
}


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
    return _unexplained(error, address, settings)


def _misconfigured(error: Exception, address: str, settings: ClientSettings) -> tuple[str, str]:
    """Message and hint where `error` is about the login or a certificate; empty: it is not."""
    if isinstance(error, kafka_errors.SaslAuthenticationFailedError):
        return _refused_login(address, settings)
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        hint = "set sasl.mechanism to one that the listener has (sasl.enabled.mechanisms)"
        return f"{address} takes no login with {settings.sasl_mechanism}", hint
    if isinstance(error, kafka_errors.IllegalSaslStateError):
        protocol = "SSL" if settings.uses_tls else "PLAINTEXT"
        return f"{address} wants no login", f"security.protocol is {settings.security_protocol}: use {protocol} there"
    alert = _CERTIFICATE_ALERT.search(str(error))
    if alert:
        return _refused_certificate(address, settings, alert[1].lower().replace("_", " "))
    return _untrusted(str(error), address) if "CERTIFICATE_VERIFY_FAILED" in str(error) else ("", "")


def _refused_login(address: str, settings: ClientSettings) -> tuple[str, str]:
    if settings.oauth is not None:
        message = f"{address} refused the token of OAuth client {settings.login_name!r}"
        return message, "does the broker trust this token endpoint: issuer, audience and keys (JWKS)? See its log"
    message = f"{address} refused to log in {settings.login_name!r} with {settings.sasl_mechanism}"
    return message, "check sasl.username, sasl.password and sasl.mechanism"


def _refused_certificate(address: str, settings: ClientSettings, words: str) -> tuple[str, str]:
    if settings.ssl_certfile is None:
        hint = "set ssl.certificate.location and ssl.key.location (PEM)"
        return f"{address} wants a certificate of its clients, and none is configured", hint
    message = f"{address} refused the client's certificate {settings.ssl_certfile}: {words}"
    return message, "has it expired? Does the broker trust the authority that signed it (its ssl.truststore)?"


def _untrusted(text: str, address: str) -> tuple[str, str]:
    if any(sign in text for sign in _OTHER_HOST_NAME):
        hint = "connect by a name in the certificate; the broker's advertised.listeners must use such a name too"
        return f"the certificate of {address} is for another host name", hint
    if "has expired" in text or "not yet valid" in text:
        return f"the certificate of {address} is out of date", "renew it on the broker, or set this machine's clock"
    hint = "set ssl.ca.location to the authority that signed it (PEM)"
    return f"the certificate of {address} is not trusted", hint


def _unexplained(error: Exception, address: str, settings: ClientSettings) -> Unreachable:
    if settings.uses_tls:
        asks = "does that port speak TLS, and take this client?"
    elif settings.uses_sasl:
        asks = f"did it refuse the login of {settings.login_name!r}, or want TLS (SASL_SSL)?"
    else:
        asks = "does that port want TLS (SSL) or a login (SASL_PLAINTEXT, SASL_SSL)?"
    hint = f"security.protocol is {settings.security_protocol}: {asks}"
    return Unreachable(address, reason=_reason(error), hint=hint)


def _reason(error: Exception) -> str:
    """One line without the client's jargon. Of a connection that ended for no reason it has no words at all."""
    text = _CLASS.sub("", str(error)).partition("\n")[0]
    return next((words for sign, words in _REASONS.items() if sign in str(error)), text or _CLOSED)
