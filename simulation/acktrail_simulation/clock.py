"""Time as a value that only its owner moves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class SimulatedClock:
    """Milliseconds since the epoch. Nothing simulated reads another clock."""

    now_ms: int = 1_000

    def advance(self, milliseconds: int) -> int:
        """Move on; the new time. Time does not go back.

        Raises:
            ValueError: for a negative step.
        """
        if milliseconds < 0:
            raise ValueError(f"time does not go back by {-milliseconds} ms")
        self.now_ms += milliseconds
        return self.now_ms
