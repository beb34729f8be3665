"""Write the page of faults: ``tools/write_faults.py`` makes docs/explanation/faults.md of the library
(`acktrail_demo.faults`) and of the catalogue of rules.

It has every fault, every rule that a fault breaks, and the rules that none breaks.
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

For people who ask what acktrail finds. Here is every known fault, and what is found if it happens.

`acktrail demo --with-faults` shows these faults on your machine. `tests/extras/demo/test_faults.py` injects each one
into a healthy cluster, on paper and in the state topic of a real broker, and compares what is found with this page. If
nothing is injected, nothing is found.

A fault is data: a name, a sentence, and a function from a healthy share partition to the records that the state topic
has after the fault. The test appends these records to `__share_group_state` (Kafka accepts them from a client with the
id `__admin_client`) and restarts the broker, which loads them as its own. Do this only to a throw-away broker.

`tools/write_faults.py` writes this page from `acktrail_demo.faults.library:FAULTS` and the
[rules](../reference/rules.md)."""


def page() -> str:
    """The whole document."""
    return "\n".join((_HEAD, "", *_faults(), "", *_by_rule(), "", *_unbroken(), ""))


def broken_by(fault: StateFault) -> frozenset[str]:
    """The ids of the rules of the catalogue that a fault breaks."""
    names = {name.rpartition(".")[2] for name in fault.expected.failing} | fault.expected.findings
    return frozenset(rule_catalogue().by_id[name].id for name in names)


def _faults() -> Iterator[str]:
    yield "## The faults"
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


def _by_rule() -> Iterator[str]:
    yield "## Fault by rule"
    yield ""
    yield "| rule | severity | faults, by their numbers above |"
    yield "|---|---|---|"
    broken = [broken_by(fault) for fault in FAULTS.values()]
    for rule in rule_catalogue().rules:
        if numbers := [str(number) for number, ids in enumerate(broken, 1) if rule.id in ids]:
            yield f"| [`{rule.id}`](../{rule.page}) | {rule.severity.value} | {', '.join(numbers)} |"


def _unbroken() -> Iterator[str]:
    broken = frozenset().union(*(broken_by(fault) for fault in FAULTS.values()))
    yield "## Rules that no fault of the library breaks"
    yield ""
    yield "Only damage to tables, a plan or a file breaks them. Tests break each of them, those of tables in"
    yield "`tests/expectations/test_damage.py`."
    yield ""
    for severity in reversed(QualitySeverity):
        rules = [rule for rule in rule_catalogue().rules if rule.severity is severity]
        names = [rule for rule in rules if rule.id not in broken and rule.id not in rule_catalogue().audits]
        if names:
            yield f"* {severity.value}: {', '.join(f'[`{rule.id}`](../{rule.page})' for rule in names)}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
