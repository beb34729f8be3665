"""The form of a reset: every field with its help text and a JSON schema that refuses what is not meant."""

from __future__ import annotations

from typing import Any, Final

from airflow.sdk import Param

__all__ = ["carrying_out", "reset_fields", "rollback_fields"]

_STRATEGIES: Final = (
    *("to-earliest", "to-latest", "to-offset", "to-datetime", "by-duration", "shift-by", "to-current"),
    *("from-file", "to-history"),
)
_TOPIC: Final = r"^[A-Za-z0-9._-]{1,249}(:\d{1,10}(,\d{1,10})*)?$"
_DURATION: Final = r"^P(?=.)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d{1,9})?S)?)?$"
_PLAN_ID: Final = r"^[A-Za-z0-9-]{1,80}$"
_LONGEST_WAIT_S: Final = 3600


def reset_fields() -> dict[str, Param]:
    """What to reset, and where to."""
    return {
        "groups": _names("Share groups", "Their ids, one a line. They must have no members."),
        "topics": _names(
            "Topics", "One a line: TOPIC for all its partitions, TOPIC:0,2 for some. Empty with All topics.", _TOPIC
        ),
        "all_topics": _flag("All topics", "Every topic that the group has a start offset for."),
        "strategy": Param(
            None, type=["null", "string"], enum=[None, *_STRATEGIES], title="Where to",
            description="Spelled like the options of kafka-share-groups.sh. Fill in the one field below that it needs.",
        ),
        "offset": _number("Offset", "For to-offset: the offset of the next record to deliver.", minimum=0),
        "shift_by": _number("Shift by", "For shift-by: so many records forward, negative: back.", minimum=-(1 << 63)),
        "datetime": Param(
            None, type=["null", "string"], format="date-time", title="Date and time",
            description="For to-datetime and to-history, with its time zone: 2026-03-01T08:00:00+01:00.",
        ),
        "duration": Param(
            None, type=["null", "string"], pattern=_DURATION, title="Duration",
            description="For by-duration: so long before now, in ISO 8601, such as PT2H or P1DT30M.",
        ),
        "file": Param(
            None, type=["null", "string"], minLength=1, maxLength=1024, title="File of offsets",
            description="For from-file: a CSV on the worker, as kafka-share-groups.sh reads it.",
        ),
        "allow_skip": _flag("Allow skipping", "Records below the new start offset are never delivered to the group."),
    }  # fmt: skip


def rollback_fields() -> dict[str, Param]:
    """Which reset to take back."""
    return {
        "plan_id": Param(
            None, type=["null", "string"], pattern=_PLAN_ID, title="Plan to take back",
            description="Id of the plan that was carried out: acktrail reset list shows them.",
        ),
        "topics": _names("Topics", "Only these: TOPIC or TOPIC:0,2, one a line. Empty: all of the plan.", _TOPIC),
        "allow_skip": _flag("Allow skipping", "Going back forward passes records over that were not finished since."),
        "allow_moved_on": _flag(
            "Allow what moved on", "Also take back what the group, or anybody else, changed since the plan."
        ),
    }  # fmt: skip


def carrying_out() -> dict[str, Param]:
    """Whether and how it is carried out."""
    return {
        "dry_run": _flag("Dry run", "Plan, preview and check, then end. Nothing is changed.", default=True),
        "partial": _flag("Partial", "Carry out what no refusal is about, and leave the rest."),
        "wait_for_empty_s": _number(
            "Wait for an empty group",
            "Seconds to wait for the last member to go (a killed one counts until its session ends).",
            default=0,
            minimum=0,
            maximum=_LONGEST_WAIT_S,
        ),
        "watch_s": _number(
            "Watch afterwards", "Seconds to watch that nothing overwrites the new start offsets.", default=5, minimum=0,
            maximum=_LONGEST_WAIT_S,
        ),
        "reason": Param(
            None, type=["null", "string"], maxLength=1000, title="Reason", description="Kept in the plan and the audit."
        ),
    }  # fmt: skip


def _names(title: str, description: str, pattern: str | None = None) -> Param:
    items: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": 4096}
    if pattern:
        items["pattern"] = pattern
    return Param([], type=["null", "array"], items=items, uniqueItems=True, title=title, description=description)


def _flag(title: str, description: str, *, default: bool = False) -> Param:
    return Param(default, type="boolean", title=title, description=description)


def _number(
    title: str, description: str, *, minimum: int, default: int | None = None, maximum: int = (1 << 63) - 1
) -> Param:
    kinds = ["null", "integer"] if default is None else "integer"
    return Param(default, type=kinds, minimum=minimum, maximum=maximum, title=title, description=description)
