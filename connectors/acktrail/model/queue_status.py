"""The status of a share partition as a queue: is it served, and if not, what is wrong.

No status has a threshold: each is read off the newest observations of one share partition, as Burrow does for consumer
groups. `STATUS_TABLE` names them, worst first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class QueueStatus(StrEnum):
    """What the newest observations of a share partition show."""

    INCONSISTENT = "inconsistent"
    RETENTION_RISK = "retention_risk"
    UNATTENDED = "unattended"
    STUCK = "stuck"
    ARCHIVING_STUCK = "archiving_stuck"
    REJECT_STORM = "reject_storm"
    RELEASE_LOOP = "release_loop"
    ARCHIVED_UNSEEN = "archived_unseen"
    LAGGING = "lagging"
    STATE_UNKNOWN = "state_unknown"
    REWOUND = "rewound"
    NEW = "new"
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


STATUS_TABLE: Final = MappingProxyType(
    {
        QueueStatus.INCONSISTENT: StatusMeaning(
            urgency=Urgency.ACT,
            meaning="a critical finding is open: state, brokers and log contradict each other",
            advice="`acktrail findings` says which rule is broken; the rule says what to do",
        ),
        QueueStatus.RETENTION_RISK: StatusMeaning(
            urgency=Urgency.ACT,
            meaning="the retention of the topic removed unfinished records, or will with its next step",
            advice="lengthen the retention of the topic, then serve the group",
        ),
        QueueStatus.UNATTENDED: StatusMeaning(
            urgency=Urgency.ACT,
            meaning="records wait and the group has no members",
            advice="start its consumers; delete the group if it is not needed",
        ),
        QueueStatus.STUCK: StatusMeaning(
            urgency=Urgency.ACT,
            meaning="the start offset does not move while records come or others complete",
            advice="look at the record at the start offset and at the group's members",
        ),
        QueueStatus.ARCHIVING_STUCK: StatusMeaning(
            urgency=Urgency.ACT,
            meaning="records wait for the dead-letter queue and none arrives there",
            advice="check the dead-letter topic and the broker's log",
        ),
        QueueStatus.REJECT_STORM: StatusMeaning(
            urgency=Urgency.LOOK,
            meaning="more records are given up than acknowledged",
            advice="look at the archived records and at what the consumers reject",
        ),
        QueueStatus.RELEASE_LOOP: StatusMeaning(
            urgency=Urgency.LOOK,
            meaning="more deliveries end without a result than with an acknowledgement",
            advice="look at the consumers: they release records, or lose their locks",
        ),
        QueueStatus.ARCHIVED_UNSEEN: StatusMeaning(
            urgency=Urgency.LOOK,
            meaning="more records were given up than acknowledged, and it has not been acknowledged",
            advice="look at `acktrail record archived`, then `acktrail findings --group GROUP --seen-by NAME`",
        ),
        QueueStatus.LAGGING: StatusMeaning(
            urgency=Urgency.LOOK,
            meaning="unfinished records are there and do not become fewer",
            advice="add consumers, or make them faster",
        ),
        QueueStatus.STATE_UNKNOWN: StatusMeaning(
            urgency=Urgency.LOOK,
            meaning="the observations do not show what the status is",
            advice="see the reason: an incomplete export, a missing right, or a verdict that is no match",
        ),
        QueueStatus.REWOUND: StatusMeaning(
            urgency=Urgency.NOTHING,
            meaning="the start offset was moved by a reset",
            advice="compare with the audit of resets",
        ),
        QueueStatus.NEW: StatusMeaning(
            urgency=Urgency.NOTHING,
            meaning="it was seen for the first time, and nothing is wrong that one observation can show",
            advice="look again: trouble that only a trend shows takes three observations",
        ),
        QueueStatus.IDLE: StatusMeaning(
            urgency=Urgency.NOTHING, meaning="nothing is unfinished and nothing comes", advice="nothing to do"
        ),
        QueueStatus.OK: StatusMeaning(
            urgency=Urgency.NOTHING, meaning="records are finished as they come", advice="nothing to do"
        ),
    }
)
"""Every status, worst first."""
