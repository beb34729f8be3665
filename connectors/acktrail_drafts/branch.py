"""What this branch adds to the trunk: dialects, and replay by the rules of the founding documents."""

from __future__ import annotations

from typing import Final

from acktrail.branches import Branch

OLD_FORMATS: Final = Branch(
    package="acktrail_drafts",
    dialects="acktrail_drafts.dialects:DRAFTS",
    strict_replay="acktrail_drafts.strict_replay:replay_released",
)
