"""The status of a share partition as a queue: is it served, and if not, what is wrong.

No status has a threshold: each is read off the newest observations of one share partition, as Burrow does for consumer
groups. ``rules/statuses.toml`` has them, worst first: what they mean, and the sentences of their rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from acktrail.model import rules
from acktrail.text_parsing import parse_toml

WINDOW: Final = 30 * 60 * 1_000_000
"""How long observations and counts matter, in µs."""
LEAST: Final = 3
"""Observations without which nothing is called stuck or lagging: a record may well be held for two. As many are kept
of any age, so that observations an hour apart show it, too."""
LONGEST: Final = 10
"""Observations that are kept at most: of more within ``WINDOW`` the closest ones become one."""
COUNTED: Final = ("acknowledged", "released", "archived")
"""Counts of an observation."""
LOST: Final = MappingProxyType(
    {
        "archived_seen": "archived",
        "lost_records": "removed by the retention before they were finished",
        "skipped_records": "skipped by a reset",
    }
)
"""Counts of records that a share partition will not get any more, and how they were lost. They never become fewer, and
what is not acknowledged follows every other reason."""
MAYBE_NO_RECORDS: Final = ", no two of them adjacent: they may not be records (transaction markers, compaction)"
"""A doubt about archived offsets: the log of the topic was not asked."""


class QueueStatus(StrEnum):
    """What the newest observations of a share partition show."""

    INCONSISTENT = "inconsistent"
    RETENTION_RISK = "retention_risk"
    REJECT_STORM = "reject_storm"
    ARCHIVING_STUCK = "archiving_stuck"
    RELEASE_LOOP = "release_loop"
    STUCK = "stuck"
    UNATTENDED = "unattended"
    LAGGING = "lagging"
    LOSS_UNSEEN = "loss_unseen"
    STATE_UNKNOWN = "state_unknown"
    REWOUND = "rewound"
    NOT_JUDGED = "not_judged"
    IDLE = "idle"
    OK = "ok"


class Urgency(StrEnum):
    """What a person should do about a status: act now, look, nothing."""

    ACT = "act"
    LOOK = "look"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusMeaning:
    """What a status says, for people."""

    urgency: Urgency
    meaning: str
    advice: str


_STATUSES: Final = parse_toml(files(rules).joinpath("statuses.toml").read_text("utf-8"))["status"]
STATUS_TABLE: Final = MappingProxyType(
    {
        QueueStatus(own["name"]): StatusMeaning(
            urgency=Urgency(own["urgency"]), meaning=own["meaning"], advice=own["advice"]
        )
        for own in _STATUSES
    }
)
"""Every status, worst first."""
RULES: Final[Mapping[str, tuple[QueueStatus, str]]] = MappingProxyType(
    {rule: (QueueStatus(own["name"]), reason) for own in _STATUSES for rule, reason in own["rules"].items()}
)
"""The status of each rule, the first that applies decides, and its reason with the names of numbers and texts."""
SAYS_LOST: Final = frozenset({"retention_undelivered", "loss_unseen"})
"""Rules that say it themselves."""
