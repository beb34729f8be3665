"""Why a connection to a broker failed, as an error that says what to do."""

from __future__ import annotations

from typing import Final

import kafka.errors as kafka_errors

from acktrail.broker.client.client_settings import ClientSettings
from acktrail.broker.client.listener_probe import listener_protocol
from acktrail.errors import AcktrailError, ConfigurationError, Unreachable

__all__ = ["explain"]

_NO_LISTENER: Final = ("ECONNREFUSED", "DNS", "EHOSTUNREACH", "ENETUNREACH", "Connection timed out")
_OTHER_NAME: Final = ("Hostname mismatch", "IP address mismatch")
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
        return _certificate_refused(error, address)
    if isinstance(error, kafka_errors.IncompatibleBrokerVersion):
        return Unreachable(address, reason="it does not serve clients", hint="is this a controller's port?")
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


def _certificate_refused(error: Exception, address: str) -> ConfigurationError:
    """Which of the two checks of a certificate failed: who signed it, or which names it is for."""
    if any(sign in str(error) for sign in _OTHER_NAME):
        return ConfigurationError(
            f"the certificate of {address} is for another host name",
            hint="connect by a name in the certificate; the broker's advertised.listeners must use such a name too",
            data={"address": address},
        )
    return ConfigurationError(
        f"the certificate of {address} is not trusted",
        hint="set ssl.ca.location to the authority that signed it (PEM)",
        data={"address": address},
    )


def _protocol_hint(error: Exception, settings: ClientSettings) -> str:
    """What to say about security.protocol when the broker took the connection and the listener does not identify
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
        "socket disconnected": _HUNG_UP,
        "reset by peer": _HUNG_UP,
    }
    return next((words for sign, words in known.items() if sign in text), text.splitlines()[0] if text else "")
