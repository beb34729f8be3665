"""Answers about share groups as tables for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from acktrail.cli.group_selection import GroupAnswer, Lag, lag_of
from acktrail.cli.text.json_text import error_json
from acktrail.plain_tables import printable, table

if TYPE_CHECKING:
    from acktrail.broker.descriptions import GroupDescription, GroupMember


def listing_text(states: dict[str, str], answers: Sequence[GroupAnswer]) -> str:
    """One line a group: state, members, lag. `states`: the listing's, for groups without an answer."""
    rows = [
        (one.group_id, states[one.group_id], None, None)
        if one.group is None
        else (one.group_id, one.group.state, len(one.group.members), _lag_cell(one))
        for one in answers
    ]
    return table(("GROUP", "STATE", "MEMBERS", "LAG"), rows)


def listing_json(state: str, answer: GroupAnswer) -> dict[str, Any]:
    """`lag` is null while the lag of one share partition is not known: `known_lag` is the sum of the others."""
    head = {"group": answer.group_id, "type": "share", "state": state}
    if answer.group is None:
        return {**head, "error": answer.error and error_json(answer.error)}
    lag = lag_of(answer.offsets)
    return {
        **head,
        "state": answer.group.state,
        "members": len(answer.group.members),
        "share_partitions": len(answer.offsets),
        **_lag_fields(lag),
    }


def group_json(answer: GroupAnswer) -> dict[str, Any]:
    """Everything that is known of one group, or its error."""
    group = answer.group
    if group is None:
        return {"group": answer.group_id, "error": answer.error and error_json(answer.error)}
    return {
        "group": group.group_id,
        "state": group.state,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor": group.assignor,
        "coordinator_id": group.coordinator_id,
        **_lag_fields(lag_of(answer.offsets)),
        "members": [asdict(member) for member in group.members],
        "offsets": [asdict(offset) for offset in answer.offsets],
    }


def offsets_text(answer: GroupAnswer, group: GroupDescription, *, verbose: bool) -> str:
    """One line a share partition; `verbose` adds leader epoch and topic id, and the group's lag below."""
    if not answer.offsets:
        return f"share group {_name(group)} ({group.state}) has no offsets"
    headers = ["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "START-OFFSET", "LAG", *(["TOPIC-ID"] if verbose else [])]
    rows = [
        [
            answer.group_id,
            o.topic,
            o.partition,
            o.leader_epoch,
            o.start_offset,
            o.lag if o.error is None else o.error,
            *([o.topic_id] if verbose else []),
        ]
        for o in answer.offsets
    ]
    return table(headers, rows)


def members_text(group: GroupDescription, *, verbose: bool) -> str:
    """One line a member; `verbose` adds rack and subscribed topics."""
    if not group.members:
        return f"share group {_name(group)} ({group.state}) has no members"
    headers = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "MEMBER-EPOCH", "#PARTITIONS", "ASSIGNMENT"]
    rows = [
        [
            group.group_id,
            member.member_id,
            member.client_host,
            member.client_id,
            member.member_epoch,
            sum(len(part.partitions) for part in member.assignment),
            _assigned(member),
            *([member.rack, ",".join(member.subscribed_topics)] if verbose else []),
        ]
        for member in group.members
    ]
    return table([*headers, *(["RACK", "SUBSCRIBED"] if verbose else [])], rows)


def states_text(answers: Sequence[GroupAnswer], *, verbose: bool) -> str:
    """One line a group: coordinator, state, members, lag; `verbose` adds epochs and assignor."""
    headers = ["GROUP", "COORDINATOR", "STATE", "#MEMBERS", "LAG"]
    rows = [
        [
            one.group_id,
            one.group.coordinator_id,
            one.group.state,
            len(one.group.members),
            _lag_cell(one),
            *([one.group.group_epoch, one.group.assignment_epoch, one.group.assignor] if verbose else []),
        ]
        for one in answers
        if one.group is not None
    ]
    return table([*headers, *(["GROUP-EPOCH", "ASSIGNMENT-EPOCH", "ASSIGNOR"] if verbose else [])], rows)


def _lag_cell(answer: GroupAnswer) -> str | None:
    return str(lag_of(answer.offsets)) if answer.offsets else None


def _lag_fields(lag: Lag) -> dict[str, int | None]:
    return {"lag": lag.total, "known_lag": lag.known, "unknown_lag_share_partitions": lag.unknown}


def _assigned(member: GroupMember) -> str:
    return "; ".join(f"{part.topic}:{','.join(map(str, part.partitions))}" for part in member.assignment)


def _name(group: GroupDescription) -> str:
    return repr(printable(group.group_id))
