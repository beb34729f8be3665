"""Share-group requests and responses that kafka-python has no schemas for. Each class takes its fields from the JSON
resource of its name beside this module, in Kafka's schema language.
"""

from __future__ import annotations

from typing import Any

from kafka.protocol.api_message import ApiMessage


def _message(name: str) -> Any:
    return type(ApiMessage)(name, (ApiMessage,), {"__module__": __name__}, load_json=__name__)


ShareGroupDescribeRequest = _message("ShareGroupDescribeRequest")
ShareGroupDescribeResponse = _message("ShareGroupDescribeResponse")
DescribeShareGroupOffsetsRequest = _message("DescribeShareGroupOffsetsRequest")
DescribeShareGroupOffsetsResponse = _message("DescribeShareGroupOffsetsResponse")
AlterShareGroupOffsetsRequest = _message("AlterShareGroupOffsetsRequest")
AlterShareGroupOffsetsResponse = _message("AlterShareGroupOffsetsResponse")
DeleteShareGroupOffsetsRequest = _message("DeleteShareGroupOffsetsRequest")
DeleteShareGroupOffsetsResponse = _message("DeleteShareGroupOffsetsResponse")
