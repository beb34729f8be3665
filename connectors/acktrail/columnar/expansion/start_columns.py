"""Where groups began with new partitions, all at once, as ``tests/definitions/start_audit.py`` judges each one."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.expansion.fence_columns import MISSING
from acktrail.model.expansion.start_audit import StartVerdict

_VERDICTS: Final = (*StartVerdict,)
_NUMBER: Final = {verdict: number for number, verdict in enumerate(_VERDICTS)}


def judge_starts(
    seen: Int64Array, initial: Int64Array, log_start_before: Int64Array, log_start: Int64Array, is_share: BoolArray
) -> tuple[pa.Array, Int64Array]:
    """Verdicts, and how many offsets at least each group never got. All of shape (n,), MISSING where not known; an
    unknown `log_start_before` is 0, as in a partition that was not there."""
    first = np.where((seen < 0) | ((initial >= 0) & (initial < seen)), initial, seen)
    conditions = {
        StartVerdict.UNINITIALIZED: (first < 0) & is_share,
        StartVerdict.UNKNOWN: first < 0,
        StartVerdict.OK: first <= np.maximum(log_start_before, 0),
        StartVerdict.SKIPPED_RECORDS: (log_start >= 0) & (initial > log_start),
    }
    number = np.select([*conditions.values()], [_NUMBER[each] for each in conditions], _NUMBER[StartVerdict.UNKNOWN])
    skipped = np.select(
        [number == _NUMBER[StartVerdict.OK], number == _NUMBER[StartVerdict.SKIPPED_RECORDS]],
        [0, initial - log_start],
        MISSING,
    )
    return pa.array([each.value for each in _VERDICTS]).take(pa.array(number)), skipped
