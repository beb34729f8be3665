"""Continues the history of some share partitions with state records that are not exported yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from acktrail.broker.state.state_topic import StateTopic
from acktrail.group_changes.cluster import Cluster
from acktrail.model.offset_history.offset_status import KnownState
from acktrail.model.offset_history.status_changes import History, StatusChange
from acktrail.model.records import StateRecord
from acktrail.model.share_partition import SharePartition, state_partition_of
from acktrail.tables.past.settled_history import SettledHistory
from acktrail.wire.raw_record import AddressedRecord

Records = Sequence[tuple[SharePartition, AddressedRecord[StateRecord]]]


def add_newer(cluster: Cluster, history: SettledHistory) -> None:
    """Add to `history` the newer records of its share partitions that are behind. Records that were
    pruned before they were exported leave a gap, as in an export.

    Raises:
        NotAuthorized, Unreachable, RetryableError: the state topic cannot be read.
    """
    keys = {own.key for own in history.behind}
    positions, held = history.saved_states(keys)
    topic = StateTopic(cluster.admin)
    numbers = {state_partition_of(key, topic.partition_count) for key in keys}
    logs = topic.log_offsets(numbers)
    begins = {number: positions.get(number, 0) for number in numbers}
    starts = {number: max(begin, logs[number].log_start_offset or 0) for number, begin in begins.items()}
    records, ends = cluster.state_lookup(topic).read_from(keys, starts)
    own = {
        number: {key: state for key, state in held.items() if state_partition_of(key, topic.partition_count) == number}
        for number in numbers
    }
    gaps = {number: begin for number, begin in begins.items() if starts[number] > begin}
    history.add(_changes(records, own, gaps), {number: ends[number] for number in numbers})


def _changes(
    records: Records, held: Mapping[int, dict[SharePartition, KnownState]], gaps: Mapping[int, int]
) -> Iterator[StatusChange]:
    histories = {number: History(number, states) for number, states in held.items()}
    for number, first_offset in gaps.items():
        yield from histories[number].gap(first_offset)
    for key, addressed in sorted(records, key=_offset):
        history, raw = histories[addressed.raw.state_partition], addressed.raw
        if addressed.record is None:
            yield from history.unreadable(key, offset=raw.offset, timestamp_ms=raw.timestamp_ms)
        else:
            yield from history.record(addressed.record, offset=raw.offset, timestamp_ms=raw.timestamp_ms)


def _offset(record: tuple[SharePartition, AddressedRecord[StateRecord]]) -> tuple[int, int]:
    raw = record[1].raw
    return raw.state_partition, raw.offset
