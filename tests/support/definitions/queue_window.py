"""The observations of a share partition that its status is judged by, and what is known beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from acktrail.model.queue_status import COUNTED, LEAST, LONGEST, WINDOW


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueObservation:
    """A share partition at one observation. Times in µs since the epoch; offsets, counts and times None: not known.

    `unfinished_records`: from the first unfinished offset to the log end.
    `recorded_at`: when the newest state record was written. `acknowledged`, `released`, `archived`: since the
    observation before.
    """

    observed_at: int
    recorded_at: int | None = None
    first_unfinished_offset: int | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    unfinished_records: int | None = None
    state_epoch: int | None = None
    archiving_records: int | None = None
    acknowledged: int | None = None
    released: int | None = None
    archived: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueContext:
    """What is known beside the window, as of its newest observation; None: not known. Times in µs since the epoch.

    `completeness` (``Completeness``) None: no state was replayed. `critical_finding`: rule and detail of the worst
    critical one, None: none. `no_members_since`: the first observation in a row without members, None: it has some.
    `lost_records`: removed by the retention before they were finished. `archived_seen`: archived in any exported
    record. `unseen_at`: the newest observation at which more was archived than acknowledged, None: somebody has
    acknowledged that.
    """

    completeness: str | None = None
    verdict: str | None = None
    verdict_reason: str | None = None
    critical_finding: str | None = None
    members: int | None = None
    first_look_at: int = 0
    no_members_since: int | None = None
    lost_records: int | None = None
    archived_seen: int | None = None
    unseen_at: int | None = None


def next_window(before: Sequence[QueueObservation], newest: QueueObservation) -> list[QueueObservation]:
    """The observations of `before`, and `newest`, that matter: those within ``WINDOW``, and the newest ``LEAST`` of
    them. Of more than ``LONGEST`` the one between the two that are closest leaves its counts to the next one, which is
    never the newest."""
    found = [*before, newest]
    oldest = newest.observed_at - WINDOW
    found = [each for n, each in enumerate(found) if each.observed_at > oldest or n >= len(found) - LEAST]
    if len(found) > LONGEST:
        spans = [later.observed_at - earlier.observed_at for earlier, later in zip(found, found[2:-1], strict=False)]
        place = 1 + spans.index(min(spans))
        gone, heir = found[place : place + 2]
        sums: dict[str, Any] = {name: _added(getattr(gone, name), getattr(heir, name)) for name in COUNTED}
        found[place : place + 2] = [replace(heir, **sums)]
    return found


def _added(count: int | None, other: int | None) -> int | None:
    return None if count is None or other is None else count + other
