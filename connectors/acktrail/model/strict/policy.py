"""The two policies of replay."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Policy"]


class Policy(StrEnum):
    """Which law an update obeys."""

    BROKER = "broker"
    """What a running broker does: no epoch drops a record, an update without a snapshot becomes the state."""
    STRICT = "strict"
    """What the founding documents say: an update counts only on top of the snapshot whose epoch it names."""
