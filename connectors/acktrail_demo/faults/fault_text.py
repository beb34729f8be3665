"""Injected faults and what was found of them, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from acktrail.model.rules.catalogue import RULE_BY_ID
from acktrail.plain_tables import printable, table
from acktrail_demo.faults.found_faults import FoundFaults, Sign, signs_of


def found_faults_text(found: FoundFaults, statuses: Mapping[str, frozenset[str]], stopped: str | None) -> str:
    """A line for each fault: which share partition it happened to, and whether everything that it must fire was found;
    the statuses of groups whose consumers misbehave; what was found beside that, and what stopped the run."""
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
        yield f"misbehaving consumers of {printable(group)}: {', '.join(sorted(shown)) or 'no status'}"
    yield f"{whole} of {len(found.injected)} faults found, {printable(others)}"
    yield f"gate: {printable(stopped)}" if stopped else "gate: passed"


def _name_list(signs: frozenset[Sign]) -> str:
    """The rules, each once (a finding and expectations of two suites can be of one rule), and statuses."""
    rules = {RULE_BY_ID[name.rpartition(".")[2]].id for kind, name, _, _ in signs if kind != "status"}
    return ", ".join((*sorted(rules), *(f"status {name}" for kind, name, _, _ in sorted(signs) if kind == "status")))
