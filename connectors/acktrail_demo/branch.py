"""What this branch adds to the trunk: the command ``acktrail demo``."""

from __future__ import annotations

from typing import Final

from acktrail.branches import Branch

DEMO: Final = Branch(package="acktrail_demo")
