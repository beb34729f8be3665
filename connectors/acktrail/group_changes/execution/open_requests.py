"""From the moment a request may have left this process, every way out but a settled one is an unknown outcome."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from acktrail.errors import AcktrailError, ChangeInProgress, OutcomeUnknown


class OpenRequests:
    """Around everything from the first request of a plan to its verification, as a context manager; it may be entered
    again inside itself.

    Any error that ends the block while a request is out (a broker that is gone, tables that are lost, Ctrl-C, a defect)
    becomes OutcomeUnknown, which names the plan and how to settle it. Before that nothing is changed.
    """

    def __init__(self, plan_id: str) -> None:
        self._plan_id = plan_id
        self._out = 0

    @property
    def has_left(self) -> bool:
        """Whether the outcome of some request is open."""
        return self._out > 0

    def add(self) -> None:
        """A request is about to be sent."""
        self._out += 1

    def remove(self) -> None:
        """It was not sent after all, or the coordinator refused all of it: nothing was changed by it."""
        self._out -= 1

    def settled(self) -> None:
        """What became of every request is known, and noted."""
        self._out = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not self.has_left or isinstance(error, GeneratorExit | ChangeInProgress):
            return
        if isinstance(error, OutcomeUnknown) and error.data.get("plan") == self._plan_id:
            return
        raise OutcomeUnknown(
            f"plan {self._plan_id} was sent, and its outcome is not known: {_reason(error)}",
            hint=f"change nothing else of the group; acktrail reset verify {self._plan_id} settles it",
            data={"plan": self._plan_id},
        ) from error


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, AcktrailError):
        return error.message
    return f"{type(error).__name__}: {error}".removesuffix(": ")
