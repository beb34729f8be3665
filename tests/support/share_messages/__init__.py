"""ShareFetch and ShareAcknowledge on a real connection, asked and answered with Kafka's field names."""

from __future__ import annotations

import re
import socket
import struct
import uuid
from collections.abc import Mapping
from typing import Any, Self

from kafka.protocol.api_message import ApiMessage

from acktrail.model.share_partition import TopicId, topic_id_bytes, topic_id_text

__all__ = ["MemberConnection"]

_HERE = __name__


class ShareFetchRequest(ApiMessage, load_json=_HERE):  # type: ignore[call-arg]  # the metaclass's
    """Request 78."""


class ShareFetchResponse(ApiMessage, load_json=_HERE):  # type: ignore[call-arg]  # the metaclass's
    """Answer 78."""


class ShareAcknowledgeRequest(ApiMessage, load_json=_HERE):  # type: ignore[call-arg]  # the metaclass's
    """Request 79."""


class ShareAcknowledgeResponse(ApiMessage, load_json=_HERE):  # type: ignore[call-arg]  # the metaclass's
    """Answer 79."""


class MemberConnection:
    """One member's connection to a broker."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=120)
        self._stream = self._socket.makefile("rb")
        self._asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._socket.close()

    def fetch(self, fields: Mapping[str, Any], version: int = 2) -> dict[str, Any]:
        """Ask 78 with `fields` as `request_fields` spells them; the answer in the same way, without records."""
        return self._ask(ShareFetchRequest, ShareFetchResponse, fields, version)

    def acknowledge(self, fields: Mapping[str, Any], version: int = 2) -> dict[str, Any]:
        """Ask 79."""
        return self._ask(ShareAcknowledgeRequest, ShareAcknowledgeResponse, fields, version)

    def _ask(self, request: Any, response: Any, fields: Mapping[str, Any], version: int) -> dict[str, Any]:
        message = _filled(request, fields, version=version)
        self._asked += 1
        message.with_header(correlation_id=self._asked, client_id="test")
        self._socket.sendall(message.encode(header=True, framed=True))
        (size,) = struct.unpack(">i", self._stream.read(4))
        answer = response.decode(self._stream.read(size), version=version, header=True)
        assert answer.header.correlation_id == self._asked
        return _told(answer)


def _filled(kind: Any, fields: Mapping[str, Any], **how: int) -> Any:
    values = {}
    for name, value in fields.items():
        field = kind.fields[re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()]
        values[field.name] = _value(field, value)
    return kind(**values, **how)


def _value(field: Any, value: Any) -> Any:
    if field.is_struct_array():
        return [_filled(field.data_class, entry) for entry in value]
    return uuid.UUID(bytes=topic_id_bytes(TopicId(value))) if field.name == "topic_id" else value


def _told(answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in answer._struct._fields:
        value, name = getattr(answer, field.name), "".join(part.title() for part in field.name.split("_"))
        if field.is_struct_array():
            found[name] = [_told(entry) for entry in value]
        elif field.is_struct():
            found[name] = _told(value)
        elif isinstance(value, uuid.UUID):
            found[name] = topic_id_text(value.bytes)
        elif name != "Records":
            found[name] = value
    return found
