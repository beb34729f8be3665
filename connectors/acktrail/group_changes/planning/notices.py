"""What is said about a plan, and about which part of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["Notice", "RefusedParts", "Severity", "worst_first"]


class Severity(StrEnum):
    """How much a notice matters, the worst first. A refusal forbids what it is about."""

    REFUSAL = "refusal"
    SERIOUS = "serious"
    WARNING = "warning"
    INFO = "info"


_ORDER: Final = {severity: rank for rank, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """`rule` names it. It is about the whole plan, a group, a topic of every group, or one share partition."""

    severity: Severity
    rule: str
    text: str
    group_id: str | None = None
    topic: str | None = None
    partition: int | None = None

    @property
    def subject(self) -> str:
        """What it is about, for people; empty for the whole plan."""
        topic = self.topic if self.partition is None else f"{self.topic}:{self.partition}"
        return " ".join(part for part in (self.group_id, topic) if part)

    @property
    def line(self) -> str:
        """The notice as one line: its subject, then its text."""
        return f"{self.subject}: {self.text}".removeprefix(": ")


class RefusedParts:
    """Which share partitions refusals are about: constant time each."""

    def __init__(self, notices: Iterable[Notice]) -> None:
        refusals = [notice for notice in notices if notice.severity is Severity.REFUSAL]
        self._all = any(n.group_id is None and n.topic is None for n in refusals)
        self._groups = {n.group_id for n in refusals if n.group_id is not None and n.topic is None}
        self._topics = {n.topic for n in refusals if n.group_id is None and n.topic is not None}
        self._parts = {(n.group_id, n.topic, n.partition) for n in refusals if n.partition is not None}

    def __contains__(self, part: tuple[str, str, int]) -> bool:
        group_id, topic, _ = part
        return self._all or group_id in self._groups or topic in self._topics or part in self._parts


def worst_first(notices: Iterable[Notice]) -> tuple[Notice, ...]:
    """By severity, then by what they are about."""
    return tuple(sorted(notices, key=_rank))


def _rank(notice: Notice) -> tuple[int, str, str, int, str]:
    where = (notice.group_id or "", notice.topic or "", -1 if notice.partition is None else notice.partition)
    return (_ORDER[notice.severity], *where, notice.rule)
