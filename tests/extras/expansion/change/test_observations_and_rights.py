"""Looks at real brokers have what direct questions answer, and show by leader epochs that records were lost; the ACLs
that `acktrail doctor` suggests for them and for an expansion are enough where all others are denied."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import pytest
from drivers.rights import SEEN, TOPICS, grant, missing, without
from drivers.rights_of_sources import OFTEN, says_which_rights
from extras.expansion.support.rows import audit
from extras.expansion.support.true_traffic import commit
from servers.broker_pair import broker_pair
from servers.guarded_broker import GuardedBroker
from servers.real_broker import kill
from servers.workload import Workload, until

from acktrail.change import api
from acktrail.change.cluster import Cluster
from acktrail.config import TablesConfig
from acktrail.errors import NotAuthorized
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.model.acls import Acl, needed
from acktrail.tables.delta.store import Tables
from acktrail_embedded import EmbeddedBroker
from acktrail_expansion.change.expansion_plan import make_plan
from acktrail_expansion.keys.key_reading import read_keys
from acktrail_expansion.observations.ledger_connector import listed_by_brokers, take_look
from acktrail_expansion.ordering.order import FenceGap
from acktrail_expansion.settings import EXPANSION, LOOK
from acktrail_jobs.frames import in_process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

USER: Final = "fewest"


def test_the_acls_of_an_expansion_are_enough(
    guarded: GuardedBroker, guarded_workload: Workload, tmp_path: Path
) -> None:
    """Without ALTER the plan is refused, and a plan that was made before is refused by the controller, which is noted;
    with the ACLs it is made and carried out, and the group is in it. Keys need READ, too."""
    config, topic, group_id = guarded.config(USER), "to-expand", "expansion-reader"
    tables = TablesConfig(uri=str(tmp_path))
    guarded_workload.create_topic(topic)
    guarded_workload.produce(topic, 3)
    guarded_workload.acknowledge(group_id, topic, 1)
    acls = [*needed(EXPANSION, [group_id], [topic]), *needed(LOOK, [group_id], [topic])]
    grant(guarded_workload, USER, acls)
    with ShareGroupAdmin(config) as admin, Cluster(config) as cluster:
        until(lambda: not missing(admin, acls), what="every ACL")
        plan = make_plan(admin, topic, 2, created_by="ann")
        assert [(group.group_id, group.open_records) for group in plan.readers] == [(group_id, 2)]
        journal = api.open_journal(tables, plan, actor="ann")
        journal.write_plan(plan)
        with without(guarded_workload, USER, config, Acl("ALTER", "topic", topic), acls):
            with pytest.raises(NotAuthorized, match="ALTER"):
                make_plan(admin, topic, 2, created_by="ann")
            with pytest.raises(NotAuthorized, match="ALTER"):
                api.execute(cluster, journal, plan)
        api.execute(cluster, journal, plan)
        api.verify(cluster, journal, plan)
        with pytest.raises(NotAuthorized, match="READ on the topic"):
            read_keys(config, Tables(tables), in_process(), {"topic": topic, "event_id": "e"})
    outcomes = [row.outcome for row in journal.audit() if row.outcome]
    assert outcomes == ["refused", "done", "done"]
    for acl in acls:
        guarded_workload.revoke(USER, acl.operation, acl.kind.upper(), acl.name)


def test_a_look_has_what_the_brokers_answer(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Counts, ends, positions and lag are those of direct questions; a share group is read twice, with the place of its
    state record; a topic that is gone is a row with its error; a look is stored once."""
    kafka, tables, workload = broker.config(), TablesConfig(uri=str(tmp_path)), Workload(broker.config())
    workload.create_topic("looked", 3)
    workload.produce("looked", 7, partition=1)
    workload.acknowledge("look-share", "looked", 4)
    commit(workload.admin, "look-classic", "looked", 0, 5)
    with ShareGroupAdmin(kafka) as admin:
        for _ in range(2):
            take_look(admin, tables, topics=["looked", "never-there"], run_id="once")
        (direct,) = admin.describe_offsets("look-share", {"looked": [1]})

    rows = {(row["topic"], row["partition"]): row for row in Tables(tables).rows("partition_observations")}
    assert rows.pop(("never-there", None))["error_code"] == 3
    names = ("log_end_offset", "consistency", "partition_count", "leader_epoch")
    assert {place[1]: tuple(row[name] for name in names) for place, row in rows.items()} == {
        partition: (end, "consistent", 3, 0) for partition, end in enumerate((0, 7, 0))
    }
    positions: dict[Any, list[Any]] = defaultdict(list)
    for row in Tables(tables).rows("group_positions"):
        positions[row["group_id"], row["group_type"], row["partition"]].append(row)
    share = positions["look-share", "share", 1]
    assert [(row["position"], row["lag"]) for row in share] == [(direct.start_offset, direct.lag)] * 2 == [(4, 3)] * 2
    assert len({row["observed_at"] for row in share}) == 2
    assert min(row["state_end_offset"] for row in share) >= 4, "a state record each acknowledgement"
    (classic,) = positions["look-classic", "classic", 1]
    assert (classic["position"], classic["lag"], classic["state_partition"]) == (5, None, None)


def test_it_says_which_rights_it_lacks(guarded: GuardedBroker, guarded_workload: Workload, tmp_path: Path) -> None:
    """DESCRIBE on groups and topics."""
    says_which_rights(guarded, guarded_workload, tmp_path, "PartitionLedgerSource", (SEEN[0], TOPICS), OFTEN)


@pytest.mark.broker
@pytest.mark.full
def test_a_log_that_lost_records_and_grew_again_is_never_safe(tmp_path: Path) -> None:
    """R003-09, R003-19: its leader ends with records that no other node has; the other one leads, and gets more. The
    log's end lies above what was there before, so only the leader epochs show the loss. The partition beside it has a
    fence."""
    tables = TablesConfig(uri=str(tmp_path))
    with broker_pair({"unclean.leader.election.enable": "true"}) as pair, ShareGroupAdmin(pair.first.config()) as admin:
        workload = Workload(pair.first.config())
        pair.create_topic("lossy", [2, 1], {"min.insync.replicas": "1"})
        for partition in (0, 1):
            workload.produce("lossy", 40, partition)
        pair.link.go_down()
        workload.produce("lossy", 20, 0)
        take_look(admin, tables, topics=["lossy"])
        kill(pair.second)
        until(lambda: pair.leaders("lossy") == [1, 1], what="a leader without the records")
        workload.produce("lossy", 40, 0)
        pair.second.start()
        pair.link.come_back()
        until(lambda: {1, 2} <= workload.admin.list_topics(timeout=30).brokers.keys(), what="both brokers")
        workload.add_partitions("lossy", 3)
        until(lambda: [one["lossy"][1] for one in listed_by_brokers(admin, ["lossy"])] == [3, 3], what="partitions")
        for _ in range(2):
            take_look(admin, tables, topics=["lossy"])
    audit(tables, settle="0s")

    names = ("fence_low", "fence_high", "reason")
    fences = {row["partition"]: tuple(row[name] for name in names) for row in Tables(tables).rows("expansion_fences")}
    assert fences == {0: (None, None, FenceGap.TRUNCATED), 1: (40, 40, None)}
    looks = sorted(Tables(tables).rows("partition_observations", {"partition": 0}), key=lambda row: row["observed_at"])
    assert [row["epoch_end_offset"] for row in looks] == [None, 40, 40]
