"""The ACLs that `acktrail doctor` suggests for an expansion are enough where all others are denied."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from drivers.rights import grant, missing, without
from expansion.support.seen_looks import in_process
from servers.workload import Workload, until

from acktrail.change import api
from acktrail.change.cluster import Cluster
from acktrail.config import TablesConfig
from acktrail.embedded import EmbeddedBroker
from acktrail.errors import NotAuthorized
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.model.acls import Acl, needed
from acktrail.tables.delta.store import Tables
from acktrail_expansion.change.expansion_plan import make_plan
from acktrail_expansion.keys.key_reading import read_keys
from acktrail_expansion.settings import EXPANSION, LOOK

pytestmark = [pytest.mark.broker, pytest.mark.slow]

USER: Final = "fewest"


def test_the_acls_of_an_expansion_are_enough(
    guarded: EmbeddedBroker, guarded_workload: Workload, tmp_path: Path
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
        with without(guarded_workload, USER, config, Acl("ALTER", "topic", topic), acls):
            with pytest.raises(NotAuthorized, match="ALTER"):
                make_plan(admin, topic, 2, created_by="ann")
            with pytest.raises(NotAuthorized, match="ALTER"):
                api.execute(cluster, journal, plan)
        api.execute(cluster, journal, plan)
        api.verify(cluster, journal, plan)
        with pytest.raises(NotAuthorized, match="READ on the topic"):
            read_keys(config, Tables(tables), in_process, {"topic": topic, "event_id": "e"})
    outcomes = [row.outcome for row in journal.audit() if row.outcome]
    assert outcomes == ["refused", "done", "done"]
    for acl in acls:
        guarded_workload.revoke(USER, acl.operation, acl.kind.upper(), acl.name)
