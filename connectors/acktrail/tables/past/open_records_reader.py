"""What share groups had left of old partitions when the history first shows them at work in those keys moved to."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from acktrail.errors import ConfigurationError
from acktrail.model.expansion.open_records import OpenRecords, first_work, open_records
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail.tables.delta.store import Tables
from acktrail.tables.past.history_reader import HistoryReader

_SHARE: Final = "share"
_LAST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWhenBegun:
    """One destination of one share group: `begun_at_ms` is the broker's time of the first state record that shows a
    delivery there of a record from after the expansion; `left` are records of the source from before it. Where
    `is_by_time` is true the two are on different state partitions, whose records only the brokers' clocks order: then
    `left.open_records` is the least number."""

    group_id: str
    partition: int
    source_partition: int
    begun_at_ms: int | None
    is_by_time: bool
    left: OpenRecords

    @property
    def begun_at(self) -> dt.datetime | None:
        """The same as an instant."""
        return None if self.begun_at_ms is None else dt.datetime.fromtimestamp(self.begun_at_ms / 1_000, dt.UTC)


def open_when_begun(
    tables: Tables, audits: Iterable[Mapping[str, Any]], begins: Mapping[int, int | None]
) -> Iterator[OpenWhenBegun]:
    """For the share groups among `audits` (rows of ``ordering_audits``), in their order. `begins`: the first offset of
    each destination that is certainly from after the expansion. Left out: destinations where no delivery is known, and
    all of them without a history. Two lookups in ``delivery_history`` a row: ask for some."""
    try:
        reader = HistoryReader(tables)
    except ConfigurationError:
        return
    for row in audits:
        begin = begins.get(row["partition"])
        if row["group_type"] != _SHARE or begin is None or row["fence_low"] is None:
            continue
        found = _of_row(reader, row, begin)
        if found is not None:
            yield found


def _of_row(reader: HistoryReader, row: Mapping[str, Any], begin: int) -> OpenWhenBegun | None:
    destination = reader.changes_between(_key(row, row["partition"]), begin, _LAST)
    work = None if destination is None else first_work(destination, begin)
    source = reader.changes_between(_key(row, row["source_partition"]), 0, max(0, row["fence_low"] - 1))
    if work is None or source is None:
        return None
    return OpenWhenBegun(
        group_id=row["group_id"],
        partition=row["partition"],
        source_partition=row["source_partition"],
        begun_at_ms=work.timestamp_ms,
        is_by_time=any(change.at.state_partition != work.state_partition for change in source),
        left=open_records(source, 0, row["fence_low"], work),
    )


def _key(row: Mapping[str, Any], partition: int) -> SharePartition:
    return SharePartition(group_id=GroupId(row["group_id"]), topic_id=TopicId(row["topic_id"]), partition=partition)
