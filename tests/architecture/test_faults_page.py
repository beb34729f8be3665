"""The page of faults has every fault and every rule."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import write_faults  # a program of the folder `tools`

from acktrail.faults.library import FAULTS


def test_the_committed_page_is_the_one_that_the_tool_writes() -> None:
    """docs/faults.md is what `tools/write_faults.py` makes of library and catalogue: run it after a change."""
    assert write_faults.PAGE.read_text("utf-8") == write_faults.page()


def test_no_fault_is_unseen() -> None:
    """Each fault breaks at least one rule of the catalogue, and no two faults are found in the same way."""
    broken = {name: write_faults.broken_by(fault) for name, fault in FAULTS.items()}
    assert [name for name, rules in broken.items() if not rules] == []
    assert len({(fault.expected.findings, fault.expected.failing) for fault in FAULTS.values()}) == len(FAULTS)
