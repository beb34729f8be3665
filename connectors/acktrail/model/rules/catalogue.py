"""Every rule that acktrail knows, by each of its ids: the one source of severities.

The rules are data, in ``rules.toml`` beside this module: subjects in the order of the data's way, each with what most
of its rules have in common. A text ``@name`` stands under ``texts``, because several rules have it::

    [[subject]]
    name = "Verdicts"
    tables = ["reconciliations"]

    [[subject.rule]]
    id = "durable_ahead"
    severity = "critical"
    suites = ["reconciliations"]
    expect = "verdict not in durable_ahead"
    ...

What `expect` may say: `acktrail.model.rules.quality_rule.Condition`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from acktrail.branches import package_texts
from acktrail.model.package_data import PackageData, check_names
from acktrail.model.rules.quality_rule import Condition, QualityRule, QualitySeverity

_LISTS: Final = frozenset({"sources", "tables", "suites", "also"})
_SUBJECT: Final = frozenset({"name", "rule"})


def parse_rules(text: str, where: str) -> Mapping[str, tuple[QualityRule, ...]]:
    """The rules in `text`, TOML as this module's docstring has it, by subject. `where` names it in errors.

    Raises ValueError, with the line of what is wrong: no TOML; a field that is missing, not known, or of another type;
    an unknown severity or text; an id that two rules have.
    """
    file, taken = PackageData(text, where, "subject.rule"), set[str]()
    texts: Mapping[str, str] = file.data.get("texts", {})

    def make(own: Mapping[str, Any]) -> QualityRule:
        rule = _rule(own, texts)
        if twice := taken & {*rule.ids}:
            raise ValueError(f"another rule has the id {min(twice)!r}")
        taken.update(rule.ids)
        return rule

    found = {}
    for subject in file.data["subject"]:
        shared = {name: value for name, value in subject.items() if name not in _SUBJECT}
        found[subject["name"]] = tuple(file.made({**shared, **own}, make) for own in subject["rule"])
    return MappingProxyType(found)


def _rule(own: Mapping[str, Any], texts: Mapping[str, str]) -> QualityRule:
    check_names(own, QualityRule)
    values = {name: _value(name, value, texts) for name, value in own.items()}
    if "expect" in own:
        values["expect"] = Condition.parse(values["expect"])
    return QualityRule(**{**values, "severity": QualitySeverity(own["severity"])})


def _value(name: str, value: Any, texts: Mapping[str, str]) -> Any:
    parts = value if name in _LISTS else [value]
    if not isinstance(parts, list) or not all(isinstance(part, str) and part for part in parts):
        raise ValueError(f"{name!r} is no {'list of texts' if name in _LISTS else 'text'}")
    if name in _LISTS:
        return tuple(parts)
    if value.startswith("@") and value[1:] not in texts:
        raise ValueError(f"{name!r} is {value}, and there is no such text")
    return texts[value[1:]] if value.startswith("@") else value


_OWN: Final = parse_rules(
    files(__package__).joinpath("rules.toml").read_text(encoding="utf-8"), "acktrail/model/rules/rules.toml"
)
_OF_BRANCHES: Final = {
    branch: parse_rules(text, f"{branch.package}/rules.toml") for branch, text in package_texts("rules.toml")
}

RULES_BY_SUBJECT: Final[Mapping[str, tuple[QualityRule, ...]]] = MappingProxyType(
    {**_OWN, **{subject: rules for own in _OF_BRANCHES.values() for subject, rules in own.items()}}
)
"""The rules by what they are about, in the order of the data's way; those of branches last."""

QUALITY_RULES: Final = tuple(rule for rules in RULES_BY_SUBJECT.values() for rule in rules)
"""All rules."""

BRANCH_RULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        rule.id: branch.audit
        for branch, own in _OF_BRANCHES.items()
        if branch.audit
        for rules in own.values()
        for rule in rules
    }
)
"""The audit of each rule of a branch that has one (`Branch.audit`), by its id: no reconciliation opens or closes its
findings."""

BRANCH_SUITES: Final = frozenset(
    suite for rules in RULES_BY_SUBJECT.values() for rule in rules if rule.id in BRANCH_RULES for suite in rule.suites
)
"""The suites of branches: each has a gate of its own, apart from that of runs."""

RULE_BY_ID: Final[Mapping[str, QualityRule]] = MappingProxyType(
    {id_: rule for rule in QUALITY_RULES for id_ in rule.ids}
)
"""The rule of each id in ``findings`` (`rule`), ``quality_results`` (`expectation`) and offline findings. A table that
a newer release wrote may have ids that are not here."""
