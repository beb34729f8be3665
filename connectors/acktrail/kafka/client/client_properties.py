"""The names of client properties, Kafka's and librdkafka's, and the options in a JAAS line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Final

from acktrail.errors import ConfigurationError

_SECURITY_NAMES: Final = """
    security.protocol sasl.mechanism sasl.mechanisms sasl.username sasl.password sasl.jaas.config ssl.ca.location
    ssl.truststore.location ssl.truststore.type ssl.certificate.location ssl.key.location ssl.key.password
    ssl.keystore.location ssl.keystore.type ssl.endpoint.identification.algorithm ssl.protocol ssl.enabled.protocols
    sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
    sasl.oauthbearer.scope sasl.oauthbearer.extensions sasl.oauthbearer.method sasl.oauthbearer.header.urlencode
    sasl.oauthbearer.jwt.retriever.class sasl.login.callback.handler.class
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.retry.backoff.ms
    sasl.login.retry.backoff.max.ms sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
    sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
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
_SECURITY: Final = frozenset(_SECURITY_NAMES.split())
_OTHER: Final = frozenset(_OTHER_NAMES.split())
"""The other properties that Kafka's clients (4.3) and librdkafka (2.x) know. acktrail needs few and accepts all, so
that one file serves Kafka's tools as well; a name that no client knows is a spelling mistake."""
_JAAS_OPTION: Final = re.compile(r'([A-Za-z_][\w.-]*)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;]+)')


def ensure_known(properties: Mapping[str, str]) -> None:
    """A misspelt ``security.protocol`` must not mean plain text. Raises ConfigurationError with the nearest name for a
    property that no client knows, and for one about security that acktrail does not follow."""
    for name in sorted(properties.keys() - _SECURITY - _OTHER):
        if name.startswith(("security.", "sasl.", "ssl.")):
            known, message = _SECURITY, f"client property {name} is not supported"
            hint = f"use {', '.join(sorted(known))}"
        else:
            known, message = _SECURITY | _OTHER, f"no Kafka client knows the property {name!r}"
            hint = "see the documentation of Kafka's clients"
        near = difflib.get_close_matches(name, known, n=1)
        raise ConfigurationError(message, hint=f"did you mean {near[0]}?" if near else hint)


def jaas_options(properties: Mapping[str, str]) -> dict[str, str]:
    """The options of ``sasl.jaas.config`` (``name="value" ...;``) by name; they may be secrets."""
    found = _JAAS_OPTION.findall(properties.get("sasl.jaas.config", ""))
    return {name: re.sub(r"\\(.)", r"\1", v[1:-1]) if v.startswith('"') else v for name, v in found}
