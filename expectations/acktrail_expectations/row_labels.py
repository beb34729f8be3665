"""How rows that break a rule are named to people: by group, topic name and partition, not by ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from acktrail_expectations.gx.suite_check import RowLabel


def _place(row: Mapping[str, Any]) -> str:
    return f"{row['group_id']}/{_topic(row)}/{row['partition']}"


def _topic(row: Mapping[str, Any]) -> str:
    return str(row["topic"] if isinstance(row["topic"], str) else row["topic_id"])


def state_record_label(topics: Mapping[str, str]) -> RowLabel:
    """State partition and offset, and the share partition where the record names one. `topics`: names by id."""

    def text(row: Mapping[str, Any]) -> str:
        address = f"{row['state_partition']}/{row['offset']}"
        if not isinstance(row["group_id"], str):
            return address
        return f"{address} of {_place({**row, 'topic': topics.get(row['topic_id'])})}"

    return RowLabel(("state_partition", "offset", "group_id", "topic_id", "partition"), text)


STATE_RECORD: Final = state_record_label({})
EXPORT_RANGE: Final = RowLabel(
    ("state_partition", "begin", "end"), lambda row: f"{row['state_partition']}/{row['begin']}-{row['end'] - 1}"
)
"""An exported range with its gap."""
SHARE_PARTITION: Final = RowLabel(("group_id", "topic_id", "topic", "partition"), _place)
STATE_PARTITION: Final = RowLabel(("state_partition",), lambda row: f"state partition {row['state_partition']}")
