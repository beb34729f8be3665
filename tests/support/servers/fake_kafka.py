"""A cluster that speaks Kafka's protocol and says what a test tells it to, for answers that no healthy broker gives;
and servers that are no brokers: they keep silent, answer something else, or only make TLS handshakes."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from typing import Any, Final

from kafka.protocol.admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListGroupsRequest,
)
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

from acktrail.config import KafkaConfig
from acktrail.kafka.groups.messages import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
)

SILENCE: Final = "silence"
"""In place of an answer: the request is taken and never answered."""
HANG_UP: Final = "hang up"
"""In place of an answer: the connection ends."""

ALTER: Final = 91
_REQUESTS: Final = {
    cls.API_KEY: cls
    for cls in (
        ApiVersionsRequest,
        MetadataRequest,
        FindCoordinatorRequest,
        FetchRequest,
        ListGroupsRequest,
        ListOffsetsRequest,
        DescribeConfigsRequest,
        IncrementalAlterConfigsRequest,
        DeleteGroupsRequest,
        ShareGroupDescribeRequest,
        DescribeShareGroupOffsetsRequest,
        AlterShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsRequest,
    )
}
_LARGEST: Final = 1_000_000
_CLUSTER_ID: Final = "fake-cluster-0123456789"

Answer = Any
"""A response message, a function from the request to one, SILENCE or HANG_UP."""


@dataclass
class FakeKafka:
    """`nodes` brokers; `coordinators` are the answers to FindCoordinator, a node's index or an error code below 0 (the
    last one stays); `answers` are those to other requests by api key, in order; `topics` are those of the metadata."""

    addresses: list[tuple[str, int]]
    coordinators: deque[int] = field(default_factory=lambda: deque([0]))
    answers: dict[int, deque[Answer]] = field(default_factory=lambda: defaultdict(deque))
    topics: Callable[[], list[Any]] = list
    asked: list[tuple[int, int, Any]] = field(default_factory=list)
    """Node, api key and body of every request, in order."""

    def config(self, request_timeout_ms: int = 2_000) -> KafkaConfig:
        host, port = self.addresses[0]
        return KafkaConfig(bootstrap_servers=f"{host}:{port}", request_timeout_ms=request_timeout_ms)

    def sent(self, api_key: int) -> list[Any]:
        """The requests of one kind."""
        return [request for _, key, request in self.asked if key == api_key]

    def nodes_asked(self, api_key: int) -> list[int]:
        """Which nodes got requests of one kind."""
        return [node for node, key, _ in self.asked if key == api_key]

    def reply(self, api_key: int, request: Any) -> Answer:
        built = {18: self._api_versions, 3: self._metadata, 10: self._find_coordinator}.get(api_key)
        if built is not None:
            return built(request)
        answer = self.answers[api_key].popleft()
        return answer(request) if callable(answer) else answer

    def _api_versions(self, request: Any) -> Any:
        row = ApiVersionsResponse.ApiVersion
        keys = [row(api_key=key, min_version=0, max_version=cls.max_version) for key, cls in _REQUESTS.items()]
        return ApiVersionsResponse(error_code=0, api_keys=keys)

    def _metadata(self, request: Any) -> Any:
        row = MetadataResponse.MetadataResponseBroker
        brokers = [row(node_id=i, host=h, port=p, rack=None) for i, (h, p) in enumerate(self.addresses)]
        return MetadataResponse(brokers=brokers, cluster_id=_CLUSTER_ID, controller_id=0, topics=self.topics())

    def _find_coordinator(self, request: Any) -> Any:
        found = self.coordinators.popleft() if len(self.coordinators) > 1 else self.coordinators[0]
        host, port = self.addresses[max(found, 0)]
        row = partial(FindCoordinatorResponse.Coordinator, node_id=max(found, 0), host=host, port=port)
        rows = [row(key=key, error_code=max(-found, 0), error_message=None) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=rows)


@contextmanager
def fake_kafka(nodes: int = 1) -> Iterator[FakeKafka]:
    """A cluster that ends with the block."""
    fake = FakeKafka(addresses=[])
    with ExitStack() as stack:
        for number in range(nodes):
            fake.addresses.append(stack.enter_context(_listening(partial(_serve, fake, number))))
        yield fake


@contextmanager
def _listening(serve: Callable[[socket.socket], None]) -> Iterator[tuple[str, int]]:
    """An address where each connection is served in a thread; all of them end with the block."""
    taken: list[socket.socket] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                taken.append(server.accept()[0])
                threading.Thread(target=serve, args=(taken[-1],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[:2]
        for connection in [server, *taken]:
            _end(connection)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _serve(fake: FakeKafka, node: int, connection: socket.socket) -> None:
    stream = connection.makefile("rb")
    try:
        while head := stream.read(4):
            (size,) = struct.unpack(">i", head)
            if size > _LARGEST:
                raise ValueError("no Kafka client")
            frame = stream.read(size)
            key, version = struct.unpack_from(">hh", frame)
            request = _REQUESTS[key].decode(BytesIO(frame), version=version, header=True)
            fake.asked.append((node, key, request))
            answer = fake.reply(key, request)
            if answer is HANG_UP:
                _end(connection)
                return
            if answer is SILENCE:
                continue
            answer.API_VERSION = version
            answer.with_header(correlation_id=request.header.correlation_id)
            connection.sendall(answer.encode(header=True, framed=True))
    except (OSError, ValueError, KeyError):  # a stranger, or the end
        _end(connection)


def altered(
    rows: Sequence[tuple[str, int, int]] = (), *, error_code: int = 0, message: str | None = None
) -> AlterShareGroupOffsetsResponse:
    """Answer 91: (topic, partition, error code) for each partition, or one error for all."""
    cls = AlterShareGroupOffsetsResponse.AlteredTopic
    topics: dict[str, list[Any]] = defaultdict(list)
    for topic, partition, code in rows:
        topics[topic].append(cls.AlteredPartition(partition_index=partition, error_code=code, error_message=None))
    return AlterShareGroupOffsetsResponse(
        error_code=error_code,
        error_message=message,
        responses=[cls(topic_name=name, topic_id=None, partitions=parts) for name, parts in topics.items()],
    )


def forgotten(
    rows: Sequence[tuple[str, int]] = (), *, error_code: int = 0, message: str | None = None
) -> DeleteShareGroupOffsetsResponse:
    """Answer 92: (topic, error code) for each topic, or one error for all."""
    cls = DeleteShareGroupOffsetsResponse.ForgottenTopic
    return DeleteShareGroupOffsetsResponse(
        error_code=error_code,
        error_message=message,
        responses=[cls(topic_name=t, topic_id=None, error_code=code, error_message=None) for t, code in rows],
    )


def group_deleted(group_id: str, error_code: int) -> DeleteGroupsResponse:
    """Answer 42."""
    row = DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error_code)
    return DeleteGroupsResponse(results=[row])


def configs_altered(group_id: str, error_code: int) -> IncrementalAlterConfigsResponse:
    """Answer 44."""
    cls = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    row = cls(error_code=error_code, error_message="words", resource_type=32, resource_name=group_id)
    return IncrementalAlterConfigsResponse(responses=[row])


@contextmanager
def no_broker(*, answer: bytes | None = None, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """An address that takes connections, and says `answer` or makes a handshake with `tls`; without either: nothing."""
    kept: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with suppress(OSError):
            if answer is not None:
                connection.recv(4096)
                connection.sendall(answer)
            if tls is not None:
                kept.append(tls.wrap_socket(connection, server_side=True))

    with _listening(serve) as (host, port):
        yield f"{host}:{port}"
