"""Every label and sentence about verdicts, once: the command line, pages, messages and findings say the same.

Rows are those of ``expansion_verdicts``. Sentences have no group id and no topic name: pages and commands add
these, printable and escaped. A verdict or reason that this release does not know is named as such.

Example:

    >>> row = {"verdict": "broken", "evidence": "commits", "partition": 2, "source_partition": 0, "open_records": 3,
    ...        "source_offset": 57, "fence_low": 60}
    >>> verdict_sentence(row).split(": ")[0]
    'Partition 2 was begun with 3 records of partition 0 below offset 60 open, the first at offset 57'
    >>> advice(row)
    'Keys of these records may have been processed out of order. Name them: acktrail expand check TOPIC.'
    >>> advice(row, is_newest=False)
    'The topic grew again since: keys are not read any more.'
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from acktrail_expansion.law.order import WORST_FIRST, NotProven, OrderVerdict

_V, _N = OrderVerdict, NotProven
_Row = Mapping[str, Any]

LABELS: Final[Mapping[str, str]] = {
    _V.BROKEN: "order broken",
    _V.SKIPPED: "first records skipped",
    _V.NOT_PROVEN: "not proven",
    _V.SAFE: "safe",
}
"""Worst first."""
REASONS: Final[Mapping[str, str]] = {
    _N.SEVERAL_EXPANSIONS: "another partition count may have lain between two looks",
    _N.NO_FENCE: "where the records from before the expansion end is not known",
    _N.NOT_BEGUN: "the group was not seen to have begun with the partition",
    _N.NOT_RECORDED: "state records that would show it were not exported, or are not in the history yet",
    _N.RESET: "the group was reset, or its position fell, after what would prove it",
    _N.NO_RECORD_KNOWN: "what was open may be transaction markers, aborted or compacted records alone",
    _N.EXPIRED: "the retention took the records from before the expansion",
    _N.BETWEEN_FENCES: "what was open lies between the low and the high end of the fence",
    _N.BETWEEN_LOOKS: "both happened between two looks, or too close in time to know which came first",
}
CHECK: Final = "acktrail expand check TOPIC"
_LOST: Final = "It cannot be proven any more."
_ADVICE: Final[Mapping[str, str]] = {
    _V.BROKEN: f"Keys of these records may have been processed out of order. Name them: {CHECK}.",
    _V.SKIPPED: "Reset the group to the beginning of the partition if it needs them: acktrail change plan reset.",
    _N.SEVERAL_EXPANSIONS: f"{_LOST} Expand with acktrail change apply: then each step is known.",
    _N.NO_FENCE: f"Once the expansion is settled, look again: {CHECK}.",
    _N.NOT_BEGUN: f"Let the group work, then: {CHECK}.",
    _N.NOT_RECORDED: f"Extend export and history (acktrail run export, acktrail run history): {CHECK}.",
    _N.RESET: _LOST,
    _N.NO_RECORD_KNOWN: f"Read the keys: {CHECK}.",
    _N.EXPIRED: _LOST,
    _N.BETWEEN_FENCES: f"Read the keys: {CHECK}.",
    _N.BETWEEN_LOOKS: f"Read the keys, which narrow a wide fence: {CHECK}.",
}
_BY_KEYS: Final = frozenset({_V.BROKEN, _N.NO_RECORD_KNOWN, _N.BETWEEN_FENCES, _N.BETWEEN_LOOKS})
"""What keys would say more about; they are read of the newest expansion of a topic alone."""
_GREW_AGAIN: Final = "The topic grew again since: keys are not read any more."
_UNKNOWN: Final = "this release does not know it"


def counted(count: int, noun: str) -> str:
    """A count with its noun.

    >>> counted(1, "topic"), counted(2_000, "topic")
    ('1 topic', '2,000 topics')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def rank(verdict: str | None) -> int:
    """Sort key, worst first; one that this release does not know stands with those that are not proven."""
    return WORST_FIRST.index(OrderVerdict(verdict) if verdict and verdict in LABELS else _V.NOT_PROVEN)


def label(verdict: str | None) -> str:
    """A verdict in two words."""
    return LABELS.get(verdict or "", "unknown verdict")


def verdict_sentence(row: _Row) -> str:
    """What a verdict says: what is proven, and by what."""
    verdict, partition = row["verdict"], row["partition"]
    shown = f"shown by {(row['evidence'] or 'what was seen').replace('_', ' ')}"
    if verdict == _V.BROKEN:
        return f"Partition {partition} was begun with {_open(row)}: {shown}."
    if verdict == _V.SKIPPED:
        place = f"partition {partition} at offset {_number(row['first_start_offset'])}"
        return f"The group was placed in {place} and never got {_records(row['skipped_records'])} before it."
    if verdict == _V.SAFE:
        before = "Every record from before the expansion in the partitions whose keys moved to partition"
        return f"{before} {partition} was finished before it was begun: {shown}."
    source = "" if row["source_partition"] is None else f" (records of partition {row['source_partition']})"
    return f"Partition {partition}: not proven, {REASONS.get(row['reason'] or '', _UNKNOWN)}{source}."


def advice(row: _Row, *, is_newest: bool = True) -> str:
    """What to do about a verdict; where keys were read and name those at risk, it leads there. Beside `safe`: what no
    tool outside the broker sees. `is_newest`: of the expansions of the topic."""
    if row["verdict"] == _V.SAFE:
        work = "a first delivery in progress" if row["group_type"] == "share" else "work that was not committed"
        return f"Not seen: {work}, and producers whose metadata was older than the settle time."
    if row["verdict"] == _V.BROKEN and row.get("keys_at_risk") is not None:
        return f"{counted(row['keys_at_risk'], 'key')} may have been processed out of order: they are named by digest."
    case = row["reason"] if row["verdict"] == _V.NOT_PROVEN else row["verdict"]
    if case in _BY_KEYS and not is_newest:
        return _GREW_AGAIN
    return _ADVICE.get(case, "")


def _open(row: _Row) -> str:
    below = f"of partition {row['source_partition']} below offset {_number(row['fence_low'])}"
    return f"{_records(row['open_records'])} {below} open, the first at offset {_number(row['source_offset'])}"


def _records(many: int | None) -> str:
    return "some records" if many is None else counted(many, "record")


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"
