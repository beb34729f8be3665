"""Looks at a real broker have what direct questions answer."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from drivers.rights import OFTEN, SEEN, TOPICS, says_which_rights
from expansion.support.committed import commit
from servers.workload import Workload

from acktrail.config import TablesConfig
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.tables.delta.store import Tables
from acktrail_expansion.looks.ledger_connector import take_look

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]


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


def test_it_says_which_rights_it_lacks(guarded: EmbeddedBroker, guarded_workload: Workload, tmp_path: Path) -> None:
    """DESCRIBE on groups and topics."""
    says_which_rights(guarded, guarded_workload, tmp_path, "PartitionLedgerSource", (SEEN[0], TOPICS), OFTEN)
