"""The rules as suites of Great Expectations: with its severity, a description, notes, owner and sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import great_expectations as gx

from acktrail.model.rules.catalogue import RULE_BY_ID
from acktrail.model.rules.quality_rule import QualitySeverity
from acktrail_expectations.gx.engine import Expectation
from acktrail_expectations.gx.suite_check import SuiteCheck

OWNER: Final = "acktrail"


def documented(check: SuiteCheck) -> Expectation:
    """The expectation of a rule with what people should know of it."""
    rule = RULE_BY_ID[check.rule]
    is_error = check.severity is QualitySeverity.ERROR  # Great Expectations has no such severity; `meta` has
    return check.expectation.copy(
        update={
            "severity": "warning" if is_error else check.severity.value,
            "description": rule.title,
            "notes": [rule.meaning, f"Why {rule.severity.value}: {rule.why}", f"What to do: {rule.advice}"],
            "meta": {
                "rule": check.rule,
                "severity": check.severity.value,
                "owner": OWNER,
                "sources": list(rule.sources),
                "since": rule.since,
                "page": f"docs/{rule.page}",
            },
        }
    )


def documented_suite(name: str, checks: Sequence[SuiteCheck]) -> gx.ExpectationSuite:
    """A suite with an expectation for each of `checks`, in their order."""
    return gx.ExpectationSuite(
        name=name, expectations=[documented(check) for check in checks], meta={"owner": OWNER, "page": "docs/rules.md"}
    )


def suite_json(name: str, checks: Sequence[SuiteCheck]) -> dict[str, Any]:
    """A suite as Great Expectations stores it, without ids and its own version, so that equal suites are equal."""
    stored: dict[str, Any] = documented_suite(name, checks).to_json_dict()
    for expectation in stored["expectations"]:
        expectation.pop("id", None)
    stored["meta"].pop("great_expectations_version", None)
    return {key: value for key, value in stored.items() if key != "id"}
