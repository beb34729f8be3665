"""`acktrail groups describe` against the main class of kafka-share-groups.sh on the same jars."""

from __future__ import annotations

import sys
from pathlib import Path

from kafka_tool import kafka_tool
from measure import in_turn
from table import Row

from acktrail.embedded import EmbeddedBroker
from acktrail.embedded.workload.workload_run import run_workload

SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"


def compare(broker: EmbeddedBroker, group: str | None = None, rounds: int = 7) -> list[Row]:
    """The table's rows for a group of a broker; None: for one of the demo, which is put there."""
    if group is None:
        group = min(plan.group_id for plan in run_workload(broker.bootstrap_servers).scenario.groups)
    acktrail = Path(sys.executable).with_name("acktrail")
    ours, theirs = in_turn(
        [str(acktrail), "groups", "describe", group, "--bootstrap-server", broker.bootstrap_servers],
        kafka_tool(
            broker.version, SHARE_GROUPS, "--bootstrap-server", broker.bootstrap_servers, "--describe", "--group", group
        ),
        rounds=rounds,
    )
    return [
        Row(
            what="groups describe GROUP",
            ours=str(ours),
            beside=f"kafka-share-groups: {theirs}",
            ratio=ours.ratio(theirs),
        )
    ]
