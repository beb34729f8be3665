"""The catalogue of rules: whole, and the one source of severities. What is wrong in its file is named with its line,
and nothing wrong is loaded."""

from __future__ import annotations

import sys
import tomllib
from importlib.resources import files

import pytest
from drivers.own_process import printed

from acktrail.branches import Branch, package_texts
from acktrail.errors import ConfigurationError
from acktrail.model.reconciliation import Verdict
from acktrail.model.rules import catalogue
from acktrail.model.rules.catalogue import Condition, QualityRule, parse_rules, rule_catalogue


def test_no_two_rules_have_one_id() -> None:
    """Each id names one rule."""
    assert len(rule_catalogue().by_id) == sum(len(rule.ids) for rule in rule_catalogue().rules)


@pytest.mark.parametrize("rule", rule_catalogue().rules, ids=lambda rule: rule.id)
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
    assert rule_catalogue().by_id[verdict.value].expect == Condition("not in", ("verdict",), (verdict.value,))


@pytest.mark.parametrize("rule", [rule for rule in rule_catalogue().rules if rule.presumes], ids=lambda rule: rule.id)
def test_what_a_rule_presumes_is_judged_beside_it(rule: QualityRule) -> None:
    """In each of its suites, by a condition that tells its rows apart; what stops the gate presumes only what stops it,
    so that no damage hides behind another."""
    for presumed in map(rule_catalogue().by_id.__getitem__, rule.presumes):
        assert presumed.expect is not None
        assert {*rule.suites} <= {*presumed.suites}
        assert presumed.expect.relation in {"batches", ">=", "="}
        assert presumed.stops_gate >= rule.stops_gate
        assert rule.id not in presumed.presumes


def test_every_verdict_is_known() -> None:
    """The rule on verdicts names all of them."""
    condition = rule_catalogue().by_id["verdict_known"].expect
    assert condition is not None
    assert set(condition.values) == {verdict.value for verdict in Verdict}


TEXT = files("acktrail.model.rules").joinpath("rules.toml").read_text(encoding="utf-8")
FIRST = 1 + TEXT.count("\n", 0, TEXT.index("[[subject.rule]]"))


def test_the_file_is_what_is_loaded() -> None:
    """The catalogue is the file, then those of branches, and nothing else. A rule is complete where it stands: a
    subject has only its name."""
    of_branches = [parse_rules(text, "f") for _, text in package_texts("rules.toml")]
    subjects = [each for file in (parse_rules(TEXT, "f"), *of_branches) for each in file.items()]
    assert subjects == [*rule_catalogue().by_subject.items()]
    assert {name for subject in tomllib.loads(TEXT)["subject"] for name in subject} == {"name", "rule"}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('severity = "', 'severity = "very ', "is not a valid QualitySeverity"),
        ('title = "', 'headline = "', "'headline' is not a field of QualityRule"),
        ('title = "', 'title = ["', "line"),
        ("sources = [", "sources = [7, ", "'sources' is not a list of texts"),
        ('why = "', 'why = ""\n# "', "'why' is not a text"),
        ('expect = "', 'expect = "about ', "is not a condition such as"),
        ('expect = "', '# "', "it has suites and no 'expect'"),
        ('suites = ["', 'suites = []  # ["', "it has 'expect' and no suites"),
        ("suites = [", "# [", "'suites' is missing"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_line(old: str, new: str, says: str) -> None:
    """A field that is not known, of another type or empty, an unknown severity or text; also what is no TOML."""
    head, _, rest = TEXT.partition("[[subject.rule]]")
    with pytest.raises(ValueError, match=rf"line \d+.*{says}|f: .*line"):
        parse_rules(f"{head}[[subject.rule]]{rest.replace(old, new, 1)}", "f")


def test_a_missing_field_and_a_second_id_are_refused_at_the_rule() -> None:
    """The line is that of the rule, not of its subject."""
    head, _, rest = TEXT.partition("[[subject.rule]]")
    own, _, others = rest.partition("\n\n")
    without = "\n".join(line for line in own.splitlines() if not line.startswith("title"))
    with pytest.raises(ValueError, match=f"f, line {FIRST}: .*'title' is missing"):
        parse_rules(f"{head}[[subject.rule]]{without}\n\n{others}", "f")
    lines = len(own.splitlines()) + 1
    with pytest.raises(ValueError, match=f"f, line {FIRST + lines}: .*another rule has the id"):
        parse_rules(f"{head}[[subject.rule]]{own}\n\n[[subject.rule]]{own}\n\n{others}", "f")


IMPORT_ALL = """import pkgutil; from acktrail.model.rules import catalogue; catalogue.parse_rules = None
for room in ("acktrail", "acktrail_connect", "acktrail_jobs", "acktrail_expectations", "acktrail_dashboard"):
    [__import__(each.name) for each in pkgutil.walk_packages(__import__(room).__path__, room + ".")]"""


def test_a_wrong_file_is_an_error_where_a_rule_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """No module reads rules when it is imported. Who uses one gets the file, the line, and what to do."""
    printed(sys.executable, "-c", IMPORT_ALL)
    wrong = "[[subject]]\nname = 'Growth'\n[[subject.rule]]\nid = 'grown'\n"
    monkeypatch.setattr(catalogue, "package_texts", lambda _: [(Branch(package="growth"), wrong)])
    with pytest.raises(ConfigurationError, match=r"growth/rules\.toml, line 3: 'severity' is missing") as caught:
        rule_catalogue.__wrapped__()
    assert "reinstall acktrail" in caught.value.hint
