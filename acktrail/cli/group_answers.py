"""Descriptions of share groups by the brokers, an error in place of each that is missing, as text and as JSON."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from acktrail.cli.common_options import error_json
from acktrail.errors import AcktrailError, NothingMatches
from acktrail.text_tables import KnownSum, known_lag, printable, table

if TYPE_CHECKING:
    from acktrail.kafka.admin import ShareGroupAdmin
    from acktrail.kafka.descriptions import GroupDescription, ShareOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAnswer:
    """One group: its description and share partitions, or the error in their place."""

    group_id: str
    group: GroupDescription | None = None
    offsets: tuple[ShareOffset, ...] = ()
    error: AcktrailError | None = None

    @property
    def lag(self) -> KnownSum:
        return KnownSum.of(offset.lag for offset in self.offsets)

    @property
    def lag_json(self) -> dict[str, int | None]:
        """`lag` is null while the lag of one share partition is not known: `known_lag` is the sum of the others."""
        return {"lag": self.lag.total, "known_lag": self.lag.known, "unknown_lag_share_partitions": self.lag.unknown}


def describe_all(admin: ShareGroupAdmin, group_ids: Sequence[str], topic: str | None = None) -> list[GroupAnswer]:
    """The brokers' description of each group, in the order asked for; `topic` (shell style) leaves out other topics.
    Two requests a coordinator, however many groups. Raises NothingMatches: no topic is like `topic`;
    Unreachable, RetryableError: a coordinator did not answer."""
    groups = admin.describe_groups(group_ids)
    described = [group.group_id for group in groups if not group.error_code]
    offsets = {answer.group_id: answer for answer in admin.describe_group_offsets(described)}
    topics = {row.topic for answer in offsets.values() for row in answer.offsets}
    if topic is not None and topics and not fnmatch.filter(topics, topic):
        raise NothingMatches("topic", [topic], topics)
    found: list[GroupAnswer] = []
    for group in groups:
        failed = next((one for one in (group, offsets.get(group.group_id)) if one is not None and one.error_code), None)
        if failed is not None:
            found.append(GroupAnswer(group_id=group.group_id, error=admin.error_of(failed)))
            continue
        rows = offsets[group.group_id].offsets
        shown = tuple(row for row in rows if topic is None or fnmatch.fnmatchcase(row.topic, topic))
        found.append(GroupAnswer(group_id=group.group_id, group=group, offsets=shown))
    return found


def raise_first(answers: Iterable[GroupAnswer]) -> None:
    """Raise the error of the first group that has one, with how many more there are; pass where none has."""
    errors = [answer.error for answer in answers if answer.error is not None]
    if errors:
        if len(errors) > 1:
            errors[0].message += f" (and {len(errors) - 1} more groups)"
        raise errors[0]


def listing_text(states: dict[str, str], answers: Sequence[GroupAnswer]) -> str:
    """One line a group: state, members, lag. `states`: the listing's, for groups without an answer."""
    rows = [
        (one.group_id, states[one.group_id], None, None)
        if one.group is None
        else (one.group_id, one.group.state, len(one.group.members), one.lag if one.offsets else None)
        for one in answers
    ]
    return table(("GROUP", "STATE", "MEMBERS", "LAG"), rows)


def listing_json(state: str, answer: GroupAnswer) -> dict[str, Any]:
    """One line of JSON for a group."""
    head = {"group": answer.group_id, "type": "share", "state": state}
    if answer.group is None:
        return {**head, "error": answer.error and error_json(answer.error)}
    about = {"members": len(answer.group.members), "share_partitions": len(answer.offsets)}
    return {**head, "state": answer.group.state, **about, **answer.lag_json}


def group_json(answer: GroupAnswer) -> dict[str, Any]:
    """Everything that is known of one group, or its error."""
    group = answer.group
    if group is None:
        return {"group": answer.group_id, "error": answer.error and error_json(answer.error)}
    about = {name: value for name, value in asdict(group).items() if name not in {"error_code", "error", "group_id"}}
    return {"group": group.group_id, **about, **answer.lag_json, "offsets": [asdict(each) for each in answer.offsets]}


def offsets_text(answer: GroupAnswer, group: GroupDescription) -> str:
    """One line a share partition."""
    if not answer.offsets:
        return f"share group {printable(group.group_id)!r} ({group.state}) has no offsets"
    headers = ("GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "START-OFFSET", "LAG")
    rows = [
        (answer.group_id, o.topic, o.partition, o.leader_epoch, o.start_offset, o.error or known_lag(o.lag))
        for o in answer.offsets
    ]
    return table(headers, rows)


def members_text(group: GroupDescription) -> str:
    """One line a member."""
    if not group.members:
        return f"share group {printable(group.group_id)!r} ({group.state}) has no members"
    headers = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "MEMBER-EPOCH", "#PARTITIONS", "ASSIGNMENT")
    rows = [
        (
            *(group.group_id, member.member_id, member.client_host, member.client_id, member.member_epoch),
            sum(len(part.partitions) for part in member.assignment),
            "; ".join(f"{part.topic}:{','.join(map(str, part.partitions))}" for part in member.assignment),
        )
        for member in group.members
    ]
    return table(headers, rows)


def states_text(answers: Iterable[GroupAnswer]) -> str:
    """One line a group: its coordinator, and the group as a whole."""
    headers = ("GROUP", "COORDINATOR", "ASSIGNOR", "STATE", "GROUP-EPOCH", "#MEMBERS", "LAG")
    rows = [
        (
            one.group_id,
            group.coordinator_id,
            group.assignor,
            group.state,
            group.group_epoch,
            len(group.members),
            one.lag if one.offsets else None,
        )
        for one in answers
        if (group := one.group) is not None
    ]
    return table(headers, rows) if rows else ""
