"""Who asks for a change, and who may approve it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable

from acktrail.config import ApprovalRule
from acktrail.errors import ChangeRefused

__all__ = ["account", "check_approvals", "check_approver", "requesters"]


def account() -> str:
    """The account that this process runs under, by the system and not by the environment, which anybody may set."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"


def requesters(created_by: str, requested_by: str) -> frozenset[str]:
    """Those who may not approve their own plan: who made it, and for whom."""
    return frozenset(_name(one) for one in (created_by, requested_by) if one.strip())


def check_approver(actor: str, asked_by: frozenset[str], rule: ApprovalRule) -> None:
    """Pass when `actor` may approve a plan that `asked_by` asked for.

    Raises:
        ChangeRefused: `own_approval`, under the rule that a second person approves.
    """
    if rule is ApprovalRule.SECOND_PERSON and _name(actor) in asked_by:
        raise ChangeRefused(
            "own_approval",
            f"{actor} asked for the plan and may not approve it",
            hint="somebody else approves it: acktrail reset approve (ACKTRAIL_RESET_APPROVAL=second-person)",
        )


def check_approvals(plan_id: str, approved_by: Iterable[str], asked_by: frozenset[str], rule: ApprovalRule) -> None:
    """Pass when a plan that these people approved may be carried out.

    Raises:
        ChangeRefused: `approval_missing`.
    """
    names = list(approved_by)
    if rule is ApprovalRule.SECOND_PERSON:
        names = [name for name in names if _name(name) not in asked_by]
    if names or rule is ApprovalRule.OPTIONAL:
        return
    whose = " by a second person" if rule is ApprovalRule.SECOND_PERSON else ""
    raise ChangeRefused(
        "approval_missing",
        f"plan {plan_id} needs an approval{whose}",
        hint=f"acktrail reset approve {plan_id} (ACKTRAIL_RESET_APPROVAL={rule.value})",
    )


def _name(person: str) -> str:
    return person.strip().casefold()
