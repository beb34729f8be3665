"""Topics, their ids and how many partitions they have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from acktrail.broker.client.backoff import Backoff
from acktrail.broker.client.broker_client import BrokerClient
from acktrail.broker.client.error_codes import LOOK_AGAIN, NONE, TOPIC_AUTHORIZATION_FAILED, error_text
from acktrail.broker.descriptions import TopicDescription
from acktrail.broker.groups.group_requests import known_topic_id
from acktrail.model.share_partition import ZERO_TOPIC_ID, TopicId, topic_id_bytes

_LOADING_S: Final = 2.0
"""How long to ask again about a topic that was created a moment ago (LEADER_NOT_AVAILABLE)."""
_IDS_AT_ONCE: Final = 1_000


def describe_topics(client: BrokerClient, names: Sequence[str] | None) -> tuple[TopicDescription, ...]:
    """See ``ShareGroupAdmin.topics``."""
    if names is not None and not names:
        return ()
    backoff = Backoff(_LOADING_S)
    rows = client.metadata(names).topics
    while any(row.error_code in LOOK_AGAIN for row in rows) and backoff.wait():
        rows = client.metadata(names).topics
    found = {row.name: _description(row) for row in rows}
    return tuple(found[name] for name in dict.fromkeys(names or sorted(found)))


def hidden_topics(client: BrokerClient, topic_ids: Iterable[str]) -> frozenset[str]:
    """See ``ShareGroupAdmin.hidden_topics``.

    A broker answers that only when it is asked by id (``KafkaApis.handleTopicMetadataRequest``): error 29 for such a
    topic, 100 for one that is gone. A listing of all topics leaves both out.
    """
    wanted = sorted({topic_id for topic_id in topic_ids if topic_id != ZERO_TOPIC_ID})
    asked = [UUID(bytes=topic_id_bytes(TopicId(topic_id))) for topic_id in wanted]
    found: set[str | None] = set()
    for begin in range(0, len(asked), _IDS_AT_ONCE):
        rows = client.topic_ids(asked[begin : begin + _IDS_AT_ONCE]).topics
        found |= {known_topic_id(row.topic_id) for row in rows if row.error_code == TOPIC_AUTHORIZATION_FAILED}
    return frozenset(topic_id for topic_id in found if topic_id is not None)


def _description(row: Any) -> TopicDescription:
    return TopicDescription(
        name=row.name,
        topic_id=known_topic_id(row.topic_id),
        partition_count=len(row.partitions) if row.error_code in LOOK_AGAIN | {NONE} else 0,
        is_internal=row.is_internal,
        error_code=row.error_code,
        error=error_text(row.error_code),
    )
