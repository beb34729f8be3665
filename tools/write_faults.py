"""Write the page of faults: ``tools/write_faults.py`` makes docs/explanation/faults.md of the library
(`acktrail_demo.faults`) and of the catalogue of rules.

The matrix has every fault, and every rule that a fault breaks; the other rules are listed below it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from extras.demo.alerts import alerts_of  # of the tests

from acktrail.model.queue_status import QueueStatus
from acktrail.model.rules.catalogue import QualitySeverity, rule_catalogue
from acktrail_demo.faults.library import FAULTS, StateFault

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs/explanation/faults.md"

_HEAD: Final = """# Faults

For people who ask what acktrail finds. Here is every known fault, and what is found where it happens.

A library of known faults of share-group state: what goes wrong, where Kafka's developers describe it, how it is
injected, and exactly what acktrail must find. It proves the checks. `tests/extras/demo/test_faults.py` lets every fault
happen to a healthy cluster, on paper and in the state topic of a real broker. It compares what is found with the
library; where nothing is injected, nothing is found. `acktrail demo --with-faults` shows the same on your machine.

This page is written by `tools/write_faults.py` from `acktrail_demo.faults.library:FAULTS` and from the
[rules](../reference/rules.md).

A fault is data: a name, a sentence, and a pure function from a healthy share partition to the records that the state
topic has after the fault. On a broker these records are appended to `__share_group_state` (Kafka takes them from a
client with the id `__admin_client`), and the broker is started again. Its share coordinators load them as if they had
written them, and describe what they loaded. For throw-away brokers only."""


def page() -> str:
    """The whole document."""
    return "\n".join((_HEAD, "", *_faults(), "", *_matrix(), "", *_unbroken(), ""))


def broken_by(fault: StateFault) -> frozenset[str]:
    """The ids of the rules of the catalogue that a fault breaks."""
    names = {name.rpartition(".")[2] for name in fault.expected.failing} | fault.expected.findings
    return frozenset(rule_catalogue().by_id[name].id for name in names)


def _faults() -> Iterator[str]:
    yield "## The library"
    yield ""
    yield "| | fault | what happens | Kafka releases | what is found | alerts | gate |"
    yield "|---|---|---|---|---|---|---|"
    for number, fault in enumerate(FAULTS.values(), 1):
        issue = f" ({_issue(fault.issue)})" if fault.issue else ""
        where = "" if fault.on_broker else " On paper only."
        yield (
            f"| {number} | `{fault.name}` | {fault.happens[0].upper()}{fault.happens[1:]}{issue}. "
            f"*{fault.seen.value[0].upper()}{fault.seen.value[1:]}.*{where} | {fault.releases} | {_found(fault)} | "
            f"{', '.join(f'[{name}](../reference/runbooks.md#{name.lower()})' for name in sorted(alerts_of(fault)))} | "
            f"{'stops' if _stops(fault) else 'passes'} |"
        )


def _issue(issue: str) -> str:
    if issue.startswith("KAFKA-"):
        return f"[{issue}](https://issues.apache.org/jira/browse/{issue})"
    repository, _, number = issue.partition("#")
    return f"[#{number}](https://github.com/{repository}/pull/{number})"


def _found(fault: StateFault) -> str:
    expected = fault.expected
    found = [f"finding `{rule}`" for rule in sorted(expected.findings)]
    found += [f"`{name}` fails" for name in sorted(expected.failing)]
    if expected.verdict != "match":
        found.append(f"verdict `{expected.verdict}`")
    if expected.status is not QueueStatus.OK:
        found.append(f"status `{expected.status.value}`")
    return "; ".join(found)


def _stops(fault: StateFault) -> bool:
    names = (name.rpartition(".")[2] for name in fault.expected.failing)
    return any(rule_catalogue().by_id[name].severity is QualitySeverity.CRITICAL for name in names)


def _matrix() -> Iterator[str]:
    faults = list(FAULTS.values())
    yield "## Fault by rule"
    yield ""
    yield "Columns are the faults by their numbers above."
    yield ""
    yield f"| rule | severity | {' | '.join(str(number) for number in range(1, len(faults) + 1))} |"
    yield f"|---|---|{'---|' * len(faults)}"
    broken = [broken_by(fault) for fault in faults]
    for rule in rule_catalogue().rules:
        if any(rule.id in ids for ids in broken):
            marks = " | ".join("●" if rule.id in ids else "" for ids in broken)
            yield f"| [`{rule.id}`](../{rule.page}) | {rule.severity.value} | {marks} |"


def _unbroken() -> Iterator[str]:
    broken = frozenset().union(*(broken_by(fault) for fault in FAULTS.values()))
    yield "## Rules that no fault of the library breaks"
    yield ""
    yield "What breaks them is damage to tables, a plan or a file: tests break them one by one, those of tables in"
    yield "`tests/expectations/test_damage.py`."
    yield ""
    yield "| rule | severity |"
    yield "|---|---|"
    for rule in rule_catalogue().rules:
        if rule.id not in broken and rule.id not in rule_catalogue().audits:
            yield f"| [`{rule.id}`](../{rule.page}) | {rule.severity.value} |"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
