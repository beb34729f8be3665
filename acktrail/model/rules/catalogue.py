"""Every rule that acktrail knows, by each of its ids: what it expects of a row, and how bad a breach is.

The rules are data, in ``rules.toml`` beside this module and of each branch that has some: subjects in the order of the
data's way, each with its rules. Each rule is complete where it stands::

    [[subject]]
    name = "Verdicts"

    [[subject.rule]]
    id = "durable_ahead"
    severity = "critical"
    tables = ["reconciliations"]
    suites = ["reconciliations"]
    expect = "verdict not in durable_ahead"
    ...

What `expect` may say: `Condition`. The files are read when a rule is used for the first time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, Self

from acktrail.branches import package_texts
from acktrail.errors import ConfigurationError
from acktrail.package_data import PackageData, check_names

_LISTS: Final = frozenset({"sources", "tables", "suites", "also", "presumes"})
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
            raise ValueError(f"{text!r} is not a condition such as `a >= b`, `a = true`, `a in x, y`, `unique a, b`")
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
    `expect`; none (``[]``) for a rule that only findings or offline replays report. `where`: what a row must have for
    the rule to apply to it, for rules that few rows or none need to have. `presumes`: ids of rules of the same suites
    without which this one says nothing; a row that breaks one of them is not compared.
    """

    id: str
    severity: QualitySeverity
    title: str
    meaning: str
    why: str
    advice: str
    sources: tuple[str, ...]
    tables: tuple[str, ...]
    suites: tuple[str, ...]
    since: str = "Kafka 4.0"
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
        return f"reference/rules.md#{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCatalogue:
    """All rules. `by_subject`: by what they are about, in the order of the data's way; those of branches last.

    `by_id`: the rule of each id in ``findings`` (`rule`), ``quality_results`` (`expectation`) and offline findings; a
    table that a newer release wrote may have ids that are not here. `audits`: the audit of each rule of a branch that
    has one (`Branch.audit`), by the rule's id; no reconciliation opens or closes its findings.
    """

    by_subject: Mapping[str, tuple[QualityRule, ...]]
    by_id: Mapping[str, QualityRule]
    audits: Mapping[str, str]

    @property
    def rules(self) -> tuple[QualityRule, ...]:
        """Each rule once, in their order."""
        return tuple(rule for rules in self.by_subject.values() for rule in rules)

    @property
    def branch_suites(self) -> frozenset[str]:
        """The suites of branches: each has a gate of its own, apart from that of runs."""
        return frozenset(suite for rule in self.audits for suite in self.by_id[rule].suites)


@cache
def rule_catalogue() -> RuleCatalogue:
    """The rules of acktrail and of every branch that is there. Raises ConfigurationError, with file and line: one of
    the files is wrong; nothing of it is used."""
    own = files(__package__).joinpath("rules.toml").read_text(encoding="utf-8")
    try:
        trunk = parse_rules(own, "acktrail/model/rules/rules.toml")
        branches = {
            branch: parse_rules(text, f"{branch.package}/rules.toml") for branch, text in package_texts("rules.toml")
        }
    except ValueError as error:
        hint = "correct that file, or reinstall acktrail"
        raise ConfigurationError(f"cannot read the rules of acktrail: {error}", hint=hint) from error
    by_subject = {subject: rules for parsed in (trunk, *branches.values()) for subject, rules in parsed.items()}
    by_id = {id_: rule for rules in by_subject.values() for rule in rules for id_ in rule.ids}
    audits = {rule.id: each.audit for each, own in branches.items() if each.audit for rule in chain(*own.values())}
    return RuleCatalogue(
        by_subject=MappingProxyType(by_subject), by_id=MappingProxyType(by_id), audits=MappingProxyType(audits)
    )


def parse_rules(text: str, where: str) -> Mapping[str, tuple[QualityRule, ...]]:
    """The rules in `text`, TOML as this module's docstring has it, by subject. `where` names it in errors.

    Raises ValueError, with the line of what is wrong: no TOML; a field that is missing, not known, or of another type;
    an unknown severity; an id that two rules have.
    """
    file, taken = PackageData(text, where, "subject.rule"), set[str]()

    def make(own: Mapping[str, Any]) -> QualityRule:
        rule = _rule(own)
        if twice := taken & {*rule.ids}:
            raise ValueError(f"another rule has the id {min(twice)!r}")
        taken.update(rule.ids)
        return rule

    return MappingProxyType(
        {subject["name"]: tuple(file.made(own, make) for own in subject["rule"]) for subject in file.data["subject"]}
    )


def _rule(own: Mapping[str, Any]) -> QualityRule:
    check_names(own, QualityRule)
    values = {name: _value(name, value) for name, value in own.items()}
    if "expect" in own:
        values["expect"] = Condition.parse(values["expect"])
    return QualityRule(**{**values, "severity": QualitySeverity(own["severity"])})


def _value(name: str, value: Any) -> Any:
    parts = value if name in _LISTS else [value]
    if not isinstance(parts, list) or not all(isinstance(part, str) and part for part in parts):
        raise ValueError(f"{name!r} is not a {'list of texts' if name in _LISTS else 'text'}")
    return tuple(parts) if name in _LISTS else value
