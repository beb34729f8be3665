"""Every fault that the checks are proven with, by name: what happens and what must be found is data, in
``faults.toml``; how it is injected is the function of its name in ``injections``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from acktrail.model.package_data import PackageData, check_names
from acktrail.model.queue_status import QueueStatus
from acktrail.model.rules.catalogue import RULE_BY_ID
from acktrail.model.share_partition import SharePartition
from acktrail_demo.faults import injections

_FOUND: Final = frozenset({"findings", "fails", "verdict", "status"})
_MADE: Final = frozenset({"inject", "expected"})
_FILE: Final = "faults.toml"


class Seen(StrEnum):
    """Where a fault was seen."""

    KAFKA = "a fault of Kafka"
    CLUSTER = "a fault of a cluster or of its operation"
    STORED = "no broker writes it: damage, or a foreign writer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Exactly what is found of a fault that happens to one share partition: rules of ``findings``, names
    ``suite.rule`` of expectations that fail, the verdict on the share partition, and its status after that run."""

    findings: frozenset[str] = frozenset()
    failing: frozenset[str] = frozenset()
    verdict: str = "match"
    status: QueueStatus = QueueStatus.OK


def _itself(key: SharePartition) -> SharePartition:
    return key


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFault:
    """A named fault.

    `happens`: what goes wrong, and what comes of it. `issue`: where Kafka's developers describe it. `releases`: which
    are concerned. `inject`: the records that a state topic has after it, from the share partition it happens to. Before
    them `grows_by` records are written to the partition itself. `is_new_partition`: it happens to a partition that was
    added to the topic, and that has no state yet. `on_broker`: a running broker that loads the records describes the
    share partition as the fault says, from release `since` on. `subject`: the share partition that findings name, by
    the one that the fault happens to.
    """

    name: str
    happens: str
    seen: Seen
    releases: str
    inject: injections.Injection
    expected: Expected
    issue: str | None = None
    grows_by: int = 0
    is_new_partition: bool = False
    subject: Callable[[SharePartition], SharePartition] = _itself
    on_broker: bool = True
    since: str = "4.2"


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFault:
    """A fault, and the share partition that it happened to."""

    fault: StateFault
    key: SharePartition

    @property
    def subject(self) -> SharePartition:
        """The share partition that findings name."""
        return self.fault.subject(self.key)


def parse_faults(text: str, where: str) -> Mapping[str, StateFault]:
    """The faults in `text`, TOML, by name. `where` names it in errors. Raises ValueError, with the line of what is
    wrong: no TOML, a field that is missing or not known, an unknown origin, status, rule or injection, a name twice."""
    file, found = PackageData(text, where, "fault"), dict[str, StateFault]()

    def make(row: Mapping[str, Any]) -> StateFault:
        fault = _fault(row)
        if fault.name in found:
            raise ValueError(f"another fault has the name {fault.name!r}")
        return fault

    for row in file.data["fault"]:
        fault = file.made(row, make)
        found[fault.name] = fault
    return MappingProxyType(found)


def _fault(row: Mapping[str, Any]) -> StateFault:
    check_names(row, StateFault, added=_FOUND, left_out=_MADE)
    own = {name: value for name, value in row.items() if name not in _FOUND}
    for function in (row["name"], row.get("subject", row["name"])):
        if not hasattr(injections, function):
            raise ValueError(f"nothing injects {function}")
    if "subject" in own:
        own["subject"] = getattr(injections, own["subject"])
    own["seen"] = Seen[row["seen"].upper()] if row["seen"].upper() in Seen.__members__ else Seen(row["seen"])
    return StateFault(**own, inject=getattr(injections, row["name"]), expected=_expected(row))


def _expected(row: Mapping[str, Any]) -> Expected:
    findings, failing = frozenset(row.get("findings", ())), frozenset(row.get("fails", ()))
    known = {f"{suite}.{rule.id}" for rule in RULE_BY_ID.values() for suite in rule.suites}
    if unknown := {*(findings - RULE_BY_ID.keys()), *(failing - known)}:
        raise ValueError(f"there is no rule {min(unknown)!r}")
    return Expected(
        findings=findings,
        failing=failing,
        verdict=row.get("verdict", "match"),
        status=QueueStatus(row.get("status", QueueStatus.OK)),
    )


FAULTS: Final = parse_faults(files(__package__).joinpath(_FILE).read_text("utf-8"), f"acktrail_demo/faults/{_FILE}")
"""Every fault by its name."""


def faults_on(release: str) -> tuple[StateFault, ...]:
    """The faults that can be injected on a running broker of `release`."""
    return tuple(fault for fault in FAULTS.values() if fault.on_broker and _number(release) >= _number(fault.since))


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".")[:2])
