"""What the consumers of one group did, as the broker confirmed it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from acktrail.embedded.workload.scenario import FinalAck, GroupPlan, PartitionLog
from acktrail.embedded.workload.workload_report import Action, ActionRange, Fate, FateRange

__all__ = ["ConfirmedAck", "Ledger", "action_ranges", "fate_ranges"]

T = TypeVar("T")


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


def action_ranges(entries: Mapping[int, Sequence[ConfirmedAck]]) -> tuple[ActionRange, ...]:
    """Every confirmed acknowledgement of a log, neighbours joined."""
    flat = sorted(
        (entry for several in entries.values() for entry in several), key=lambda e: (e.delivery_count, e.offset)
    )
    runs = _runs(flat, lambda e: e.offset, lambda e: (e.action, e.delivery_count))
    return tuple(
        ActionRange(
            first_offset=first.offset, last_offset=last.offset, action=first.action, delivery_count=first.delivery_count
        )
        for first, last in runs
    )


def fate_ranges(entries: Mapping[int, Sequence[ConfirmedAck]], *, end_offset: int, limit: int) -> tuple[FateRange, ...]:
    """What must have become of every offset from 0 to `end_offset`, neighbours joined."""
    fates = [(offset, *_fate(entries.get(offset, ()), limit)) for offset in range(end_offset)]
    return tuple(
        FateRange(first_offset=first[0], last_offset=last[0], fate=first[1], delivery_count=first[2])
        for first, last in _runs(fates, lambda f: f[0], lambda f: f[1:])
    )


def _fate(entries: Sequence[ConfirmedAck], limit: int) -> tuple[Fate, int]:
    if not entries:
        return Fate.NEVER_DELIVERED, 0
    last = entries[-1]
    match last.action:
        case Action.ACCEPT:
            return Fate.ACKNOWLEDGED, last.delivery_count
        case Action.REJECT:
            return Fate.ARCHIVED, last.delivery_count
        case Action.RELEASE:
            fate = Fate.ARCHIVED if last.delivery_count >= limit else Fate.AVAILABLE
            return fate, last.delivery_count


def _runs(items: Iterable[T], offset: Callable[[T], int], kind: Callable[[T], object]) -> Iterator[tuple[T, T]]:
    """First and last item of every run of consecutive offsets of one kind."""
    first = last = None
    for item in items:
        if first is not None and last is not None:
            if offset(item) == offset(last) + 1 and kind(item) == kind(last):
                last = item
                continue
            yield first, last
        first = last = item
    if first is not None and last is not None:
        yield first, last
