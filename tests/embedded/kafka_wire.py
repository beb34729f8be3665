"""The smallest Kafka client there is: one ApiVersions exchange on a socket."""

from __future__ import annotations

import socket
import struct

__all__ = ["api_versions"]

_API_VERSIONS = 18


def api_versions(address: str) -> dict[int, tuple[int, int]]:
    """The versions a broker answers, API key to lowest and highest version (request version 0)."""
    host, port = address.split(":")
    client_id = b"test"
    header = struct.pack(">hhih", _API_VERSIONS, 0, 42, len(client_id)) + client_id
    with socket.create_connection((host, int(port)), timeout=120) as connection:
        connection.sendall(struct.pack(">i", len(header)) + header)
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        body = stream.read(size)
    correlation, error, count = struct.unpack_from(">ihi", body)
    assert (correlation, error) == (42, 0)
    entries = struct.iter_unpack(">hhh", body[10 : 10 + 6 * count])
    return {key: (lowest, highest) for key, lowest, highest in entries}
