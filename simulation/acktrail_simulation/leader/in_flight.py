"""Records in a share-partition leader's memory: their state, the member that holds them, and until when.

The transitions are a table (``RecordState.validateTransition``). A record whose release finds its delivery count at
the limit is archived instead: the only transition that ends elsewhere than asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from acktrail.model.batches import TERMINAL_STATES, DeliveryState
from acktrail_simulation.leader.group_settings import ShareGroupSettings

TRANSITIONS: Final[Mapping[DeliveryState, frozenset[DeliveryState]]] = MappingProxyType(
    {
        DeliveryState.AVAILABLE: frozenset({DeliveryState.ACQUIRED, DeliveryState.ARCHIVED}),
        DeliveryState.ACQUIRED: frozenset(
            {
                DeliveryState.AVAILABLE,
                DeliveryState.ACKNOWLEDGED,
                DeliveryState.ARCHIVING,
                DeliveryState.ARCHIVED,
            }
        ),
        DeliveryState.ACKNOWLEDGED: frozenset(),
        DeliveryState.ARCHIVING: frozenset({DeliveryState.ARCHIVED}),
        DeliveryState.ARCHIVED: frozenset(),
    }
)
"""Available is archived without an acquisition only where its record is gone from the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightState:
    """One record, or a batch of records that are alike. `member_id` and `lock_expires_ms` while acquired only."""

    state: DeliveryState
    delivery_count: int
    member_id: str | None = None
    lock_expires_ms: int | None = None

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL_STATES


def acquired(held: InFlightState, member_id: str, *, lock_expires_ms: int) -> InFlightState:
    """An available record handed to a member: one attempt more."""
    _check(held.state, DeliveryState.ACQUIRED)
    return InFlightState(
        state=DeliveryState.ACQUIRED,
        delivery_count=held.delivery_count + 1,
        member_id=member_id,
        lock_expires_ms=lock_expires_ms,
    )


def after_settling(held: InFlightState, to: DeliveryState, settings: ShareGroupSettings) -> InFlightState:
    """An acquired record released, acknowledged or archived: no member holds it any more."""
    if to is DeliveryState.AVAILABLE and held.delivery_count >= settings.delivery_count_limit:
        to = DeliveryState.ARCHIVING if settings.dead_letter_queue else DeliveryState.ARCHIVED
    _check(held.state, to)
    return InFlightState(state=to, delivery_count=held.delivery_count)


def archived(held: InFlightState) -> InFlightState:
    """A record that is gone, or that the dead letter queue has; its count stays."""
    _check(held.state, DeliveryState.ARCHIVED)
    return replace(held, state=DeliveryState.ARCHIVED, member_id=None, lock_expires_ms=None)


def _check(before: DeliveryState, after: DeliveryState) -> None:
    if after not in TRANSITIONS[before]:
        raise ValueError(f"{before.name.lower()} records do not become {after.name.lower()}")


@dataclass(slots=True, kw_only=True)
class InFlightBatch:
    """Offsets that were acquired, or loaded, together: alike (`whole`) until some get another state (`by_offset`).

    Once split a batch stays split. (Kafka: ``InFlightBatch``.)
    """

    first_offset: int
    last_offset: int
    whole: InFlightState | None
    by_offset: dict[int, InFlightState] | None = None

    @property
    def size(self) -> int:
        return self.last_offset - self.first_offset + 1

    def split(self) -> dict[int, InFlightState]:
        """Keep a state for every offset from now on."""
        if self.by_offset is None:
            assert self.whole is not None
            self.by_offset = dict.fromkeys(range(self.first_offset, self.last_offset + 1), self.whole)
            self.whole = None
        return self.by_offset

    def lies_within(self, first: int, last: int) -> bool:
        """Whether `first` to `last` covers it all."""
        return first <= self.first_offset and self.last_offset <= last

    def is_cut_by(self, offset: int) -> bool:
        """Whether `offset` lies inside, above its first."""
        return self.first_offset < offset <= self.last_offset

    def parts(self, first: int | None = None, last: int | None = None) -> Iterator[tuple[int, int, InFlightState]]:
        """First offset, last offset and state of each part, ascending: the batch, or its offsets one by one; only what
        lies between `first` and `last` of a split batch.
        """
        if self.by_offset is None:
            assert self.whole is not None
            yield self.first_offset, self.last_offset, self.whole
            return
        for offset, held in self.by_offset.items():
            if (first is None or offset >= first) and (last is None or offset <= last):
                yield offset, offset, held

    def held_at(self, offset: int) -> InFlightState:
        """The state at an offset of the batch."""
        if self.by_offset is not None:
            return self.by_offset[offset]
        assert self.whole is not None
        return self.whole

    def put(self, first: int, held: InFlightState) -> None:
        """Set the state of the part that begins at `first`."""
        if self.by_offset is None:
            self.whole = held
        else:
            self.by_offset[first] = held
