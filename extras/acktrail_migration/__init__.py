"""Start offsets of share groups carried to another cluster: what the source had, and where that is on the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from acktrail.branches import Branch
from acktrail.model.acls import WantedAcls, reset

WANTED: Final[Mapping[str, WantedAcls]] = {"migration": reset}
"""A migration resets start offsets on the target cluster; a checkpoint topic that it reads is one of the topics."""
MIGRATION = Branch(
    package="acktrail_migration",
    change_kinds={"migration": "acktrail_migration.migration_kind:MIGRATION"},
    acls="acktrail_migration:WANTED",
)
