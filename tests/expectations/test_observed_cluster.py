"""What an observation says decides what is compared with what."""

from __future__ import annotations

import pyarrow as pa
import pytest
from expectations.sample_tables import cluster, groups, logs
from state_topics.coordinator_log import TOPIC

from acktrail_expectations.frames.frame_columns import observed_cluster


@pytest.mark.parametrize(
    ("configs", "states"),
    [
        ({"share.delivery.count.limit": "5"}, (0, 2, 4)),
        ({"share.auto.offset.reset": "latest"}, (0, 2, 4)),
        ({"errors.deadletterqueue.topic.name": ""}, (0, 2, 3, 4)),
        ({}, (0, 2, 3, 4)),
    ],
)
def test_archiving_comes_with_the_dead_letter_queue(configs: dict[str, str], states: tuple[int, ...]) -> None:
    """A release that configures dead letter queues may archive in two steps; unknown releases are not judged."""
    assert cluster(configs=configs).delivery_states == states


def test_a_group_s_own_limit_counts() -> None:
    """The limit that the cluster reports, the higher one if it changed, else the broker's default."""
    observed = pa.concat_tables(
        [groups({"share.delivery.count.limit": "3"}), groups({"share.delivery.count.limit": "8"}), groups(None)]
    )

    found = observed_cluster(observed, logs())

    assert [found.delivery_count_limit(group) for group in ("orders", "others", None)] == [8, 5, 5]
    assert cluster(configs={"share.delivery.count.limit": "many"}).delivery_count_limit("orders") == 5


def test_logs_are_as_the_later_sample_says() -> None:
    """A log end only grows: the greater of the two samples is the newer one; the state topic has a row a partition."""
    observed = cluster(offsets=logs(ends={(TOPIC, 0): (3, 100)}))

    assert [row for row in observed.logs.to_pylist() if row["topic_id"] == TOPIC] == [
        {"topic_id": TOPIC, "partition": 0, "log_start_offset": 3, "log_end_offset": 100}
    ]
    assert observed.state_partition_count == 3
