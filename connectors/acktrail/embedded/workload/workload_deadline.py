"""A deadline that several threads share, and that any of them can bring forward."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from acktrail.errors import RetryableError

_PAUSE_S: Final = 0.05


class WorkloadUnfinished(RetryableError):
    """The workload did not finish; its groups and topics remain."""

    def __init__(self, reason: str, *, waiting_for: str) -> None:
        super().__init__(
            f"the demo workload is not finished, {reason}: waiting for {waiting_for}",
            hint="give it more time, or start it on an idle broker",
            data={"waiting_for": waiting_for},
        )
        self.waiting_for = waiting_for


class WorkloadDeadline:
    """`seconds` from now."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self._stopped = threading.Event()

    @property
    def remaining_s(self) -> float:
        """Seconds left, at least a tenth: clients take no time-out of zero."""
        return max(0.1, self._end - time.monotonic())

    def stop(self) -> None:
        """Make every later `check` fail."""
        self._stopped.set()

    def check(self, waiting_for: str) -> None:
        """Do nothing in time. Raises WorkloadUnfinished when time is up or another thread gave up."""
        if self._stopped.is_set():
            raise WorkloadUnfinished("it was stopped", waiting_for=waiting_for)
        if time.monotonic() > self._end:
            raise WorkloadUnfinished(f"its {self.seconds:g} s are over", waiting_for=waiting_for)

    def wait_until(self, condition: Callable[[], bool], waiting_for: str) -> None:
        """Wait until `condition` holds. Raises WorkloadUnfinished."""
        while not condition():
            self.check(waiting_for)
            self._stopped.wait(_PAUSE_S)
