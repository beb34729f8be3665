"""Which fences could prove a verdict that is open: exactly those that do so for some exact fence."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from definitions.ordering_audit import GroupPosition, audit_ordering
from hypothesis import given, settings
from hypothesis import strategies as st

from acktrail.columnar.expansion.lost_proofs import OPEN_COLUMNS, provable_fences
from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.model.expansion.ordering import ExpansionFence, OrderingVerdict

_PROOFS = (OrderingVerdict.SAFE, OrderingVerdict.VIOLATION)
STEPS = st.lists(st.tuples(st.none() | st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=6)


def positions(steps: list[tuple[int | None, int]]) -> list[GroupPosition]:
    """A source that only grows, and a destination that is begun once."""
    at, begun, found = 0, 0, []
    for step, progress in steps:
        at, begun = at + (step or 0), begun + progress
        found.append(GroupPosition(source=None if step is None else at, started=begun > 2))
    return found


@given(STEPS, st.integers(1, 8), st.integers(0, 6), st.booleans())
@settings(max_examples=100, deadline=None)
def test_a_fence_is_needed_where_an_exact_one_proves(
    steps: list[tuple[int | None, int]], low: int, width: int, at_once: bool
) -> None:
    """The columns say so exactly where one of the fences from low to high turns the verdict into a proof."""
    group, fence = positions(steps), ExpansionFence(low=low, high=low + width)
    found = audit_ordering(group, fence, at_once=at_once)
    row: dict[str, Any] = {
        "source_event_id": "e",
        "source_partition": 3,
        "verdict": found.verdict.value,
        "source_before": None if found.before is None else group[found.before].source,
        "source_at": None if found.at is None else group[found.at].source,
        "fence_low": fence.low,
        "fence_high": fence.high,
    }
    schema = pa.schema([TABLES["ordering_audits"].field(name) for name in OPEN_COLUMNS])
    needed = provable_fences(pa.Table.from_pylist([row, row], schema=schema)).to_pylist()
    exact = [
        audit_ordering(group, ExpansionFence(low=each, high=each), at_once=at_once).verdict
        for each in range(low, low + width + 1)
    ]
    is_open = found.verdict in (OrderingVerdict.POSSIBLE_VIOLATION, OrderingVerdict.INDETERMINATE)
    proves = is_open and any(verdict in _PROOFS for verdict in exact)
    assert needed == ([{"event_id": "e", "partition": 3}] if proves else [])
