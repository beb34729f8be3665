"""Records of copied files back in the order of their log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from acktrail.errors import InputError
from acktrail.wire.raw_record import RawRecord

__all__ = ["in_log_order"]


def in_log_order(records: Iterable[RawRecord]) -> Iterator[RawRecord]:
    """`records` by state partition and offset, each address once.

    Raises:
        InputError: two different records claim one address: the files come from different logs.
    """
    before: RawRecord | None = None
    for record in sorted(records, key=lambda r: (r.state_partition, r.offset)):
        if before is None or (before.state_partition, before.offset) != (record.state_partition, record.offset):
            yield record
        elif (before.key, before.value) != (record.key, record.value):
            raise InputError(
                f"two different records at state partition {record.state_partition}, offset {record.offset}",
                hint="the files come from different clusters or from different incarnations of the state topic",
                data={"state_partition": record.state_partition, "offset": record.offset},
            )
        before = record
