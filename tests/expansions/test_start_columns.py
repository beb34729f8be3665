"""Beginnings judged by columns are those of the plain law."""

from __future__ import annotations

import numpy as np
from definitions.start_audit import audit_start
from hypothesis import given
from hypothesis import strategies as st

from acktrail.columnar.expansion.fence_columns import MISSING
from acktrail.columnar.expansion.start_columns import judge_starts

offsets = st.none() | st.integers(0, 4)


@given(st.lists(st.tuples(offsets, offsets, offsets, offsets, st.booleans()), max_size=40))
def test_beginnings_by_columns(rows: list[tuple[int | None, int | None, int | None, int | None, bool]]) -> None:
    """Verdict and skipped records of every row, with what is known of it."""
    columns = [np.array([MISSING if row[n] is None else row[n] for row in rows], np.int64) for n in range(4)]
    verdicts, skipped = judge_starts(*columns, np.array([row[4] for row in rows], np.bool_))
    expected = [
        audit_start(seen, initial, log_start_before=before or 0, log_start=start, is_share=is_share)
        for seen, initial, before, start, is_share in rows
    ]

    assert verdicts.to_pylist() == [each.verdict.value for each in expected]
    known = [None if each == MISSING else each for each in skipped.tolist()]
    assert known == [each.skipped_records for each in expected]
