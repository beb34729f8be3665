"""Waits between tries, each longer than the one before: of a request, and of work that survives an outage."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from acktrail.errors import AcktrailError, OutcomeUnknown, RetryableError

_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 1.0
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 10.0
_NO_MORE_FILES: Final = "Too many open files"
Notice = Callable[[str, str], None]
"""Gets an event's stable name, and one line of text."""


class Backoff:
    """Waits between tries, until `seconds` have passed in all."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        """Begin again: something was done, and what is left has all its time."""
        self._deadline = time.monotonic() + self._seconds
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


def passing(error: Exception) -> AcktrailError | None:
    """Return the error if it is temporary: a retryable one, or one because process or system may open no more files
    (EMFILE, ENFILE). None: it stays until a person does something."""
    if isinstance(error, RetryableError | OutcomeUnknown):
        return error
    cause: BaseException | None = error
    while cause is not None:
        if _NO_MORE_FILES in str(cause):
            return RetryableError(f"{_NO_MORE_FILES}: {error}", hint="raise the limit: ulimit -n, LimitNOFILE")
        cause = cause.__cause__ or cause.__context__
    return None


class Outage:
    """An outage of broker or storage: the attempts of some work since its last success. `notice` gets one line when it
    begins and one when it ends. `timeout_s`: when to give up (None: never)."""

    def __init__(
        self,
        notice: Notice,
        *,
        timeout_s: float | None = None,
        longest_pause_s: float = _LONGEST_PAUSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._notice, self._clock = notice, clock
        self._timeout_s, self._longest_pause_s = timeout_s, longest_pause_s
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
        left_s = None if self._timeout_s is None else self._began_at + self._timeout_s - now
        if left_s is not None and left_s <= 0:
            return None
        pause_s = min(self._pause_s, self._longest_pause_s)
        self._pause_s = 2 * pause_s
        return pause_s if left_s is None else min(pause_s, left_s)

    def end(self) -> None:
        """What was read is committed, or an attempt has lasted for a while."""
        if self._began_at is not None:
            seconds = self._clock() - self._began_at
            self._began_at, self._pause_s, self.reason = None, _FIRST_PAUSE_S, ""
            self._notice("outage_ended", f"continues after {seconds:.0f} s")
