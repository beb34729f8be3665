"""The page of faults has every fault and every rule."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import write_faults  # a program of the folder `tools`

from acktrail.model.rules.catalogue import BRANCH_RULES, QUALITY_RULES
from acktrail.model.rules.quality_rule import QualityRule
from acktrail_demo.faults.library import FAULTS

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
    return any(f'"{id_}"' in text or f"Rule.{id_.upper()}" in text for id_ in rule.ids)
