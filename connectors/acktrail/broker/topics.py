"""Topics, their ids and how many partitions they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from acktrail.broker.client import BrokerClient
from acktrail.broker.descriptions import TopicDescription
from acktrail.broker.failures import LOOK_AGAIN, NONE, error_text
from acktrail.broker.group_answers import known_topic_id
from acktrail.broker.patience import Patience

__all__ = ["describe_topics"]

_LOADING_S: Final = 2.0
"""How long to ask again about a topic that was created a moment ago (LEADER_NOT_AVAILABLE)."""


def describe_topics(client: BrokerClient, names: Sequence[str] | None) -> tuple[TopicDescription, ...]:
    """These topics in the order asked for; None: all that the principal may DESCRIBE, by name.

    Raises:
        Unreachable: no broker answered.
    """
    if names is not None and not names:
        return ()
    patience = Patience(_LOADING_S)
    rows = _rows(client, names)
    while any(row.error_code in LOOK_AGAIN for row in rows) and patience.wait():
        rows = _rows(client, names)
    found = {row.name: _description(row) for row in rows}
    return tuple(found[name] for name in dict.fromkeys(names or sorted(found)))


def _rows(client: BrokerClient, names: Sequence[str] | None) -> Sequence[Any]:
    rows: Sequence[Any] = client.metadata(names).topics
    return rows


def _description(row: Any) -> TopicDescription:
    return TopicDescription(
        name=row.name,
        topic_id=known_topic_id(row.topic_id),
        partition_count=len(row.partitions) if row.error_code in LOOK_AGAIN | {NONE} else 0,
        is_internal=row.is_internal,
        error_code=row.error_code,
        error=error_text(row.error_code),
    )
