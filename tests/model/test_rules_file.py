"""The file of rules: what is wrong in it is named with its line, and nothing wrong is loaded."""

from __future__ import annotations

from importlib.resources import files

import pytest

from acktrail.branches import package_texts
from acktrail.model.rules.catalogue import RULES_BY_SUBJECT, parse_rules

TEXT = files("acktrail.model.rules").joinpath("rules.toml").read_text(encoding="utf-8")
FIRST = 1 + TEXT.count("\n", 0, TEXT.index("[[subject.rule]]"))


def test_the_file_is_what_is_loaded() -> None:
    """The catalogue is the file, then those of branches, and nothing else; a text that rules share has two at least."""
    of_branches = [parse_rules(text, "f") for _, text in package_texts("rules.toml")]
    subjects = [each for file in (parse_rules(TEXT, "f"), *of_branches) for each in file.items()]
    assert subjects == [*RULES_BY_SUBJECT.items()]
    for line in TEXT.splitlines()[TEXT.splitlines().index("[texts]") + 1 :]:
        if not line:
            break
        assert TEXT.count(f'"@{line.partition(" ")[0]}"') > 1, line


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('severity = "', 'severity = "very ', "is not a valid QualitySeverity"),
        ('title = "', 'headline = "', "'headline' is no field of a QualityRule"),
        ('title = "', 'title = ["', "line"),
        ('meaning = "', 'meaning = "@none such', "there is no such text"),
        ("sources = [", "sources = [7, ", "'sources' is no list of texts"),
        ('why = "', 'why = ""\n# "', "'why' is no text"),
        ('expect = "', 'expect = "about ', "is no condition, such as"),
        ('expect = "', '# "', "it has suites and no 'expect'"),
        ("suites = [", "# [", "it has 'expect' and no suites"),
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
