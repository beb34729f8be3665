"""Every fault that the checks are proven with, by name: what happens and what must be found is data, in
``faults.toml``; how it is injected is the function of its name in ``injections``. And what one run found, beside what
its faults must fire: compared, and as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

import pyarrow.compute as pc

from acktrail.model.queue_status import QueueStatus
from acktrail.model.rules.catalogue import QualitySeverity, rule_catalogue
from acktrail.model.share_partition import SharePartition
from acktrail.package_data import PackageData, check_names
from acktrail.tables.delta.store import Tables
from acktrail.text_tables import printable, table
from acktrail_demo.faults import injections

_FOUND: Final = frozenset({"findings", "fails", "verdict", "status"})
_MADE: Final = frozenset({"inject", "expected"})
_FILE: Final = "faults.toml"
OF_STATE_PARTITIONS: Final = frozenset({"export_complete", "records_quarantined", "state_log_pruned"})
"""Rules of findings whose subject is a state partition, not a share partition."""
_IN_ORDER: Final = (QueueStatus.OK, QueueStatus.IDLE, QueueStatus.NOT_JUDGED)
_NO_SUBJECT: Final = ("", None)
Sign = tuple[str, str, str, int | None]
"""One thing that was found: what kind it is, its name, and the group and partition that it names (or neither)."""


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
    subject: Callable[[SharePartition], SharePartition] = lambda key: key
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
    known = {f"{suite}.{rule.id}" for rule in rule_catalogue().by_id.values() for suite in rule.suites}
    if unknown := {*(findings - rule_catalogue().by_id.keys()), *(failing - known)}:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFaults:
    """`missing`: what each injected fault must fire and did not. `others`: what was found and belongs to none."""

    injected: tuple[InjectedFault, ...]
    missing: tuple[frozenset[Sign], ...]
    others: frozenset[Sign]

    @property
    def is_exact(self) -> bool:
        """Whether exactly that was found which was injected."""
        return not self.others and not any(self.missing)


def find_faults(
    tables: Tables, run_id: str, injected: Iterable[InjectedFault], *, known: frozenset[Sign] = frozenset()
) -> FoundFaults:
    """Compare a reconciled and validated run with the faults that were injected before it. `known`: what was found
    before the faults, and may be found again."""
    placed = tuple(injected)
    found = signs_in_run(tables, run_id)
    wanted = [signs_of(each) for each in placed]
    return FoundFaults(
        injected=placed,
        missing=tuple(signs - found for signs in wanted),
        others=found - known - frozenset().union(*wanted),
    )


def signs_of(injected: InjectedFault) -> frozenset[Sign]:
    """Return the findings and verdicts that an injected fault must cause."""
    expected, key = injected.fault.expected, injected.subject
    own = (str(key.group_id), key.partition)
    rules = ((rule, _NO_SUBJECT if rule in OF_STATE_PARTITIONS else own) for rule in expected.findings)
    verdicts = () if expected.verdict == "match" else (("verdict", expected.verdict, *own),)
    statuses = () if expected.status in _IN_ORDER else (("status", expected.status.value, *own),)
    failing = (("expectation", name, *_NO_SUBJECT) for name in expected.failing)
    return frozenset((*(("finding", rule, *subject) for rule, subject in rules), *failing, *verdicts, *statuses))


def signs_in_run(tables: Tables, run_id: str) -> frozenset[Sign]:
    """Everything that a run found: its findings, expectations that fail, verdicts that are no match, and statuses
    that are neither ok, idle nor new (as long as it is the newest run). Expectations
    that are only for information fail in a normal life too, and are left out."""
    own = pc.field("run_id") == run_id
    findings = tables.read("findings", where=own).to_pylist()
    verdicts = tables.read("reconciliations", where=own & (pc.field("verdict") != "match")).to_pylist()
    statuses = tables.read("queue_statuses", columns=["status", "group_id", "partition"], where=own).to_pylist()
    results = tables.read("quality_results", where=own).to_pylist()
    newest = max((row["evaluated_at"] for row in results), default=None)
    failing = [
        row
        for row in results
        if row["evaluated_at"] == newest and row["success"] is False and row["severity"] != QualitySeverity.INFO
    ]
    return frozenset(
        (
            *(("finding", row["rule"], *_subject(row)) for row in findings),
            *(("verdict", row["verdict"], *_subject(row)) for row in verdicts),
            *(("status", row["status"], *_subject(row)) for row in statuses if row["status"] not in _IN_ORDER),
            *(("expectation", f"{row['suite']}.{row['expectation']}", *_NO_SUBJECT) for row in failing),
        )
    )


def _subject(row: dict[str, Any]) -> tuple[str, int | None]:
    return (row["group_id"] or "", row["partition"])


def found_faults_text(found: FoundFaults, statuses: Mapping[str, frozenset[str]], stopped: str | None) -> str:
    """A line for each fault: which share partition it happened to, and whether everything that it must fire was found;
    the statuses of groups whose consumers misbehaved and left; what was found beside that, and what stopped the run."""
    rows = [
        (
            each.fault.name,
            f"{each.subject.group_id}, partition {each.subject.partition}",
            _name_list(signs_of(each)),
            f"missing: {_name_list(missing)}" if missing else "all",
        )
        for each, missing in zip(found.injected, found.missing, strict=True)
    ]
    return "\n".join((table(("FAULT", "HAPPENED TO", "FIRES", "FOUND"), rows), "", *_ends(found, statuses, stopped)))


def _ends(found: FoundFaults, statuses: Mapping[str, frozenset[str]], stopped: str | None) -> Iterator[str]:
    whole = sum(not missing for missing in found.missing)
    others = "nothing else" if not found.others else f"also: {_name_list(found.others)}"
    for group, shown in statuses.items():
        yield f"after misbehaving consumers of {printable(group)} left: {', '.join(sorted(shown)) or 'no status'}"
    yield f"{whole} of {len(found.injected)} faults found, {printable(others)}"
    yield f"gate: {printable(stopped)}" if stopped else "gate: passed"


def _name_list(signs: frozenset[Sign]) -> str:
    """The rules, each once (a finding and expectations of two suites can be of one rule), and statuses."""
    rules = {rule_catalogue().by_id[name.rpartition(".")[2]].id for kind, name, _, _ in signs if kind != "status"}
    return ", ".join((*sorted(rules), *(f"status {name}" for kind, name, _, _ in sorted(signs) if kind == "status")))
