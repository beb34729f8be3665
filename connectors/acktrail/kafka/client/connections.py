"""Connections to brokers, and why one cannot work: refused logins and certificates, the wrong protocol, no listener."""

from __future__ import annotations

import re
import socket
import ssl
from typing import Any, Final

import kafka.errors as kafka_errors
from kafka.errors import KafkaConnectionError, KafkaError
from kafka.net.inet import KafkaNetSocket, create_connection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from acktrail.errors import AcktrailError, ConfigurationError, Unreachable
from acktrail.kafka.client.client_settings import ClientSettings

_NO_LISTENER: Final = ("ECONNREFUSED", "DNS", "EHOSTUNREACH", "ENETUNREACH", "Connection timed out")
_OTHER_HOST_NAME: Final = ("Hostname mismatch", "IP address mismatch")
_CERTIFICATE_ALERT: Final = re.compile(r"ALERT_((?:\w+_)?CERTIFICATE(?:_\w+)?|UNKNOWN_CA|ACCESS_DENIED)")
"""In OpenSSL's name for a TLS alert: the other side refuses the certificate, or misses one."""
_PIECE_BYTES: Final = 256 * 1024
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


class _LargePieces:
    """A transport, and its socket, to its own method that receives: kafka-python takes 4 KiB at a time, which costs
    more than all else where megabytes come."""

    def __init__(self, transport: Any) -> None:
        self._transport, self._sock = transport, self

    def recv(self, _: int) -> bytes:
        return bytes(self._transport._sock.recv(_PIECE_BYTES))  # noqa: SLF001  # kafka-python has no hook

    def __str__(self) -> str:
        return str(self._transport)


class _ClosedSockets(KafkaNetSocket):
    """Closes every socket that led to no connection, which kafka-python leaves to the garbage collector: each try of a
    long outage would cost a file descriptor. kafka-python finds the class by its scheme, as those of proxies."""

    SCHEMES = ("acktrail",)

    async def sock_connect(self, net: Any, sock: socket.socket, address: Any, timeout_at: float | None = None) -> Any:
        try:
            return await super().sock_connect(net, sock, address, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


class ConnectionManager(KafkaConnectionManager):
    """Still delivers a response that arrives together with the end of the stream, which kafka-python 3.0.12 drops: that
    is how brokers refuse a login, they answer and close at once. And ends a handshake, and its socket, in time."""

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        options, sockets = self.config["socket_options"], f"{_ClosedSockets.SCHEMES[0]}://"
        sock = await create_connection(self._net, node.host, node.port, options, sockets, timeout_at)
        try:
            if self.ssl_enabled:
                transport = KafkaSSLTransport(self._net, sock, host=node.host, ssl_context=self.config["ssl_context"])
                sock = transport._sock  # noqa: SLF001  # kafka-python has no hook; TLS took the first one over
                await _tls_handshake(self._net, sock, timeout_at)
            else:
                transport = KafkaTCPTransport(self._net, sock, host=node.host)
        except BaseException as error:
            sock.close()
            if isinstance(error, OSError | KafkaError):
                raise KafkaConnectionError(f"Handshake failed: {error}") from None
            raise
        pieces, receive = _LargePieces(transport), type(transport)._sock_recv  # noqa: SLF001  # see above

        def receive_data_first() -> tuple[bytes, Exception | None]:
            """The end of the stream is there the next time as well."""
            data, error = receive(pieces)
            return data, None if data else error

        transport._sock_recv = receive_data_first  # noqa: SLF001  # see above
        return transport


async def _tls_handshake(net: Any, sock: ssl.SSLSocket, timeout_at: float | None) -> None:
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
    """One line without the client's jargon."""
    text = str(error).replace("KafkaConnectionError: ", "")
    return next((words for sign, words in _REASONS.items() if sign in text), text.partition("\n")[0])
