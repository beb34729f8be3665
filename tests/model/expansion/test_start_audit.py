"""Records of a new partition that a group never got are named only where that is proven."""

from __future__ import annotations

import pytest
from definitions.start_audit import StartAudit, audit_start
from hypothesis import given
from hypothesis import strategies as st

from acktrail.model.expansion.start_audit import StartVerdict

OK = StartAudit(verdict=StartVerdict.OK, skipped_records=0)
UNKNOWN = StartAudit(verdict=StartVerdict.UNKNOWN)


@pytest.mark.parametrize(
    ("seen", "initial", "starts", "is_share", "expected"),
    [
        (0, None, (0, 0), False, OK),
        (7, None, (0, 0), False, UNKNOWN),
        (7, 0, (0, 0), True, OK),
        (9, 7, (0, 0), True, StartAudit(verdict=StartVerdict.SKIPPED_RECORDS, skipped_records=7)),
        (9, 7, (0, 3), True, StartAudit(verdict=StartVerdict.SKIPPED_RECORDS, skipped_records=4)),
        (9, 7, (0, 8), True, UNKNOWN),
        (9, 7, (0, None), True, UNKNOWN),
        (7, None, (7, 9), False, OK),
        (None, None, (0, None), True, StartAudit(verdict=StartVerdict.UNINITIALIZED)),
        (None, None, (0, None), False, UNKNOWN),
    ],
)
def test_where_groups_began(
    seen: int | None, initial: int | None, starts: tuple[int, int | None], is_share: bool, expected: StartAudit
) -> None:
    """KAFKA-20742: a share group placed at latest skipped records, one placed at 0 did not; what cannot be
    known is not called skipped."""
    before, at = starts
    assert audit_start(seen, initial, log_start_before=before, log_start=at, is_share=is_share) == expected


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.booleans())
def test_proofs_are_true_of_every_life(placed: int, consumed: int, before: int, removed: int, is_share: bool) -> None:
    """A group that was placed somewhere while the retention went from `before` to `before + removed` skipped
    what lies between the log start of that moment and its place: OK and SKIPPED_RECORDS agree with each such moment."""
    found = audit_start(
        placed + consumed,
        placed if is_share else None,
        log_start_before=before,
        log_start=before + removed,
        is_share=is_share,
    )
    skipped = {max(0, placed - start) for start in range(before, before + removed + 1)}
    if found.verdict is StartVerdict.OK:
        assert skipped == {0}
    if found.verdict is StartVerdict.SKIPPED_RECORDS:
        assert found.skipped_records == min(skipped) > 0
