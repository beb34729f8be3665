"""Which partitions are to be finished, and how far, before a record may be delivered."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from acktrail_expansion.ordering.order import KeyMapping
from acktrail_simulation.expansion.expansion_controller import ExpansionController
from acktrail_simulation.expansion.expansion_messages import EpochsTopic, LeaderEpochsForPartitionsRequest
from acktrail_simulation.expansion.key_partitions import sources_across


class Gating(StrEnum):
    """What members wait for."""

    NONE = "none"
    """Nothing, as in Kafka."""
    LOWER_PARTITIONS = "lower_partitions"
    """KIP-253: a new partition for all below it, as they were when it was made; and records from after a deletion for
    the deleted partition. Enough where each count is a multiple or a divisor of the one before."""
    EVERY_SOURCE = "every_source"
    """Each partition that is there after a change for those its keys can have come from, in any change so far. The
    document has no message for what members know here."""


TO_THE_END = 1 << 31
"""In place of an epoch: up to the end of the partition."""


def sources_of(
    gating: Gating, controller: ExpansionController, mapping: KeyMapping, partition: int, epoch: int
) -> Mapping[int, int]:
    """What records of `partition` with leader epoch `epoch` wait for: by source, the epoch whose start is to be
    reached there. Partitions that are gone are waited for by none."""
    if gating is Gating.NONE:
        return {}
    if gating is Gating.EVERY_SOURCE:
        return _every_source(controller, mapping, partition, epoch)
    sources = {q: e for q, e in _maps(controller, partition)[0].items() if e and q in controller.partitions}
    for marked in controller.marked:
        if marked > partition and epoch > _maps(controller, marked)[1].get(partition, epoch):
            sources[marked] = TO_THE_END
    return sources


def _maps(controller: ExpansionController, partition: int) -> list[dict[int, int]]:
    """The two maps of one partition, as a member asks for them."""
    asked = LeaderEpochsForPartitionsRequest(topics=(EpochsTopic(topic=controller.topic, partitions=(partition,)),))
    answer = controller.leader_epochs_for(asked)
    return [{each.partition: each.leader_epoch for each in found.partitions} for found in answer.topics]


def _every_source(controller: ExpansionController, mapping: KeyMapping, partition: int, epoch: int) -> dict[int, int]:
    changes = controller.changes
    newest = max(index for index, each in enumerate(changes) if each.epochs.get(partition, TO_THE_END) <= epoch)
    counts = [each.old_count for each in changes[: newest + 1]] + [changes[newest].new_count]
    first = 1 if counts[0] == 0 else 0  # the topic's creation is a change from none
    if len(counts) - first < 2 or partition >= counts[-1]:
        return {}
    found = sources_across(counts[first:], partition, mapping)
    known = {source: changes[index + first].epochs.get(source) for source, index in found.items()}
    return {source: at for source, at in known.items() if at is not None}
