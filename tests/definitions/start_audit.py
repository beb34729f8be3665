"""Did a group get the first records of a partition that an expansion made? The definition, one group at a time."""

from __future__ import annotations

from dataclasses import dataclass

from acktrail.model.expansion.start_audit import StartVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAudit:
    """The verdict, and how many offsets at least the group never got (0 where it is proven that it got all); None: not
    known."""

    verdict: StartVerdict
    skipped_records: int | None = None


def audit_start(
    seen: int | None, initial: int | None, *, log_start_before: int, log_start: int | None, is_share: bool
) -> StartAudit:
    """Judge the beginning of a group that read the topic before in a partition that was new.

    `seen`: the first position that an observation saw; `initial`: the start offset of the share partition's first state
    with one, by the state topic from its beginning on; `log_start_before` and `log_start`: where the log began at the
    last observation that saw no position (0 where there was no partition), and at the one that saw `seen`. None: not
    known, or for `seen` that there is none.

    A position behind the log start proves nothing by itself: the group may have consumed what is before it. Only the
    initial offset does: there a group that has consumed nothing is placed. Until Kafka 4.3 ``share.auto.offset.reset``
    places a share group, by default at latest; from 4.4 on it is placed at offset 0 (KAFKA-20742). What the retention
    removed meanwhile is not counted as skipped, and then the verdict is UNKNOWN.
    """
    first = min((offset for offset in (seen, initial) if offset is not None), default=None)
    if first is None:
        return StartAudit(verdict=StartVerdict.UNINITIALIZED if is_share else StartVerdict.UNKNOWN)
    if first <= log_start_before:
        return StartAudit(verdict=StartVerdict.OK, skipped_records=0)
    if initial is None or log_start is None or initial <= log_start:
        return StartAudit(verdict=StartVerdict.UNKNOWN)
    return StartAudit(verdict=StartVerdict.SKIPPED_RECORDS, skipped_records=initial - log_start)
