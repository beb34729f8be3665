"""Which groups ``acktrail groups`` shows, and the brokers' answer about each: a description or an error."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from acktrail.errors import AcktrailError, InputError, UnknownName

if TYPE_CHECKING:
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.broker.descriptions import GroupDescription, GroupListing, ShareOffset


_STATES: Final = ("Empty", "Stable", "Dead")
"""The states of a share group (Kafka's ``GroupState``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAnswer:
    """One group: its description and share partitions, or the error in their place."""

    group_id: str
    group: GroupDescription | None = None
    offsets: tuple[ShareOffset, ...] = ()
    error: AcktrailError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The lag of several share partitions: `known` is the sum of the known ones, `unknown` the number of others."""

    known: int
    unknown: int

    @property
    def total(self) -> int | None:
        """The whole lag; None while one share partition's is not known."""
        return None if self.unknown else self.known

    def __str__(self) -> str:
        """For people: ``>=7`` leaves out what is not known."""
        return f">={self.known}" if self.unknown else str(self.known)


def lag_of(offsets: Iterable[ShareOffset]) -> Lag:
    """The lag of these share partitions."""
    lags = [offset.lag for offset in offsets]
    return Lag(known=sum(lag for lag in lags if lag is not None), unknown=lags.count(None))


def list_matching(
    admin: ShareGroupAdmin, patterns: Sequence[str] = (), states: Sequence[str] = ()
) -> tuple[GroupListing, ...]:
    """The share groups whose id matches one of `patterns` (shell style; none: all) and whose state is in `states`.

    Raises:
        InputError: a state that share groups do not have.
    """
    wanted = {_state(text) for text in states}
    return tuple(
        listing
        for listing in admin.list_groups()
        if (not patterns or any(fnmatch.fnmatchcase(listing.group_id, pattern) for pattern in patterns))
        and (not wanted or listing.state in wanted)
    )


def selected_ids(
    admin: ShareGroupAdmin, groups: Sequence[str], patterns: Sequence[str], *, all_groups: bool
) -> tuple[str, ...]:
    """The ids of the named groups and of the groups that match, each once.

    Raises:
        InputError: nothing was named, or both groups and all groups.
        UnknownName: no share group matches a pattern.
    """
    if all_groups and (groups or patterns):
        raise InputError("--all-groups and named groups exclude each other", hint="give one of them")
    if not (groups or patterns or all_groups):
        raise InputError("no group named", hint="name groups, or give --group-glob or --all-groups")
    if not (patterns or all_groups):
        return tuple(dict.fromkeys(groups))
    known = [listing.group_id for listing in admin.list_groups()]
    found = list(groups) if not all_groups else known
    for pattern in patterns:
        matches = [group_id for group_id in known if fnmatch.fnmatchcase(group_id, pattern)]
        if not matches:
            raise UnknownName("share group that matches", pattern)
        found += matches
    return tuple(dict.fromkeys(found))


def describe_all(admin: ShareGroupAdmin, group_ids: Sequence[str], topic: str | None = None) -> list[GroupAnswer]:
    """The brokers' description of each group, in the order asked for; `topic` (shell style) leaves out other topics.

    Two requests a coordinator, however many groups.

    Raises:
        Unreachable, RetryableError: a coordinator did not answer.
    """
    groups = admin.describe_groups(group_ids)
    described = [group.group_id for group in groups if not group.error_code]
    offsets = {answer.group_id: answer for answer in admin.describe_group_offsets(described)}
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


def _state(text: str) -> str:
    found = next((state for state in _STATES if state.lower() == text.strip().lower()), None)
    if found is None:
        raise InputError(f"share groups have no state {text!r}", hint=f"use one of {', '.join(_STATES)}")
    return found
