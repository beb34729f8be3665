"""The status of a share partition as a queue: is it served, and if not, what is wrong.

No status has a threshold: each is read off the newest observations of one share partition, as Burrow does for consumer
groups. `STATUS_TABLE` names them, worst first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

WINDOW: Final = 30 * 60 * 1_000_000
"""How long observations and counts matter, in µs."""
LEAST: Final = 3
"""Observations without which nothing is called stuck or lagging: a record may well be held for two. As many are kept
of any age: who looks once an hour sees that, too."""
LONGEST: Final = 10
"""Observations that are kept at most: of more within ``WINDOW`` the closest ones become one."""
COUNTED: Final = ("acknowledged", "released", "archived")
"""Counts of an observation."""
_COUNTS: Final = "{acknowledged} records acknowledged, {released} deliveries released, {archived} records archived"
_NOT_INITIALIZED: Final = "it is not initialized: no delivery has ended since it was created; {members}"
_UNSEEN: Final = "{archived_seen} records are archived in all, and not acknowledged"
STILL_UNSEEN: Final = "; " + _UNSEEN
"""Follows every other reason as long as it is true."""


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


RULES: Final[Mapping[str, tuple[QueueStatus, str]]] = MappingProxyType(
    {
        "critical": (QueueStatus.INCONSISTENT, "{critical_finding}"),
        "retention_passed": (
            QueueStatus.RETENTION_RISK,
            (
                "{lost} records were removed unfinished: the log starts at {log_start}, above first unfinished offset "
                "{start}; {lag} more are unfinished; {members}"
            ),
        ),
        "retention_undelivered": (
            QueueStatus.RETENTION_RISK,
            (
                "{lost} records were removed that were never delivered: the log starts at {log_start}; {waiting} are "
                "left; {members}"
            ),
        ),
        "retention_next": (
            QueueStatus.RETENTION_RISK,
            (
                "first unfinished offset {start} is {distance} above the log start, which moved by {step} at once; "
                "{lag} records are unfinished; {members}"
            ),
        ),
        "unattended": (QueueStatus.UNATTENDED, "{lag} records wait, {absence}"),
        "never_attended": (
            QueueStatus.UNATTENDED,
            (
                "{waiting} records wait, none was ever delivered, {absence}; the group begins where "
                "share.auto.offset.reset says"
            ),
        ),
        "stuck": (
            QueueStatus.STUCK,
            (
                "first unfinished offset {start} stays in the newest {flat} observations with {lag} records "
                "unfinished; meanwhile the log end moved by {grown} and {done} records were finished; {members}"
            ),
        ),
        "archiving_stuck": (
            QueueStatus.ARCHIVING_STUCK,
            (
                "{archiving} records are archiving, some in each of the newest {archiving_for} observations, and none "
                "was archived in between"
            ),
        ),
        "reject_storm": (QueueStatus.REJECT_STORM, _COUNTS),
        "release_loop": (QueueStatus.RELEASE_LOOP, _COUNTS),
        "archived_unseen": (
            QueueStatus.ARCHIVED_UNSEEN,
            "more records were archived than acknowledged, which ended at {unseen_at}; " + _UNSEEN,
        ),
        "lagging": (
            QueueStatus.LAGGING,
            (
                "{lag} records are unfinished, {lag_first} were in the oldest of {known} observations, and never fewer "
                "than before; {members}"
            ),
        ),
        "no_match": (QueueStatus.STATE_UNKNOWN, "{verdict}: {verdict_reason}"),
        "no_state": (QueueStatus.STATE_UNKNOWN, "no state of it was replayed"),
        "not_complete": (QueueStatus.STATE_UNKNOWN, "its replayed state is not complete: {completeness}"),
        "not_initialized": (QueueStatus.STATE_UNKNOWN, _NOT_INITIALIZED),
        "not_known": (QueueStatus.STATE_UNKNOWN, "the ends of its log are not known"),
        "rewound": (
            QueueStatus.REWOUND,
            "a reset: the start offset fell by {back}, the state epoch rose by {epochs}; {lag} records are unfinished",
        ),
        "first_seen": (
            QueueStatus.NEW,
            "the first observation: {lag} records are unfinished, nothing to compare with; {members}",
        ),
        "never_delivered": (QueueStatus.NEW, "the first observation: " + _NOT_INITIALIZED),
        "empty": (QueueStatus.IDLE, "it is not initialized, and its log is empty"),
        "idle": (QueueStatus.IDLE, "nothing is unfinished, and nothing moves"),
        "ok": (QueueStatus.OK, "{lag} records unfinished; " + _COUNTS),
    }
)
"""The status of each rule, the first that applies decides, and its reason with the names of numbers and texts."""


SAYS_UNSEEN: Final = frozenset({"reject_storm", "archived_unseen"})
"""Rules that say it themselves."""
