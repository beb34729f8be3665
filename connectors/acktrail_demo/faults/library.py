"""Every fault that the checks are proven with, by name: what happens and what must be found is data, in
``faults.toml``; how it is injected is the function of its name in ``injections``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from acktrail.model.package_data import PackageData
from acktrail.model.queue_status import QueueStatus
from acktrail_demo.faults import injections
from acktrail_demo.faults.fault import Expected, Seen, StateFault

_FOUND: Final = frozenset({"findings", "fails", "verdict", "status"})


def parse_faults(text: str, where: str) -> Mapping[str, StateFault]:
    """The faults in `text`, TOML, by name. `where` names it in errors. Raises ValueError, with the line of what is
    wrong: no TOML, an unknown field, origin, status or injection."""
    file = PackageData(text, where, "fault")
    return MappingProxyType({row["name"]: file.made(row, _fault) for row in file.data["fault"]})


def _fault(row: Mapping[str, Any]) -> StateFault:
    own = {name: value for name, value in row.items() if name not in _FOUND}
    if not hasattr(injections, row["name"]):
        raise ValueError(f"nothing injects {row['name']}")
    if "subject" in own:
        own["subject"] = getattr(injections, own["subject"])
    expected = Expected(
        findings=frozenset(row.get("findings", ())),
        failing=frozenset(row.get("fails", ())),
        verdict=row.get("verdict", "match"),
        status=QueueStatus(row.get("status", QueueStatus.OK)),
    )
    own["seen"] = Seen[row["seen"].upper()]
    return StateFault(**own, inject=getattr(injections, row["name"]), expected=expected)


_FILE: Final = "faults.toml"
FAULTS: Final = parse_faults(files(__package__).joinpath(_FILE).read_text("utf-8"), f"acktrail/faults/{_FILE}")
"""Every fault by its name."""


def faults_on(release: str) -> tuple[StateFault, ...]:
    """The faults that can be injected on a running broker of `release`."""
    return tuple(fault for fault in FAULTS.values() if fault.on_broker and _number(release) >= _number(fault.since))


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".")[:2])
