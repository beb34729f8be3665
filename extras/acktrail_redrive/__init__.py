"""Archived records put back into a topic, exactly once: ``acktrail change plan redrive``. A branch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from acktrail.branches import Branch
from acktrail.model.acls import Acl, WantedAcls, each

IDS: Final = "acktrail-redrive-"
"""What the ids of its transactions begin with."""


def wanted(groups: Sequence[str], topics: Sequence[str]) -> list[Acl]:
    """Records read and written: `topics` are the sources and the target."""
    own = [*each("READ", "topic", topics), *each("WRITE", "topic", topics)]
    return [*each("DESCRIBE", "group", groups), *own, Acl("WRITE", "transactional-id", IDS, is_prefix=True)]


WANTED: Final[Mapping[str, WantedAcls]] = {"redrive": wanted}
REDRIVE = Branch(
    package="acktrail_redrive",
    change_kinds={"redrive": "acktrail_redrive.redrive_kind:REDRIVE"},
    acls="acktrail_redrive:WANTED",
)
