"""`acktrail groups describe` against the main class of kafka-share-groups.sh on the same jars."""

from __future__ import annotations

import sys
from pathlib import Path

from measure import in_turn

from acktrail.embedded import EmbeddedBroker, KafkaTool
from acktrail.embedded.workload import run_workload

SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"


def compare(rounds: int = 7) -> list[tuple[str, str]]:
    """Rows of (what, figure) for one group of the demo."""
    acktrail = Path(sys.executable).with_name("acktrail")
    with EmbeddedBroker() as broker:
        group = min({item.group_id for item in run_workload(broker.bootstrap_servers).share_partitions})
        ours, theirs = in_turn(
            [str(acktrail), "groups", "describe", group, "--bootstrap-server", broker.bootstrap_servers],
            KafkaTool(broker.version).command(
                SHARE_GROUPS, "--bootstrap-server", broker.bootstrap_servers, "--describe", "--group", group
            ),
            rounds=rounds,
        )
    return [
        ("acktrail groups describe", f"{ours.wall_s:.2f} s wall, {ours.cpu_s:.2f} s CPU"),
        ("kafka-share-groups.sh", f"{theirs.wall_s:.2f} s wall, {theirs.cpu_s:.2f} s CPU"),
        ("ratio", f"{theirs.wall_s / ours.wall_s:.1f}x faster, {theirs.cpu_s / ours.cpu_s:.1f}x less CPU"),
    ]
