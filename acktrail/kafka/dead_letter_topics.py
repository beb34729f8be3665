"""The dead-letter topics that share groups name (KIP-1191), and whose dead letters the brokers drop."""

from __future__ import annotations

from collections.abc import Mapping

from acktrail.format.wire.dead_letter_headers import TOPIC_OF_GROUP, TOPIC_PREFIX, dropped_letters
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.client.error_codes import error_for
from acktrail.kafka.describe_configs import broker_config


def dead_letter_topics(admin: ShareGroupAdmin) -> dict[str, str]:
    """The dead-letter topics that the share groups of a cluster name now, by group, whether they exist or not. A group
    that this principal may not DESCRIBE is not seen. Raises NotAuthorized when DESCRIBE_CONFIGS is missing on one that
    is."""
    named: dict[str, str] = {}
    for group in admin.group_configs([listed.group_id for listed in admin.list_groups()]):
        if group.configs is None:
            raise error_for(
                group.error_code, group.error, operation="DESCRIBE_CONFIGS", kind="group", name=group.group_id
            )
        if group.configs.get(TOPIC_OF_GROUP):
            named[group.group_id] = group.configs[TOPIC_OF_GROUP]
    return named


def dropped_by_group(admin: ShareGroupAdmin, topics: Mapping[str, str]) -> dict[str, str]:
    """Why brokers drop the dead letters of groups that name these `topics`, by group; none where they do not."""
    prefix = broker_config(client_of(admin), TOPIC_PREFIX) if topics else None
    why = {group_id: dropped_letters(topic, prefix) for group_id, topic in sorted(topics.items())}
    return {group_id: text for group_id, text in why.items() if text is not None}
