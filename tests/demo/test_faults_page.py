"""The page of faults has every fault and every rule."""

from __future__ import annotations

import re
import sys
from importlib.resources import files
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import pytest
import write_faults  # a program of the folder `tools`

from acktrail.model.rules.catalogue import BRANCH_RULES, QUALITY_RULES, QualityRule
from acktrail_demo.faults.library import FAULTS, parse_faults

ROOT = Path(__file__).parents[2]
DAMAGE_TESTS = ("tests/expectations", "tests/jobs", "tests/offline", "tests/model", "tests/simulation", "tests/drafts")
"""Where tests break data that no fault breaks."""


def test_no_fault_is_unseen() -> None:
    """Each fault breaks at least one rule of the catalogue, and no two faults are found in the same way."""
    broken = {name: write_faults.broken_by(fault) for name, fault in FAULTS.items()}
    assert [name for name, rules in broken.items() if not rules] == []
    assert len({(fault.expected.findings, fault.expected.failing) for fault in FAULTS.values()}) == len(FAULTS)


def test_every_rule_is_seen_broken() -> None:
    """Each rule of the trunk is broken by a fault, or named by a test that breaks data."""
    broken = frozenset(BRANCH_RULES).union(*map(write_faults.broken_by, FAULTS.values()))
    texts = [file.read_text("utf-8") for folder in DAMAGE_TESTS for file in (ROOT / folder).rglob("*.py")]
    others = [rule for rule in QUALITY_RULES if rule.id not in broken]
    assert [rule.id for rule in others if not any(_names(text, rule) for text in texts)] == []


def _names(text: str, rule: QualityRule) -> bool:
    return any(re.search(rf'[" ]{id_}[" ]', text) or f"Rule.{id_.upper()}" in text for id_ in rule.ids)


TEXT = files("acktrail_demo.faults").joinpath("faults.toml").read_text("utf-8")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('happens = "', 'occurs = "', "'occurs' is no field of a StateFault"),
        ('happens = "', '# "', "'happens' is missing"),
        ('seen = "kafka', 'seen = "nowhere', "'nowhere' is not a valid Seen"),
        ('status = "rewound', 'status = "unwound', "'unwound' is not a valid QueueStatus"),
        ('fails = ["state_records.', 'fails = ["state_record.', "there is no rule 'state_record."),
        ('name = "start_offset_regression', 'name = "start_offset_progress', "nothing injects start_offset_progress"),
        ('name = "complete_count_regression', 'name = "start_offset_regression', "another fault has the name"),
        ("[[fault]]", "[[fault]", "f: "),
    ],
)
def test_a_wrong_fault_is_refused_with_its_line(old: str, new: str, says: str) -> None:
    """A field that is missing or not known, an unknown origin, status, rule or injection, a name twice, no TOML."""
    with pytest.raises(ValueError, match=rf"f, line \d+: .*{says}|^{says}.*line"):
        parse_faults(TEXT.replace(old, new, 1), "f")
