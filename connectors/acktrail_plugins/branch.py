"""What this branch adds to the trunk: connectors and transforms, by their entry points."""

from __future__ import annotations

from typing import Final

from acktrail.branches import Branch

PLUGINS: Final = Branch(package="acktrail_plugins")
