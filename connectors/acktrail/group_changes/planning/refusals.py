"""What to raise for refusals: one cause has one error, and one exit code, wherever it is met."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from acktrail.errors import AcktrailError, ChangeRefused, GroupNotEmpty, NotAuthorized
from acktrail.group_changes.collection.facts import GroupFacts
from acktrail.group_changes.planning.notices import Notice

__all__ = ["refusal_error"]


def refusal_error(
    refusals: Sequence[Notice],
    groups: Iterable[GroupFacts],
    *,
    operation: str = "READ",
    kind: type[ChangeRefused] = ChangeRefused,
    hint: str = "",
) -> AcktrailError:
    """The error for the first of `refusals`; its message counts the others.

    Members are `GroupNotEmpty` (try again), a missing right is `NotAuthorized` (the ACL `operation`), anything else is
    a `kind`, which has the rule's name. `groups` are as they were found, with their members.
    """
    first = refusals[0]
    more = f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""
    error: AcktrailError
    if first.rule == "group_not_empty":
        members = next((group.members for group in groups if group.group_id == first.group_id), ())
        error = GroupNotEmpty(first.group_id or "", members=members)
    elif first.rule == "unauthorized_group":
        error = NotAuthorized(operation, f"group {first.group_id!r}")
    elif first.rule == "unauthorized_topic":
        error = NotAuthorized(operation, f"topic {first.topic!r}")
    else:
        return kind(first.rule, f"{first.line}{more}", hint=hint)
    error.message = f"{error.message} [{first.rule}]{more}"
    error.data = {**error.data, "rule": first.rule}
    return error
