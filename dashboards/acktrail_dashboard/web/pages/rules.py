"""The catalogue of rules, and one rule: what a breach means, why it is as severe, what to do. No network is needed."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import InputError, UnknownName
from acktrail.model.rules.catalogue import QUALITY_RULES, RULE_BY_ID, RULES_BY_SUBJECT
from acktrail.view.check_rows import newest_results
from acktrail.view.finding_rows import open_and_gone
from acktrail_dashboard.web.pages.checks import checked_runs, results_of
from acktrail_dashboard.web.web_page import Visit, WebPage


def _rules(visit: Visit) -> dict[str, Any]:
    return {"subjects": RULES_BY_SUBJECT, "count": len(QUALITY_RULES), "open": _open_by_rule(visit)}


def _rule(visit: Visit) -> dict[str, Any]:
    rule_id = visit.text("id")
    if not rule_id:
        raise InputError("which rule?", hint="name its id: rule?id=RULE")
    if rule_id not in RULE_BY_ID:
        raise UnknownName("rule", rule_id)
    rule = RULE_BY_ID[rule_id]
    opened, results = _open_by_rule(visit), results_of(visit, checked_runs(visit, 1), columns=None)
    own = results.filter(pc.is_in(results["expectation"], value_set=pa.array(rule.ids)))
    return {
        "rule": rule,
        "asked": rule_id,
        "open": sum(opened.get(each, 0) for each in rule.ids),
        "results": newest_results(own),
    }


def _open_by_rule(visit: Visit) -> dict[str, int]:
    """How many findings are open, or may be, by rule."""
    findings = visit.read("findings", columns=("rule", "run_id"))
    of_open, _ = open_and_gone(findings, visit.open_runs)
    own = findings.filter(of_open)
    return {each["values"]: each["counts"] for each in pc.value_counts(own["rule"]).to_pylist()}


RULES: Final = WebPage(path="rules", title="Rules", template="rules.html", context=_rules)
RULE: Final = WebPage(path="rule", title="Rule", template="rule.html", context=_rule)
