"""An outage of broker or storage: how long to wait, when to give up, and one line when it begins and when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from acktrail.connect.runtime.connector_config import ErrorPolicy
from acktrail.errors import AcktrailError, OutcomeUnknown, RetryableError

_FIRST_PAUSE_S: Final = 0.5
_NO_MORE_FILES: Final = "Too many open files"
Notice = Callable[[str, str], None]
"""Gets an event's stable name, and one line of text."""


def passing(error: Exception) -> AcktrailError | None:
    """The error as one that passes: a retryable one, or any whose cause is that process or system may open no more
    files (EMFILE, ENFILE). None: a person has to look."""
    if isinstance(error, RetryableError | OutcomeUnknown):
        return error
    cause: BaseException | None = error
    while cause is not None:
        if _NO_MORE_FILES in str(cause):
            return RetryableError(f"{_NO_MORE_FILES}: {error}", hint="raise the limit: ulimit -n, LimitNOFILE")
        cause = cause.__cause__ or cause.__context__
    return None


class Outage:
    """The attempts of one task since its last success."""

    def __init__(self, policy: ErrorPolicy, notice: Notice, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy, self._notice, self._clock = policy, notice, clock
        self._began_at: float | None = None
        self._pause_s = _FIRST_PAUSE_S
        self.reason = ""
        """What was wrong at the last attempt; empty: nothing is."""

    def begin(self, error: AcktrailError) -> float | None:
        """Seconds until the next attempt; None: it has lasted too long."""
        now = self._clock()
        self.reason = error.message
        if self._began_at is None:
            self._began_at = now
            self._notice("outage_began", f"pauses, trying again: {error.message}")
        left_s = None if self._policy.timeout_s is None else self._began_at + self._policy.timeout_s - now
        if left_s is not None and left_s <= 0:
            return None
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, self._policy.longest_pause_s)
        pause_s = min(pause_s, self._policy.longest_pause_s)
        return pause_s if left_s is None else min(pause_s, left_s)

    def end(self) -> None:
        """What was read is committed, or an attempt has lasted for a while."""
        if self._began_at is not None:
            seconds = self._clock() - self._began_at
            self._began_at, self._pause_s, self.reason = None, _FIRST_PAUSE_S, ""
            self._notice("outage_ended", f"continues after {seconds:.0f} s")
