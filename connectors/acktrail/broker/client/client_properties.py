"""The names of client properties that Kafka's clients (4.3) and librdkafka (2.x) know, without those about security.

acktrail needs few of them. The others are accepted, so that one file serves Kafka's tools as well. A name that no
client knows is a spelling mistake.
"""

from __future__ import annotations

from typing import Final

__all__ = ["CLIENT_PROPERTIES"]

_NAMES: Final = """
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
CLIENT_PROPERTIES: Final = frozenset(_NAMES.split())
