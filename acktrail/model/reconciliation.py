"""Reconciliation: a share partition's durable state compared with its descriptions by the cluster.

An observation describes the share partition twice. In between, the state topic is read to its end and replayed. A
broker describes it from the same records (``ReadShareGroupStateSummary``), so the rule is:

    **The replayed value is between the two described ones; if these differ, the share partition has moved.**

Between means between the lesser and the greater of the two, since a reset may go back. The start offsets are compared
first; no start offset is before every offset. Where all three start offsets are equal, progress is compared: start
offset + delivery complete count, which is log end - lag on the described side. The log end inside a described lag is
not in the response, but is between the log ends listed before the first and after the second description (the order of
``broker.offsets_source``): equal log ends make the comparison exact, a growing log widens it, and no alarm is false.

The first rule that applies decides. ``rules/verdicts.toml`` has them in this order, each with its sentence;
``reconcile.verdict_rules`` applies them to many share partitions at once:

=================  ====================================================================================================
not_authorized     the group, or the topic of a share partition in no description, may not be described
unknown            the export does not reach the log end seen before, or the replay depends on a gap or an unreadable
                   record; a description failed or the group could not be queried
match              described on one side only: it appeared or vanished in between, which the replay cannot contradict
missing_state      described on both sides, and no durable state
orphan_state       durable state of a group or topic that does not exist, or that its group does not list although the
                   topic is visible
unknown            durable state in no description, for a reason that is not known (it was initialized in between, its
                   group was created or deleted in between, or no topic of its id is visible)
unknown            not between, but the share partition was initialized or reset in between, perhaps more than once
live_ahead         the cluster is ahead of the durable state: records of the state topic are missing
durable_ahead      the durable state is ahead of the cluster, which lost or never loaded records
past_log_end       start offset or a batch beyond the log end: a reset beyond the end, or a truncated or replaced log
before_log_start   start offset, past leading records that are finished, below the log start: allowed, corrected at the
                   next load; until then the lag is too high
match              otherwise, also when neither side knows a start offset (not initialized)
=================  ====================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from acktrail.model import rules
from acktrail.text_parsing import parse_toml


class Completeness(StrEnum):
    """Whether a replayed state is reliable."""

    COMPLETE = "complete"
    NO_SNAPSHOT = "no_snapshot"
    """Only updates were seen. A broker that loads the same log has the same state; its state epoch is not known."""
    GAP = "gap"
    """Records were pruned before they were exported, and no snapshot came after them."""
    UNREADABLE = "unreadable"
    """A record of the share partition could not be decoded, and no snapshot came after it."""


class TopicStatus(StrEnum):
    """The status of a topic id in its cluster."""

    PRESENT = "present"
    DELETED = "deleted"
    RECREATED = "recreated"
    """The name belongs to another id now."""
    NOT_AUTHORIZED = "not_authorized"
    """It exists, but this principal may not DESCRIBE it."""


class Verdict(StrEnum):
    """The result of one comparison."""

    MATCH = "match"
    LIVE_AHEAD = "live_ahead"
    DURABLE_AHEAD = "durable_ahead"
    MISSING_STATE = "missing_state"
    ORPHAN_STATE = "orphan_state"
    BEFORE_LOG_START = "before_log_start"
    PAST_LOG_END = "past_log_end"
    NOT_AUTHORIZED = "not_authorized"
    UNKNOWN = "unknown"


_TEXTS: Final = parse_toml(files(rules).joinpath("verdicts.toml").read_text("utf-8"))
VERDICTS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(_TEXTS["verdict"])
"""The `tone` and the `meaning` of each verdict."""
RULES: Final[Mapping[str, tuple[Verdict, str]]] = MappingProxyType(
    {rule["name"]: (Verdict(rule["verdict"]), rule["reason"]) for rule in _TEXTS["rule"]}
)
"""The verdict of each rule, and its reason with the names of texts."""
