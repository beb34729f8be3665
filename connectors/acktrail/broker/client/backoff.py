"""Waiting a little longer each time, until a deadline."""

from __future__ import annotations

import time
from typing import Final

_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 1.0


class Backoff:
    """Back-off between tries, `seconds` in all."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._wait_s = _FIRST_WAIT_S

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; 0 when it has passed."""
        return max(0.0, self._deadline - time.monotonic())

    def wait(self) -> bool:
        """Wait before the next try. False, at once, when the deadline has passed: there is no next try."""
        left = self.left_s
        if left <= 0:
            return False
        time.sleep(min(self._wait_s, left))
        self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)
        return True
