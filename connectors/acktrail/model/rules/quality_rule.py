"""One rule of the catalogue: what it expects of a row, and how bad a breach of it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

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
    to apply to it, for rules that few rows or none need to have.
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
