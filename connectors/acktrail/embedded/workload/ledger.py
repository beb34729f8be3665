"""What the consumers of one group did, as the broker confirmed it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from acktrail.embedded.workload.scenario import FinalAck, GroupPlan, PartitionLog
from acktrail.embedded.workload.workload_report import Action, Fate, KindT, OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmedAck:
    """One confirmed acknowledgement of one delivery."""

    log: PartitionLog
    offset: int
    action: Action
    delivery_count: int


class Ledger:
    """All acknowledgements of a group, and which records are still to be settled. Its members share it."""

    def __init__(self, plan: GroupPlan, *, limit: int) -> None:
        self.plan = plan
        self.limit = limit
        """The delivery count limit: a record that is released at this delivery is archived."""
        self._lock = threading.Lock()
        self._entries: dict[PartitionLog, dict[int, list[ConfirmedAck]]] = {}
        self._pending: dict[PartitionLog, set[int]] = {}
        self._settled = 0

    def outstanding(self, logs: Iterable[PartitionLog]) -> int:
        """Records of these logs that were announced and are not settled."""
        with self._lock:
            return sum(len(self._pending.get(log, ())) for log in logs)

    @property
    def settled(self) -> int:
        """Records that were announced and are settled."""
        return self._settled

    def announce(self, log: PartitionLog, offsets: Iterable[int]) -> None:
        """These records are to be settled."""
        with self._lock:
            self._pending.setdefault(log, set()).update(offsets)

    def decide(self, log: PartitionLog, offset: int, delivery_count: int) -> ConfirmedAck:
        """What the plan says about this delivery."""
        record_plan = self.plan.record_plan(log, offset)
        again = delivery_count <= record_plan.releases
        action = Action.RELEASE if again else _ACTIONS[record_plan.final]
        return ConfirmedAck(log=log, offset=offset, action=action, delivery_count=delivery_count)

    def confirm(self, entries: Iterable[ConfirmedAck]) -> None:
        """The broker took these acknowledgements."""
        with self._lock:
            for entry in entries:
                self._entries.setdefault(entry.log, {}).setdefault(entry.offset, []).append(entry)
                pending = self._pending.get(entry.log, set())
                if entry.offset in pending and self._settles(entry):
                    pending.remove(entry.offset)
                    self._settled += 1

    def of(self, log: PartitionLog) -> Mapping[int, Sequence[ConfirmedAck]]:
        """The entries of a log by offset, in the order they were confirmed."""
        with self._lock:
            return {offset: tuple(entries) for offset, entries in self._entries.get(log, {}).items()}

    def _settles(self, entry: ConfirmedAck) -> bool:
        if entry.action is not Action.RELEASE:
            return True
        left = self.plan.record_plan(entry.log, entry.offset).final is FinalAck.LEAVE
        return left or entry.delivery_count >= self.limit


_ACTIONS = {
    FinalAck.ACCEPT: Action.ACCEPT,
    FinalAck.REJECT: Action.REJECT,
    FinalAck.EXHAUST: Action.RELEASE,
    FinalAck.LEAVE: Action.RELEASE,
}


def action_ranges(entries: Mapping[int, Sequence[ConfirmedAck]]) -> tuple[OffsetRange[Action], ...]:
    """Every confirmed acknowledgement of a log, by delivery count, then offset; neighbours joined."""
    confirmed = sorted((ack.delivery_count, ack.offset, ack.action) for acks in entries.values() for ack in acks)
    return _joined((offset, action, count) for count, offset, action in confirmed)


def fate_ranges(
    entries: Mapping[int, Sequence[ConfirmedAck]], *, end_offset: int, limit: int
) -> tuple[OffsetRange[Fate], ...]:
    """The expected fate of every offset from 0 to `end_offset`, neighbours joined."""
    return _joined((offset, *_fate(entries.get(offset, ()), limit)) for offset in range(end_offset))


def _fate(entries: Sequence[ConfirmedAck], limit: int) -> tuple[Fate, int]:
    """The fate of one offset after these acknowledgements, with its delivery count."""
    if not entries:
        return Fate.NEVER_DELIVERED, 0
    last = entries[-1]
    if last.action is Action.ACCEPT:
        return Fate.ACKNOWLEDGED, last.delivery_count
    is_archived = last.action is Action.REJECT or last.delivery_count >= limit
    return Fate.ARCHIVED if is_archived else Fate.AVAILABLE, last.delivery_count


def _joined(offsets: Iterable[tuple[int, KindT, int]]) -> tuple[OffsetRange[KindT], ...]:
    """Ranges from offset, kind and delivery count: consecutive offsets that agree in both are one range."""
    ranges: list[OffsetRange[KindT]] = []
    for offset, kind, count in offsets:
        last = ranges[-1] if ranges else None
        if last is not None and (last.last_offset + 1, last.kind, last.delivery_count) == (offset, kind, count):
            ranges[-1] = replace(last, last_offset=offset)
        else:
            ranges.append(OffsetRange(first_offset=offset, last_offset=offset, kind=kind, delivery_count=count))
    return tuple(ranges)
