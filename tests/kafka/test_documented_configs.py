"""The configurations in the founding documents, compared with a running broker and the client."""

from __future__ import annotations

from typing import Final

import pytest
from confluent_kafka import ShareConsumer
from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType
from servers.workload import Worked, Workload

from acktrail.kafka.admin import ShareGroupAdmin

Defaults = dict[str, str | None]

DOCUMENTED: Final[Defaults] = {
    "group.share.max.record.lock.duration.ms": "60000",
    "group.share.session.timeout.ms": "45000",
    "group.share.min.session.timeout.ms": "45000",
    "group.share.max.session.timeout.ms": "60000",
    "group.share.heartbeat.interval.ms": "5000",
    "group.share.min.heartbeat.interval.ms": "5000",
    "group.share.max.heartbeat.interval.ms": "15000",
    "group.share.max.size": "200",
    "group.share.assignors": "simple",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.segment.bytes": "104857600",
    "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.threads": "1",
}
"""Released as documented, some under another name."""

RELEASED: Final[Defaults] = {
    "group.share.partition.max.record.locks": "2000",
    "group.share.min.record.lock.duration.ms": "15000",
    "group.share.max.share.sessions": "2000",
}
"""Released with another default than the documents have: 200 locks, locks of at least 1,000 ms, at most 10 groups."""

GONE: Final = {"group.share.enable", "group.share.max.groups", "group.share.record.lock.duration.max.ms"}
"""In the documents, and not in what was released."""

NOT_FOR_MEMBERS: Final = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "true",
    "group.instance.id": "one",
    "heartbeat.interval.ms": "3000",
    "isolation.level": "read_committed",
    "partition.assignment.strategy": "range",
    "session.timeout.ms": "45000",
}


@pytest.fixture(scope="module")
def defaults(workload: Workload) -> Defaults:
    """The broker's own default of every configuration, not the value it was started with."""
    node = next(iter(workload.admin.list_topics(timeout=120).brokers))
    (found,) = workload.admin.describe_configs([ConfigResource(ResourceType.BROKER, str(node))]).values()
    return {
        name: said.value
        for name, entry in found.result(timeout=120).items()
        for said in entry.synonyms.values()
        if said.source == ConfigSource.DEFAULT_CONFIG.value
    }


def test_defaults_are_as_documented(defaults: Defaults) -> None:
    """R001-27, R001-29 to R001-34, R001-36, R001-37, R002-19, R002-21 to R002-26, R002-28, R002-29, R002-31 to
    R002-34: the proposed values are the defaults of brokers."""
    assert {name: defaults[name] for name in DOCUMENTED} == DOCUMENTED


def test_defaults_that_were_released_otherwise(defaults: Defaults) -> None:
    """R001-26, R001-28, R001-35, R002-18, R002-20, R002-27: documented with other numbers; what brokers do counts."""
    assert {name: defaults[name] for name in RELEASED} == RELEASED


def test_what_is_gone_is_not_there(defaults: Defaults) -> None:
    """R001-24, R001-35, R002-15, R002-27: share groups are there by the feature `share.version`."""
    assert not defaults.keys() & GONE


def test_share_groups_need_no_rebalance_protocol(defaults: Defaults) -> None:
    """R002-16: `share` is none of the protocols that are switched on by name."""
    assert "share" not in (defaults["group.coordinator.rebalance.protocols"] or "").split(",")


def test_what_share_consumers_do_not_take() -> None:
    """R002-35 to R002-39, R002-42, R002-43: what consumers are configured with is refused by share consumers."""
    for name, value in NOT_FOR_MEMBERS.items():
        with pytest.raises(ValueError, match=f"`{name}` is not"):
            ShareConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", name: value})


def test_what_became_configurations_of_groups(admin: ShareGroupAdmin, worked: Worked) -> None:
    """R002-35, R002-38: the start offset and the isolation level are configured for each group."""
    (found,) = admin.group_configs([worked.group])
    assert {"share.auto.offset.reset", "share.isolation.level"} <= (found.configs or {}).keys()
