"""Write the page of rules: ``tools/write_rules.py`` makes docs/reference/rules.md of the catalogue
(`acktrail.model.rules`).

The same catalogue always gives the same page. Every id of a rule is an anchor of the page, as findings and results
of validations name it. ``suite_columns.toml`` has a sentence for each column that only suites have.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Final

from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.rules.catalogue import QualityRule, QualitySeverity, rule_catalogue
from acktrail_expectations.evaluation import check_of, checks_of

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs/reference/rules.md"
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
    yield "For readers of a finding or a failed check. Here is what each rule means, and what to do about a breach."
    yield ""
    yield "Rules are about state records, replayed states, exports, verdicts and resets. Findings and"
    yield "expectations have the same severities, from one catalogue: `acktrail.model.rules.catalogue:rule_catalogue`."
    yield "This page is written by `tools/write_rules.py`. How rules are evaluated: [checks](checks.md)."
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
    yield from ("", *_suites(), "")


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
    """The expectation and its columns, which rows the rule is about, and which it leaves out."""
    rows = f" Looks at: {rule.where}." if rule.where else ""
    if rule.suites:
        check = check_of(rule)
        rows = f" Expectation: `{type(check.expectation).__name__}` of {_names(check.columns)}.{rows}"
    return rows + (f" Not judged where a row breaks {_names(rule.presumes)}." if rule.presumes else "")


def _suites() -> Iterator[str]:
    """Of each suite the columns that its expectations compare, with what each has, and the rules that need it."""
    yield "## Columns of suites"
    yield ""
    yield "An exported suite runs on any table that has these columns. A part of it runs on a table with fewer columns:"
    yield "see [suites on your own tables](../how-to/check-with-great-expectations.md#a-suite-on-a-table-of-your-own)."
    computed = tomllib.loads((ROOT / "tools/suite_columns.toml").read_text("utf-8"))
    unused = {*computed}
    for suite in dict.fromkeys(name for rule in rule_catalogue().rules for name in rule.suites):
        rules: dict[str, list[QualityRule]] = {}
        for check in checks_of(suite):
            for column in check.columns:
                rules.setdefault(column, []).append(check.rule)
        yield from ("", f"### Suite {suite}", "", "| column | what it has | compared by |", "|---|---|---|")
        for column, own in rules.items():
            tables = [table for table in own[0].tables if column in TABLES[table].names]
            meaning = f"as in {_names((tables[0],))}" if tables else computed[column]
            unused -= {column}
            yield f"| `{column}` | {meaning} | {', '.join(f'[`{rule.id}`](#{rule.id})' for rule in own)} |"
    if unused:
        raise ValueError(f"no suite has these columns of suite_columns.toml: {', '.join(sorted(unused))}")


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
