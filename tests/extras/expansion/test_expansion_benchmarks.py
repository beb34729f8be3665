"""The benchmarks of the branch run to their end, with sizes so small that their figures mean nothing."""

from __future__ import annotations

from typing import Any, Final

import pytest
from integration.test_benchmarks import fills_its_part, run  # it finds the programs of the folder `benchmarks`

# isort: split
from gate_cost import Growth
from ledger_tables import LedgerShape

LEDGER: Final = LedgerShape(topics=3, old_count=2, new_count=3, days=3, looks_a_day=4, groups=4, topics_of_a_group=2)
SMALL: Final[dict[str, dict[str, Any]]] = {
    "gate_cost": {"growths": (Growth(old_count=4, new_count=6, members=2),)},
    "expansion_audit": {"shape": LEDGER},
}
LONG: Final = {"expansion_audit": (pytest.mark.full, pytest.mark.slow, pytest.mark.spark)}


def test_none_is_left_out() -> None:
    assert SMALL.keys() == run.OF_BRANCHES <= run.BENCHMARKS.keys()


@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG.get(name, ())) for name in SMALL])
def test_a_benchmark_fills_its_part_of_the_table(name: str) -> None:
    """It ends, and every row is a line with figures."""
    fills_its_part(name, **SMALL[name])
