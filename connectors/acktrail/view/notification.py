"""What people are sent about one subject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import urlencode

from acktrail.model.queue_status import Urgency

WELL: Final = "well"
"""The state of a subject that needs no look; also of one that no message was ever sent about."""


class NotificationKind(StrEnum):
    """What a message of the trunk is about; those of branches have kinds of their own."""

    GATE = "gate"
    CRITICAL_FINDING = "critical_finding"
    STATUS = "status"
    MORE = "more"
    """The changes beyond the most messages of one run, counted."""


Known = Mapping[tuple[str, str], str]
"""The state last sent, by kind and subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One change. `kind`: a `NotificationKind`, or a branch's own. A subject whose newest sent message has the same
    `state` is not sent again. `title` and `text` are plain text of one line each, with names made printable. `page` and
    `query` are a page of the dashboard and its parameters."""

    kind: str
    subject: str
    state: str
    urgency: Urgency
    title: str
    text: str
    page: str = ""
    query: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """What a message is about, as in the table ``notifications``."""
        return str(self.kind), self.subject

    def address(self, dashboard: str) -> str:
        """Where the dashboard at the address `dashboard` shows it."""
        return f"{dashboard.rstrip('/')}/{self.page}" + (f"?{urlencode(self.query)}" if self.query else "")
