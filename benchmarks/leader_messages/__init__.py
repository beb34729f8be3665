"""WriteShareGroupState (85), the request with which a share-partition leader stores state. Only brokers may send it on
a secured cluster; the benchmarks send it to a broker of their own, to make state records as fast as wanted."""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage

__all__ = ["WriteShareGroupStateRequest", "WriteShareGroupStateResponse"]


class WriteShareGroupStateRequest(ApiMessage, load_json=__name__):  # type: ignore[call-arg]  # the metaclass's
    """Request 85."""


class WriteShareGroupStateResponse(ApiMessage, load_json=__name__):  # type: ignore[call-arg]  # the metaclass's
    """Response 85."""
