"""Random lives of what the drafts' leaders and coordinators keep, with the truth told apart from any record."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from acktrail.model.delivery import StateBatch

__all__ = ["Truth", "told"]

START = 100
WIDTH = 8
_TERMINAL = (2, 4)


@dataclass(slots=True)
class Truth:
    """Offset by offset what was done to a few share partitions, however it is written down."""

    source: random.Random
    starts: dict[Any, int] = field(default_factory=dict)
    offsets: dict[Any, dict[int, tuple[int, int]]] = field(default_factory=dict)

    def begin(self, key: Hashable) -> int:
        """Its start offset."""
        self.starts[key] = self.source.choice((START, START + 1))
        self.offsets[key] = {}
        return self.starts[key]

    def end(self, key: Hashable) -> None:
        """It is removed."""
        del self.starts[key], self.offsets[key]

    def step(self, key: Hashable) -> tuple[StateBatch, ...]:
        """What one write says: releases, acknowledgements and archivals of offsets that are not done yet."""
        known, start = self.offsets[key], self.starts[key]
        undone = [o for o in range(start, self.start(key) + WIDTH) if known.get(o, (0, 0))[0] not in _TERMINAL]
        chosen = sorted(self.source.sample(undone, self.source.randrange(min(4, len(undone)) + 1)))
        if self.source.random() < 0.2:
            chosen = undone
        found = []
        for offset in chosen:
            known[offset] = (self.source.choice((0, 2, 2, 4)), known.get(offset, (0, 0))[1] + 1)
            state, count = known[offset]
            found.append(
                StateBatch(first_offset=offset, last_offset=offset, delivery_state=state, delivery_count=count)
            )
        return tuple(found)

    def start(self, key: Hashable) -> int:
        """Past what is done from the start on."""
        offset = self.starts[key]
        while self.offsets[key].get(offset, (0, 0))[0] in _TERMINAL:
            offset += 1
        return offset

    def told(self) -> dict[Any, tuple[int, dict[int, tuple[int, int]]]]:
        """Each start, and what is known of the offsets from there on."""
        return {
            key: (self.start(key), {o: held for o, held in known.items() if o >= self.start(key)})
            for key, known in self.offsets.items()
        }


def told(states: Iterable[tuple[Any, Any]]) -> dict[Any, tuple[int | None, dict[int, tuple[int, int]]]]:
    """Replayed states in the form of the truth."""
    return {
        key: (
            state.window.start_offset,
            {
                offset: (batch.delivery_state, batch.delivery_count)
                for batch in state.window.batches
                for offset in range(batch.first_offset, batch.last_offset + 1)
            },
        )
        for key, state in states
    }
