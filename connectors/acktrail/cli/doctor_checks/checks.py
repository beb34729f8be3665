"""One thing that ``acktrail doctor`` looks at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from acktrail.errors import AcktrailError


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCheck:
    """`status` is ok, note (works, but know this) or missing (`hint` says what to do)."""

    what: str
    status: str
    detail: str
    hint: str = ""


def tried(what: str, attempt: Callable[[], str], note: str = "") -> DoctorCheck:
    """``ok`` with what `attempt` gives and `note`; ``missing`` with the error that it raises."""
    try:
        detail = attempt()
    except AcktrailError as error:
        return DoctorCheck(what=what, status="missing", detail=error.message, hint=error.hint)
    return DoctorCheck(what=what, status="ok", detail=f"{detail} ({note})" if note else detail)
