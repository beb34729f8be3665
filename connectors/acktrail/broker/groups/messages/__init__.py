"""Share-group requests and answers that kafka-python has no schemas for.

Each class takes its fields from the JSON resource of its name beside this module, in Kafka's schema language.

(kafka-python's metaclass takes `load_json`, which type checkers cannot see.)
"""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage

_HERE = __name__


class ShareGroupDescribeRequest(ApiMessage, load_json=_HERE):  # type: ignore[call-arg]  # the metaclass's
    """Request 77: groups by id."""


class ShareGroupDescribeResponse(ApiMessage, load_json=_HERE):  # type: ignore[call-arg]  # the metaclass's
    """Answer 77: every group with its members, or an error for it."""


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=_HERE):  # type: ignore[call-arg]  # the metaclass's
    """Request 90: groups by id; topics null: every initialized share partition."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=_HERE):  # type: ignore[call-arg]  # the metaclass's
    """Answer 90: start offset and leader epoch of share partitions; version 1 adds the lag."""


class AlterShareGroupOffsetsRequest(ApiMessage, load_json=_HERE):  # type: ignore[call-arg]  # the metaclass's
    """Request 91: new start offsets for share partitions of one group; each topic once."""


class AlterShareGroupOffsetsResponse(ApiMessage, load_json=_HERE):  # type: ignore[call-arg]  # the metaclass's
    """Answer 91: one error for all, or one result a partition."""


class DeleteShareGroupOffsetsRequest(ApiMessage, load_json=_HERE):  # type: ignore[call-arg]  # the metaclass's
    """Request 92: forget what one group has of whole topics."""


class DeleteShareGroupOffsetsResponse(ApiMessage, load_json=_HERE):  # type: ignore[call-arg]  # the metaclass's
    """Answer 92: one error for all, or one result a topic."""
