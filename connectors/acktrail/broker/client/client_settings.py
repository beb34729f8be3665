"""A `KafkaConfig` in one form for both clients. Properties carry Kafka's own names, as in the files that Kafka's tools
take with ``--command-config``; librdkafka's names for the same things (``sasl.username``, ``ssl.ca.location`` ...) are
understood as well.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from acktrail.config import KafkaConfig
from acktrail.errors import ConfigurationError

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_SECURITY_NAMES: Final = """
    security.protocol sasl.mechanism sasl.mechanisms sasl.username sasl.password sasl.jaas.config ssl.ca.location
    ssl.truststore.location ssl.truststore.type ssl.certificate.location ssl.key.location ssl.key.password
    ssl.keystore.location ssl.keystore.type ssl.endpoint.identification.algorithm ssl.protocol ssl.enabled.protocols
"""
_OTHER_NAMES: Final = """
    acks allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
    auto.commit.enable auto.commit.interval.ms auto.offset.reset batch.num.messages batch.size
    bootstrap.controllers bootstrap.servers broker.address.family broker.address.ttl broker.version.fallback
    buffer.memory check.crcs client.dns.lookup client.id client.rack compression.codec compression.gzip.level
    compression.level compression.lz4.level compression.type compression.zstd.level config.providers
    connections.max.idle.ms consume.callback.max.messages coordinator.query.interval.ms debug
    default.api.timeout.ms default_topic_conf delivery.report.only.error delivery.timeout.ms enable.auto.commit
    enable.auto.offset.store enable.gapless.guarantee enable.idempotence enable.metrics.push
    enable.partition.eof enable.random.seed enable.sasl.oauthbearer.unsecure.jwt
    enable.ssl.certificate.verification enabled_events exclude.internal.topics fetch.error.backoff.ms
    fetch.max.bytes fetch.max.wait.ms fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms
    fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type group.remote.assignor
    heartbeat.interval.ms https.ca.location https.ca.pem interceptor.classes interceptors
    internal.termination.signal internal.throw.on.fetch.stable.offset.unsupported isolation.level
    key.deserializer key.serializer linger.ms log.connection.close log.queue log.thread.name log_level
    max.block.ms max.in.flight max.in.flight.requests.per.connection max.partition.fetch.bytes
    max.poll.interval.ms max.poll.records max.request.size message.copy.max.bytes message.max.bytes
    message.send.max.retries message.timeout.ms metadata.broker.list metadata.max.age.ms metadata.max.idle.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms msg_order_cmp offset.store.method offset.store.path
    offset.store.sync.interval.ms partition.assignment.strategy partitioner
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
    partitioner.ignore.keys plugin.library.paths produce.offset.report queue.buffering.backpressure.threshold
    queue.buffering.max.kbytes queue.buffering.max.messages queue.buffering.max.ms queued.max.messages.kbytes
    queued.min.messages queuing.strategy receive.buffer.bytes receive.message.max.bytes
    reconnect.backoff.jitter.ms reconnect.backoff.max.ms reconnect.backoff.ms request.required.acks
    request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms send.buffer.bytes session.timeout.ms
    share.acknowledgement.mode share.acquire.mode socket.blocking.max.ms socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails socket.nagle.disable
    socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms ssl_ca ssl_certificate
    ssl_engine_callback_data ssl_key statistics.interval.ms sticky.partitioning.linger.ms topic.blacklist
    topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse transaction.timeout.ms
    transaction.two.phase.commit.enable transactional.id value.deserializer value.serializer
"""
_SECURITY_PROPERTIES: Final = frozenset(_SECURITY_NAMES.split())
_OTHER_PROPERTIES: Final = frozenset(_OTHER_NAMES.split())
"""The other properties that Kafka's clients (4.3) and librdkafka (2.x) know. acktrail needs few and accepts all, so
that one file serves Kafka's tools as well; a name that no client knows is a spelling mistake."""
_JAAS_OPTION: Final = re.compile(r'\b(username|password)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;]+)')
_LARGEST_PORT: Final = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How to connect, by kafka-python's names. Files are PEM. Passwords have no part in the repr."""

    bootstrap_servers: tuple[str, ...]
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = field(default=None, repr=False)
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    client_id: str = "acktrail"
    request_timeout_ms: int = 30_000

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol in {"SSL", "SASL_SSL"}

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol in {"SASL_PLAINTEXT", "SASL_SSL"}

    @classmethod
    def from_config(cls, config: KafkaConfig) -> ClientSettings:
        """Read the properties. Those that Kafka's clients know and acktrail does not need have no effect. Raises
        ConfigurationError when an address or a value is not understood, or no client knows a property. No value is
        shown that could be a secret."""
        properties = config.properties
        _refuse_unknown(properties)
        protocol = _one_of(properties, "security.protocol", _PROTOCOLS, default="PLAINTEXT")
        mechanism = None
        if protocol.startswith("SASL"):
            name = "sasl.mechanism" if "sasl.mechanism" in properties else "sasl.mechanisms"
            if name not in properties:
                _refuse("sasl.mechanism is missing", f"use one of {', '.join(_MECHANISMS)}")
            mechanism = _one_of(properties, name, _MECHANISMS, default="")
        login = dict(_JAAS_OPTION.findall(properties.get("sasl.jaas.config", "")))
        login = {name: re.sub(r"\\(.)", r"\1", v[1:-1]) if v.startswith('"') else v for name, v in login.items()}
        settings = cls(
            bootstrap_servers=addresses_of(config.bootstrap_servers),
            security_protocol=protocol,
            sasl_mechanism=mechanism,
            sasl_plain_username=properties.get("sasl.username", login.get("username")),
            sasl_plain_password=properties.get("sasl.password", login.get("password")),
            ssl_cafile=_pem(properties, "ssl.ca.location", "ssl.truststore"),
            ssl_certfile=_pem(properties, "ssl.certificate.location", "ssl.keystore"),
            ssl_keyfile=properties.get("ssl.key.location") or _pem(properties, "", "ssl.keystore"),
            ssl_password=properties.get("ssl.key.password"),
            ssl_check_hostname=properties.get("ssl.endpoint.identification.algorithm", "https").lower() == "https",
            client_id=properties.get("client.id", "acktrail"),
            request_timeout_ms=config.request_timeout_ms,
        )
        if settings.uses_sasl and None in (settings.sasl_plain_username, settings.sasl_plain_password):
            _refuse("no user name or no password for SASL", "set sasl.username and sasl.password, or sasl.jaas.config")
        return settings


def addresses_of(bootstrap_servers: str) -> tuple[str, ...]:
    """The addresses in a comma-separated list, each ``host:port``; ``PROTOCOL://`` in front is dropped. Raises
    ConfigurationError when none is there, or one is not ``host:port``."""
    texts = [re.sub(r"^[A-Za-z_]*://", "", text.strip()) for text in bootstrap_servers.split(",")]
    addresses = tuple(_address(text) for text in texts if text)
    return addresses or _refuse("no broker named", "give host:port[,host:port]")


def _address(text: str) -> str:
    host, separator, port = text.rpartition(":")
    inside = host.removeprefix("[").removesuffix("]")
    if not separator or not inside or (":" in inside and inside == host):
        _refuse(f"{text!r} is not host:port", "for example localhost:9092, or [::1]:9092")
    if not port.isdecimal() or not 0 < int(port) <= _LARGEST_PORT:
        _refuse(f"{text!r} has no port between 1 and {_LARGEST_PORT}", "for example localhost:9092")
    return text


def _refuse(message: str, hint: str) -> NoReturn:
    raise ConfigurationError(message, hint=hint)


def _refuse_unknown(properties: Mapping[str, str]) -> None:
    """A misspelt ``security.protocol`` must not mean plain text."""
    for name in properties.keys() - _SECURITY_PROPERTIES - _OTHER_PROPERTIES:
        if name.startswith(("security.", "sasl.", "ssl.")):
            known, message = _SECURITY_PROPERTIES, f"client property {name} is not supported"
            hint = f"use {', '.join(sorted(known))}"
        else:
            known, message = _SECURITY_PROPERTIES | _OTHER_PROPERTIES, f"no Kafka client knows the property {name!r}"
            hint = "see the documentation of Kafka's clients"
        near = difflib.get_close_matches(name, known, n=1)
        _refuse(message, f"did you mean {near[0]}?" if near else hint)


def _one_of(properties: Mapping[str, str], name: str, allowed: tuple[str, ...], *, default: str) -> str:
    value = properties.get(name, default).strip().upper()
    if value not in allowed:
        _refuse(f"{name} {value!r} is not supported", f"use one of {', '.join(allowed)}")
    return value


def _pem(properties: Mapping[str, str], direct: str, store: str) -> str | None:
    """A PEM file by librdkafka's name, or by Kafka's when that store's type is PEM."""
    if direct in properties:
        return properties[direct]
    location = properties.get(f"{store}.location")
    if location and properties.get(f"{store}.type", "JKS").upper() != "PEM":
        hint = f"export it as PEM (keytool and openssl can) and set {store}.type=PEM"
        _refuse(f"{store}.location is not a PEM file", hint)
    return location
