"""What this branch adds to the trunk: connectors, transforms and the plan of a migration, by their entry points."""

from __future__ import annotations

from typing import Final

from acktrail.branches import Branch

PLUGINS: Final = Branch(
    package="acktrail_plugins", change_kinds={"migration": "acktrail_plugins.migration.migration_kind:MIGRATION"}
)
