"""What this branch adds to the trunk: commands, by their entry points, and rules of files."""

from __future__ import annotations

from typing import Final

from acktrail.branches import Branch

COPIED_LOGS: Final = Branch(package="acktrail_copied_logs")
