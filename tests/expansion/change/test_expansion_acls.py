"""The ACLs that `acktrail doctor` suggests for an expansion and for looks are enough where all others are denied."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from broker.granted_acls import grant, missing, without
from broker.workload import Workload, until
from kafka.protocol.consumer.offsets import OffsetForLeaderEpochRequest

from acktrail.broker.admin import ShareGroupAdmin, client_of
from acktrail.broker.client.broker_client import NoResponse
from acktrail.broker.client.error_codes import NONE, TOPIC_AUTHORIZATION_FAILED
from acktrail.config import TablesConfig
from acktrail.embedded import EmbeddedBroker
from acktrail.errors import NotAuthorized
from acktrail.model.acls import Acl, needed, purposes
from acktrail_expansion.change.apply_expansion import apply_expansion, open_expansion_journal
from acktrail_expansion.change.collect_expansion import make_plan
from acktrail_expansion.expansion_acls import EXPANSION, LOOK
from acktrail_expansion.looks.partition_listing import list_partitions

pytestmark = [pytest.mark.broker, pytest.mark.slow]

USER: Final = "fewest"


def test_the_acls_of_an_expansion_are_enough(
    guarded: EmbeddedBroker, guarded_workload: Workload, tmp_path: Path
) -> None:
    """Without ALTER the plan is refused, and a plan that was made before is refused by the broker; with the ACLs it is
    made and carried out, and the group is in it."""
    config, tables = guarded.config(USER), TablesConfig(uri=str(tmp_path))
    topic, group_id = "to-expand", "expansion-reader"
    guarded_workload.create_topic(topic)
    guarded_workload.produce(topic, 3)
    guarded_workload.acknowledge(group_id, topic, 1)
    acls = needed(EXPANSION, [group_id], [topic])
    alter = Acl("ALTER", "topic", topic)
    assert alter in acls
    grant(guarded_workload, USER, [*acls, Acl("DESCRIBE", "topic", topic)])
    with ShareGroupAdmin(config) as admin:
        until(lambda: not missing(admin, acls), what="every ACL")
        plan = make_plan(admin, topic, 2, created_by="ann")
        assert [(group.group_id, group.open_records) for group in plan.groups] == [(group_id, 2)]
        journal = open_expansion_journal(tables, plan, actor="ann")
        with without(guarded_workload, USER, config, alter, acls):
            with pytest.raises(NotAuthorized, match="ALTER"):
                make_plan(admin, topic, 2, created_by="ann")
            with pytest.raises(NotAuthorized, match="ALTER"):
                apply_expansion(admin, journal, plan)
            assert admin.topics([topic])[0].partition_count == 1
        assert apply_expansion(admin, journal, plan).event_id is not None
        assert admin.topics([topic])[0].partition_count == 2
    for acl in (*acls, Acl("DESCRIBE", "topic", topic)):
        guarded_workload.revoke(USER, acl.operation, acl.kind.upper(), acl.name)


def test_describe_on_a_topic_is_enough_for_its_epochs(guarded: EmbeddedBroker, guarded_workload: Workload) -> None:
    """R003-19: where the records of a leader epoch end is answered to who may describe the topic, and to no other one;
    no right on the cluster is needed."""
    topic = "with-epochs"
    guarded_workload.create_topic(topic)
    guarded_workload.produce(topic, 3)
    with ShareGroupAdmin(guarded.config("admin")) as admin:
        [listed] = list_partitions(client_of(admin), [topic])
    own, leader = OffsetForLeaderEpochRequest.OffsetForLeaderTopic, listed.partitions[0]
    row = own.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=leader.leader_epoch, leader_epoch=leader.leader_epoch
    )
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[own(topic=topic, partitions=[row])])

    def answer() -> tuple[int, int]:
        """Error code and end offset."""
        with ShareGroupAdmin(guarded.config(USER)) as admin:
            [reply] = client_of(admin).send_all([(leader.leader_id, request)])
        assert not isinstance(reply, NoResponse)
        found = reply.topics[0].partitions[0]
        return found.error_code, found.end_offset

    assert answer() == (TOPIC_AUTHORIZATION_FAILED, -1)
    guarded_workload.allow(USER, "DESCRIBE", "TOPIC", topic)
    until(lambda: answer() == (NONE, 3), what="the end of the epoch")
    guarded_workload.revoke(USER, "DESCRIBE", "TOPIC", topic)


def test_a_super_user_misses_nothing_of_a_branch(guarded: EmbeddedBroker) -> None:
    assert {LOOK, EXPANSION} <= {*purposes()}
    with ShareGroupAdmin(guarded.config("admin")) as admin:
        assert not missing(admin, [*needed(LOOK), *needed(EXPANSION)])
