"""Where groups of every type are in the partitions of topics."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.descriptions import CommittedOffset, CommittedOffsets, GroupListing, GroupOffsets, ShareOffset

_SHARE: Final = "share"
_COMMITTING: Final = ("consumer", "classic", "streams")

_Row = dict[str, Any]


def observe_positions(
    admin: ShareGroupAdmin, topic_ids: Mapping[str, str | None], clock: Callable[[], dt.datetime]
) -> Iterator[_Row]:
    """Rows of ``group_positions``, without the run's own columns, in the topics that `topic_ids` names.

    Each committing group is read once: its coordinator has all offsets, and gives them as of one time. Share groups are
    read twice, one whole reading after the other: each partition's state is kept apart, so that only a position of the
    first reading is older for certain than one of the second. A group whose coordinator is silent is one row with the
    reason.
    """
    groups = admin.list_groups(types=())
    shares = [group for group in groups if group.group_type == _SHARE]
    at = clock()
    yield from _rows(_share_positions(admin, shares), at, topic_ids)
    others = {group.group_id: group.group_type for group in groups if group.group_type in _COMMITTING}
    at = clock()
    read = admin.committed_offsets(others, tolerates_silence=True)
    yield from _rows(((others[group.group_id], group) for group in read), at, topic_ids)
    at = clock()
    yield from _rows(_share_positions(admin, shares), at, topic_ids)


def _share_positions(admin: ShareGroupAdmin, shares: Sequence[GroupListing]) -> Iterator[tuple[str, GroupOffsets]]:
    offsets = admin.describe_group_offsets([group.group_id for group in shares], tolerates_silence=True)
    return ((_SHARE, group) for group in offsets)


def _rows(
    read: Iterable[tuple[str, GroupOffsets | CommittedOffsets]], at: dt.datetime, topic_ids: Mapping[str, str | None]
) -> Iterator[_Row]:
    for group_type, group in read:
        own = {"observed_at": at, "group_id": group.group_id, "group_type": group_type}
        if group.error_code:
            yield {**own, "error_code": group.error_code, "error": group.error}
            continue
        for offset in group.offsets:
            if offset.topic in topic_ids:
                yield {
                    **own,
                    "topic_id": topic_ids[offset.topic],
                    "topic": offset.topic,
                    "partition": offset.partition,
                    "position": _position(offset),
                    "lag": offset.lag if isinstance(offset, ShareOffset) else None,
                    "error_code": offset.error_code,
                    "error": offset.error,
                }


def _position(offset: ShareOffset | CommittedOffset) -> int | None:
    return offset.start_offset if isinstance(offset, ShareOffset) else offset.offset
