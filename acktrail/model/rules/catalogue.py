"""Every rule that acktrail knows, by each of its ids: what it expects of a row, and how bad a breach is.

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

What `expect` may say: `Condition`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final, Self

from acktrail.branches import package_texts
from acktrail.package_data import PackageData, check_names

_LISTS: Final = frozenset({"sources", "tables", "suites", "also", "presumes"})
_SUBJECT: Final = frozenset({"name", "rule"})
_FORMS: Final = (
    r"(?P<unique>unique) (?P<columns>\w+(?:, \w+)*)",
    r"(?P<batches>batches)",
    r"(?P<column>\w+) (?P<missing>known|unknown)",
    r"(?P<left>\w+) (?P<set>in|not in) (?P<names>\w+(?:, \w+)*)",
    r"(?P<value>\w+) (?P<bound><=|>=|=) (?P<literal>true|false|\d+)",
    r"(?P<first>\w+) (?P<pair>>=|=) (?P<second>\w+)",
)
_FORM: Final = re.compile("|".join(_FORMS))
_WORDS: Final = {"true": True, "false": False}


class QualitySeverity(StrEnum):
    """What a breach means.

    Info: legal, and good to know. Warning: legal, or explained by things outside the tables, but a person should know.
    Error: something is wrong or lost and recorded as such; what is published is still true. Critical: what would be
    published is wrong, or acting on it would lose records, so the run stops.
    """

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Condition:
    """What a row must have, as `relation` of its `columns`, or of a column and `values`.

    A row in which a column is missing is not compared. The forms::

        a >= b, a = b                    two columns
        a >= 0, a <= 60, a = true        a column and a value
        a in one, two    a not in one    a column and texts
        a known, a unknown               whether it is missing
        unique a, b                      no two rows have the same
        batches                          the function of the rule's id on state batches
    """

    relation: str
    columns: tuple[str, ...]
    values: tuple[str | int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError: `text` has none of the forms."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no condition, such as `a >= b`, `a = true`, `a in x, y`, `unique a, b`")
        part = {name: value for name, value in found.groupdict().items() if value is not None}
        match part:
            case {"unique": relation, "columns": columns}:
                return cls(relation, tuple(columns.split(", ")))
            case {"batches": relation}:
                return cls(relation, (relation,))
            case {"column": column, "missing": relation}:
                return cls(relation, (column,))
            case {"left": column, "set": relation, "names": names}:
                return cls(relation, (column,), tuple(names.split(", ")))
            case {"value": column, "bound": relation, "literal": literal}:
                return cls(relation, (column,), (_WORDS[literal] if literal in _WORDS else int(literal),))
            case _:
                return cls(part["pair"], (part["first"], part["second"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRule:
    """One rule, for people and for everything that reports a breach of it.

    `id`: as stored in ``findings`` and ``quality_results``; `also`: ids of the same rule where another part of acktrail
    reports it. `title`: the rule in a few words. `meaning`: what a breach means. `why`: why it has this severity.
    `advice`: what to do. `sources`: KIP, Kafka class or Kafka issue that it follows from. `since`: the first Kafka
    release (or draft) that it applies to. `tables`: what it reads. `suites`: the suites of the gate that evaluate
    `expect`; none for a rule that only findings or offline replays report. `where`: what a row must have for the rule
    to apply to it, for rules that few rows or none need to have. `presumes`: ids of rules of the same suites without
    which this one says nothing; a row that breaks one of them is not compared.
    """

    id: str
    severity: QualitySeverity
    title: str
    meaning: str
    why: str
    advice: str
    sources: tuple[str, ...]
    tables: tuple[str, ...]
    since: str = "Kafka 4.0"
    suites: tuple[str, ...] = ()
    expect: Condition | None = None
    where: str = ""
    also: tuple[str, ...] = ()
    presumes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError: a suite has no condition to evaluate, or a condition no suite."""
        if bool(self.suites) is (self.expect is None):
            raise ValueError("it has suites and no 'expect'" if self.suites else "it has 'expect' and no suites")

    @property
    def ids(self) -> tuple[str, ...]:
        return (self.id, *self.also)

    @property
    def stops_gate(self) -> bool:
        """Whether a breach stops a run."""
        return self.severity is QualitySeverity.CRITICAL and bool(self.suites)

    @property
    def page(self) -> str:
        """Where the rule is described, relative to the folder of the documents."""
        return f"rules.md#{self.id}"


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
