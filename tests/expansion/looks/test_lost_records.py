"""What leaders say of the epochs before theirs, and the loss of records that this shows, on real brokers."""

from __future__ import annotations

from pathlib import Path

import pytest
from expansion.support.rows import audit
from servers.broker_pair import broker_pair
from servers.real_broker import kill
from servers.workload import Workload, until

from acktrail.config import TablesConfig
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.tables.delta.store import Tables
from acktrail_expansion.law.order import FenceGap
from acktrail_expansion.looks.ledger_connector import listed_by_brokers, take_look

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.full]


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
