"""Which extra of the wheel a command needs: what to install where a package is missing."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from acktrail.errors import MissingDependency

EXTRAS: Final = MappingProxyType(
    {
        "archived": "tables",
        "demo": "all",
        "doctor": "kafka,tables",
        "export": "kafka,tables",
        "groups": "kafka,tables",
        "history": "spark",
        "import": "tables",
        "offsets": "kafka,tables",
        "rates": "tables",
        "reconcile": "spark",
        "record": "tables",
        "report": "tables",
        "reset": "kafka,tables",
        "state": "spark",
        "validate": "quality",
        "verify": "spark",
    }
)
"""Extras by command; others need none, except for file formats that only an extra reads."""

_OWN: Final = "acktrail"


def missing_extra(error: ModuleNotFoundError, arguments: Sequence[str]) -> MissingDependency | None:
    """The error for a package that a command line's command needs and that is not installed; None: the module that is
    missing is acktrail's own, which is a defect."""
    package = (error.name or "").partition(".")[0]
    if not package or package.startswith(_OWN):
        return None
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    extras = EXTRAS.get(command, "all")
    return MissingDependency(
        f"the package {package} is not installed, which `acktrail {command}` needs",
        hint=f"pip install 'acktrail[{extras}]'",
        data={"package": package, "extras": extras},
    )
