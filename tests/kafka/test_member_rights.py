"""What members of share groups may do, and what only brokers may do: tried on a broker with ACLs."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, ShareConsumer
from coordinator_messages import read_state
from kafka.protocol.metadata import FindCoordinatorRequest
from servers.workload import Workload, until

from acktrail.embedded import EmbeddedBroker
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.model.share_partition import GroupId, SharePartition, TopicId

pytestmark = pytest.mark.broker

_SHARE_COORDINATOR = 2
_CLUSTER_AUTHORIZATION_FAILED = 31


def _what_comes(guarded: EmbeddedBroker, group: str, topic: str) -> set[str]:
    """What a member that the broker knows as `member` gets and accepts: values of records, or the refusal's name."""
    consumer = ShareConsumer({**to_librdkafka(guarded.config("member")), "group.id": group, "log_level": 0})
    consumer.subscribe([topic])
    found: set[str] = set()

    def more() -> bool:
        for message in consumer.poll(0.2) or ():
            error = message.error()
            found.add(message.value().decode() if error is None else error.name())
        return bool(found)

    try:
        until(more, what="an answer")
        consumer.commit_sync()
    except KafkaException as refused:
        found.add(refused.args[0].name())
    finally:
        consumer.close()
    return found


def test_a_member_needs_read_on_group_and_topic(guarded: EmbeddedBroker, guarded_workload: Workload) -> None:
    """R002-46, R002-48, R002-49: to see both is not enough to join, nor to fetch; with READ on both records come, and
    their acknowledgements are taken."""
    group, topic = "of-a-member", "for-a-member"
    guarded_workload.create_topic(topic)
    guarded_workload.produce(topic, 3)
    guarded_workload.configure_group(group, share_auto_offset_reset="earliest")
    for kind, name in (("GROUP", group), ("TOPIC", topic)):
        guarded_workload.allow("member", "DESCRIBE", kind, name)

    assert _what_comes(guarded, group, topic) == {"GROUP_AUTHORIZATION_FAILED"}
    guarded_workload.allow("member", "READ", "GROUP", group)
    until(lambda: _what_comes(guarded, group, topic) == {"TOPIC_AUTHORIZATION_FAILED"}, what="the right to join")
    guarded_workload.allow("member", "READ", "TOPIC", topic)
    until(lambda: _what_comes(guarded, group, topic) == {"0", "1", "2"}, what="the right to fetch")
    with ShareGroupAdmin(guarded.config()) as admin:
        (offset,) = admin.describe_offsets(group)
    assert offset.lag == 0


def test_only_brokers_find_share_coordinators(guarded: EmbeddedBroker) -> None:
    """R002-44: FindCoordinator with the type of share coordinators wants a right on the cluster."""
    request = FindCoordinatorRequest(
        key_type=_SHARE_COORDINATOR, coordinator_keys=["of-a-member:AAAAAAAAAAAAAAAAAAAAAQ:0"], min_version=6
    )
    with BrokerClient(guarded.config("member")) as client:
        (found,) = client.send(request).coordinators

    assert found.error_code == _CLUSTER_AUTHORIZATION_FAILED


def test_only_brokers_read_states(guarded: EmbeddedBroker) -> None:
    """R002-07, R002-53: the calls to a share coordinator need ClusterAction, with any rights on the group."""
    key = SharePartition(group_id=GroupId("of-a-member"), topic_id=TopicId("AAAAAAAAAAAAAAAAAAAAAQ"), partition=0)
    with BrokerClient(guarded.config("member")) as client:
        state = read_state(client, key, leader_epoch=0)

    assert state.error_code == _CLUSTER_AUTHORIZATION_FAILED
