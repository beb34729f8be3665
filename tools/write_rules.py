"""Write the page of rules: ``tools/write_rules.py`` makes docs/rules.md of the catalogue (`acktrail.model.rules`).

The same catalogue always gives the same page. Every id of a rule is an anchor of the page, as findings and results
of validations name it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Final

from acktrail.model.rules.catalogue import QualityRule, QualitySeverity, rule_catalogue

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs/rules.md"
_COLUMNS: Final = 158

_EFFECT: Final = {
    QualitySeverity.CRITICAL: "what would be published is wrong, or acting on it would lose records: the run stops",
    QualitySeverity.ERROR: "something is wrong or lost and recorded as such; what is published is still true",
    QualitySeverity.WARNING: "legal, or explained by things outside the tables, but a person should know",
    QualitySeverity.INFO: "legal, and good to know",
}


def page() -> str:
    """The whole document."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "# Rules"
    yield ""
    yield "What must be true of state records, replayed states, exports, verdicts and resets. Findings and"
    yield "expectations have the same severities, from one catalogue: `acktrail.model.rules.catalogue:rule_catalogue`."
    yield "This page is written by `tools/write_rules.py`. How rules are evaluated: [quality](quality.md)."
    yield ""
    yield "| severity | a breach means |"
    yield "|---|---|"
    for severity in reversed(QualitySeverity):
        yield f"| `{severity.value}` | {_EFFECT[severity]} |"
    for subject, rules in rule_catalogue().by_subject.items():
        yield from ("", f"## {subject}", "", "| rule | severity | what must be true |", "|---|---|---|")
        for rule in rules:
            yield f"| [`{rule.id}`](#{rule.id}) | {rule.severity.value} | {rule.title} |"
        for rule in rules:
            yield from ("", *_section(rule))
    yield ""


def _section(rule: QualityRule) -> Iterator[str]:
    yield f"### {rule.id}"
    yield ""
    for other in rule.also:
        yield f'<a id="{other}"></a>'
    names = "".join(f", also `{other}`" for other in rule.also)
    stops = "; stops the gate" if rule.stops_gate else ""
    yield f"**{rule.title}** ({rule.severity.value}{stops}{names})."
    yield ""
    suites = f" Suites: {_names(rule.suites)}." if rule.suites else " Reported as a finding or by an offline replay."
    for line in (
        f"* Broken when: {rule.meaning}",
        f"* Why {rule.severity.value}: {rule.why}",
        f"* What to do: {rule.advice}",
        f"* From: {'; '.join(rule.sources)}. Applies since: {rule.since}.",
        f"* Reads: {_names(rule.tables)}.{suites}{_compares(rule)}",
    ):
        yield from wrap(line, _COLUMNS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _compares(rule: QualityRule) -> str:
    """Which rows the rule is about, and which it leaves out."""
    rows = f" Looks at: {rule.where}." if rule.where else ""
    return rows + (f" Not judged where a row breaks {_names(rule.presumes)}." if rule.presumes else "")


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
