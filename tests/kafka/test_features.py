"""Share groups that are switched off and on by the cluster's feature `share.version`."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivers.command_line import run
from drivers.own_process import printed
from servers.real_broker import kafka_tool
from servers.workload import Workload

from acktrail.kafka.admin import ShareGroupAdmin
from acktrail_embedded import EmbeddedBroker


@pytest.mark.broker
@pytest.mark.full
@pytest.mark.slow
def test_share_groups_are_switched_off_and_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R002-79: while the feature is off, commands name it and an export still has the records; afterwards each group
    stands where it stood."""
    with EmbeddedBroker() as broker, ShareGroupAdmin(broker.config()) as admin:
        brokers = ("--bootstrap-server", broker.bootstrap_servers)
        workload = Workload(broker.config())
        workload.create_topic("orders")
        workload.configure_group("g", **{"share.auto.offset.reset": "earliest"})
        workload.produce("orders", 9)
        workload.acknowledge("g", "orders", 5)
        before = admin.describe_offsets("g")

        for action, level in (("downgrade", 0), ("upgrade", 1)):
            asked = (*brokers, action, "--feature", f"share.version={level}")
            printed(*kafka_tool("org.apache.kafka.tools.FeatureCommand", *asked))
            done = run(capsys, "run", "export", *brokers, "--tables", tmp_path / "tables", "--json")
            assert done.code == 0
            if level == 0:
                assert "share.version" in run(capsys, "groups", "describe", "g", *brokers).complaint(3)
                assert done.answer["records_decoded"] > 0
        assert admin.describe_offsets("g") == before
        assert [offset.start_offset for offset in before] == [5]
