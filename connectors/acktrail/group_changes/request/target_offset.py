"""Offsets that a file, the history or an earlier plan names, one for each share partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Given", "GivenOffsets"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """`offset` None: there is none, and `reason` says why. `topic_id` is the incarnation that it was true of; `left_at`
    where the plan that is taken back left the start offset."""

    offset: int | None
    reason: str | None = None
    topic_id: str | None = None
    left_at: int | None = None


GivenOffsets = Mapping[str, Mapping[tuple[str, int], Given]]
"""By group, then topic and partition."""
