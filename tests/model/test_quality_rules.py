"""The catalogue of rules: whole, and the one source of severities."""

from __future__ import annotations

import pytest

from acktrail.model.reconciliation import Verdict
from acktrail.model.rules.catalogue import QUALITY_RULES, RULE_BY_ID, Condition, QualityRule


def test_no_two_rules_have_one_id() -> None:
    """Each id names one rule."""
    assert len(RULE_BY_ID) == sum(len(rule.ids) for rule in QUALITY_RULES)


@pytest.mark.parametrize("rule", QUALITY_RULES, ids=lambda rule: rule.id)
def test_a_rule_is_whole(rule: QualityRule) -> None:
    """A rule has a title, three texts that are sentences, a source and a table; its id fits into an anchor."""
    assert rule.id.replace("_", "").isalnum()
    assert rule.id.islower()
    assert not rule.title.endswith(".")
    for text in (rule.meaning, rule.why, rule.advice):
        assert text.endswith(".")
        assert text[0].isupper() or text[0] == "`"
    assert rule.sources
    assert rule.tables


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.MATCH])
def test_a_verdict_and_its_expectation_are_one_rule(verdict: Verdict) -> None:
    """A finding and the gate's expectation about the same verdict have one entry, so one severity."""
    assert RULE_BY_ID[verdict.value].expect == Condition("not in", ("verdict",), (verdict.value,))


def test_every_verdict_is_known() -> None:
    """The rule on verdicts names all of them."""
    condition = RULE_BY_ID["verdict_known"].expect
    assert condition is not None
    assert set(condition.values) == {verdict.value for verdict in Verdict}


def test_only_critical_rules_of_suites_stop_the_gate() -> None:
    """Others stop nothing."""
    assert RULE_BY_ID["missing_state"].stops_gate
    assert not RULE_BY_ID["export_complete"].stops_gate
