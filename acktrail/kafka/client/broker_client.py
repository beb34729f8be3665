"""A connection to a cluster: requests and responses, without any knowledge of groups or topics. kafka-python's
connections and codec do the work: TLS, SASL, framing, version negotiation. Its event loop runs on the caller's thread
and only during a call: between calls nothing happens in the background.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from kafka import errors as kafka_errors
from kafka.net.inet import KafkaNetSocket, create_connection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.protocol.metadata import MetadataRequest

from acktrail.backoff import Backoff
from acktrail.config import KafkaConfig
from acktrail.errors import AcktrailError, ConfigurationError, RetryableError, Unreachable, WrongValue
from acktrail.kafka.client.client_settings import ClientSettings
from acktrail.kafka.client.connection_errors import explain
from acktrail.kafka.client.credentials import token_source

BOOTSTRAP_TIMEOUT_S: Final = 10.0
_LARGEST_ANSWER: Final = 100_000_000
_PIECE_BYTES: Final = 256 * 1024

_metadata_request = partial(MetadataRequest, allow_auto_topic_creation=False)

# What it logs at INFO is noise here, and at DEBUG two of its modules log whole requests, logins included.
_LOG: Final = logging.getLogger("kafka")
_LOG.addHandler(logging.NullHandler())
if _LOG.level == logging.NOTSET:
    _LOG.setLevel(logging.WARNING)
for _name in ("kafka.net.connection", "kafka.protocol.parser"):
    logging.getLogger(_name).setLevel(logging.WARNING)


class NoResponse(NamedTuple):
    """A request without a response: the connection failed before or while it was waiting. `may_have_arrived` False: it
    certainly was not sent."""

    node_id: int | None
    error: Exception
    may_have_arrived: bool = True

    @property
    def may_try_again(self) -> bool:
        """Whether a new connection may help: not after the broker took the request and did not answer in
        time."""
        return not isinstance(self.error, kafka_errors.RequestTimedOutError)


class BrokerClient:
    """Talks to the brokers of one cluster. Not thread-safe. Use it as a context manager.

    Raises Unreachable when no broker answered within `bootstrap_timeout_s` (every address is tried once);
    ConfigurationError when the configuration is not understood, the broker refused the login, or does not serve a
    request.
    """

    def __init__(self, config: KafkaConfig, *, bootstrap_timeout_s: float = BOOTSTRAP_TIMEOUT_S) -> None:
        self._settings = ClientSettings.from_config(config)
        self._tokens = None if self._settings.oauth is None else token_source(self._settings.oauth)
        self._bootstrap_servers = config.bootstrap_servers
        self._timeout_s = bootstrap_timeout_s
        context = self._settings.tls_context()
        self._net = NetworkSelector()
        self._manager = ConnectionManager(
            self._net,
            **asdict(self._settings),
            ssl_context=context,
            sasl_oauth_token_provider=self._tokens,
            receive_message_max_bytes=_LARGEST_ANSWER,
            max_in_flight_requests_per_connection=1_000,
        )
        self._cluster = self._manager.cluster
        try:
            self._bootstrap()
        except BaseException:
            self.close()
            raise

    @property
    def cluster_id(self) -> str:
        """The cluster's own id, 22 characters of base64."""
        return str(self._cluster.cluster_id)

    def broker_ids(self) -> list[int]:
        """The brokers as of the last metadata."""
        return sorted(broker.node_id for broker in self._cluster.brokers())

    def api_versions(self) -> Mapping[int, tuple[int, int]]:
        """The lowest and highest version that the brokers serve, by api key."""
        return self._manager.broker_version_data.api_versions

    @property
    def request_timeout_s(self) -> float:
        return self._settings.request_timeout_ms / 1000

    @property
    def connections(self) -> int:
        """How many connections to brokers were made so far."""
        return self._manager.made

    def send_all(self, requests: Sequence[tuple[int | None, Any]]) -> list[Any]:
        """Send all requests at once, each to its node (None: any), and wait: a response or `NoResponse` for each."""
        return self._run(self._send_all, requests)

    def send(self, request: Any, node_id: int | None = None, *, timeout_retries: int = 0) -> Any:
        """Send one request that changes nothing. It is sent again, on a new connection, after the connection failed,
        and after at most `timeout_retries` timeouts. Raises the error of `explain` when the broker did not answer."""
        backoff = Backoff(self._timeout_s)
        while True:
            (answer,) = self.send_all([(node_id, request)])
            if not isinstance(answer, NoResponse):
                return answer
            if not answer.may_try_again and timeout_retries > 0:
                timeout_retries -= 1
                backoff.renew()
            elif not answer.may_try_again or not backoff.wait():
                raise self.explain(answer)

    def send_once(self, request: Any, node_id: int | None = None) -> Any:
        """Send one request that changes something: once, never again. The connection is made first, so that
        `NoResponse.may_have_arrived` is known."""
        return self._run(self._send_once, request, node_id)

    def metadata(self, topics: Sequence[str] | None, *, with_rights: bool = False) -> Any:
        """Metadata for `topics` (None: all). The client learns brokers from it. It creates no topic. `with_rights`:
        the response lists what this principal may do with each topic."""
        wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        rights = {"include_topic_authorized_operations": True, "min_version": 8} if with_rights else {}
        answer = self.send(_metadata_request(topics=wanted, **rights))
        self._cluster.update_metadata(answer)
        return answer

    def metadata_by_id(self, topic_ids: Sequence[UUID]) -> Any:
        """Metadata of topics by id (version 12, Kafka 3.1): beside an error the response has the id and no name."""
        wanted = [MetadataRequest.MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids]
        return self.send(_metadata_request(topics=wanted, min_version=12))

    def learn_coordinator(self, found: Any, key: str) -> int:
        """Remember the broker in one row of a FindCoordinator response; it may be newer than the metadata."""
        return int(self._cluster.add_coordinator(found, 0, key, synthesize_node_id=False))

    def explain(self, missing: NoResponse) -> AcktrailError:
        """The error to raise for a request without a response."""
        if isinstance(missing.error, kafka_errors.RequestTimedOutError):
            return RetryableError(
                f"{self._address(missing.node_id)} did not answer within {self.request_timeout_s:g} s",
                hint="the broker may be overloaded, or cannot reach another broker; try again",
            )
        if isinstance(missing.error, kafka_errors.UnknownBrokerIdError):
            return RetryableError(f"broker {missing.node_id} is gone", hint="try again")
        return explain(missing.error, self._address(missing.node_id), self._settings)

    def close(self) -> None:
        """Close every connection. May be called twice."""
        if not self._manager.closed:
            self._manager.close()
            self._net.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, ask: Callable[..., Any], *arguments: object) -> Any:
        if self._manager.closed:
            raise WrongValue("the client is closed", hint="open a new one")
        return self._net.run(ask, *arguments)

    def _address(self, node_id: int | None) -> str:
        broker = self._cluster.broker_metadata(node_id) if node_id is not None else None
        return f"{broker.host}:{broker.port}" if broker else self._bootstrap_servers

    def _bootstrap(self) -> None:
        """Learn the cluster from the first address that answers, with a token at hand: its endpoint may take long."""
        if self._tokens is not None:
            self._tokens.current()
        addresses = self._settings.bootstrap_servers
        backoff = Backoff(self._timeout_s)
        reasons: list[AcktrailError] = []
        for left, node in zip(range(len(addresses), 0, -1), self._cluster.bootstrap_brokers(), strict=True):
            try:
                self._net.run(self._learn_from, node.node_id, backoff.left_s / left)
                return
            except kafka_errors.KafkaError as error:
                if self._tokens is not None:
                    self._tokens.forget()
                reasons.append(explain(error, f"{node.host}:{node.port}", self._settings))
        configuration = [reason for reason in reasons if isinstance(reason, ConfigurationError)]
        if configuration or len(reasons) == 1:
            raise (configuration or reasons)[0]
        messages = "; ".join(reason.message.removeprefix("no Kafka broker answered at ") for reason in reasons)
        hint = next((reason.hint for reason in reasons if reason.hint), "")
        raise Unreachable(", ".join(addresses), reason=messages, hint=hint)

    async def _learn_from(self, node_id: str, timeout_s: float) -> None:
        timeout_ms = timeout_s * 1000
        connection = await self._manager.get_connection(node_id, timeout_ms=timeout_ms, refresh_metadata_on_err=False)
        answer = await connection.send_request(_metadata_request(topics=[]), request_timeout_ms=timeout_ms)
        connection.close()
        self._cluster.update_metadata(answer)

    async def _send_all(self, requests: Sequence[tuple[int | None, Any]]) -> list[Any]:
        pending: list[Any] = []
        for node_id, request in requests:
            try:
                pending.append(self._manager.send(request, node_id))
            except kafka_errors.KafkaError as error:
                pending.append(error)
        return [await self._outcome(node_id, future) for (node_id, _), future in zip(requests, pending, strict=True)]

    async def _send_once(self, request: Any, node_id: int | None) -> Any:
        node = self._manager.least_loaded_node() if node_id is None else node_id
        try:
            connection = await self._manager.get_connection(node)
        except kafka_errors.KafkaError as error:
            return self._missing(NoResponse(node_id=node, error=error, may_have_arrived=False))
        reply = await self._outcome(node, connection.send_request(request))
        if isinstance(reply, NoResponse) and isinstance(reply.error, kafka_errors.NodeNotReadyError):
            return reply._replace(may_have_arrived=False)
        return reply

    async def _outcome(self, node_id: int | None, future: Any) -> Any:
        """The response in `future`, or what became of the request; an error in its place kept it from being sent."""
        try:
            if isinstance(future, Exception):
                raise future
            return await future
        except kafka_errors.IncompatibleBrokerVersion as error:
            message = str(error).partition(": ")[2]
            raise ConfigurationError(message, hint="share groups need Kafka 4.1 or later") from error
        except kafka_errors.KafkaError as error:
            return self._missing(NoResponse(node_id=node_id, error=error))

    def _missing(self, missing: NoResponse) -> NoResponse:
        """Trying again does not help against a wrong configuration."""
        is_about_login = "Sasl" in type(missing.error).__name__ or "CERTIFICATE_VERIFY_FAILED" in str(missing.error)
        explained = self.explain(missing) if is_about_login else None
        if isinstance(explained, ConfigurationError):
            raise explained from missing.error
        return missing


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

    def dns_lookup(self, host: str, port: int, **options: Any) -> Any:
        """The addresses of `host`; none of what can be no name, for which Python has another error."""
        try:
            return super().dns_lookup(host, port, **options)
        except UnicodeError:
            return []

    async def sock_connect(self, net: Any, sock: socket.socket, address: Any, timeout_at: float | None = None) -> Any:
        try:
            return await super().sock_connect(net, sock, address, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


class ConnectionManager(KafkaConnectionManager):
    """Still delivers a response that arrives together with the end of the stream, which kafka-python 3.0.12 drops: that
    is how brokers refuse a login, they answer and close at once. And ends a handshake, and its socket, in time."""

    made = 0
    """Connections so far."""

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        options, sockets = self.config["socket_options"], f"{_ClosedSockets.SCHEMES[0]}://"
        sock = await create_connection(self._net, node.host, node.port, options, sockets, timeout_at)
        self.made += 1
        try:
            if self.ssl_enabled:
                transport = KafkaSSLTransport(self._net, sock, host=node.host, ssl_context=self.config["ssl_context"])
                sock = transport._sock  # noqa: SLF001  # kafka-python has no hook; TLS took the first one over
                await _tls_handshake(self._net, sock, timeout_at)
            else:
                transport = KafkaTCPTransport(self._net, sock, host=node.host)
        except BaseException as error:
            sock.close()
            if isinstance(error, OSError | kafka_errors.KafkaError):
                raise kafka_errors.KafkaConnectionError(f"Handshake failed: {error}") from None
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
