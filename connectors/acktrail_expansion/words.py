"""Every label and sentence about verdicts, once: the command line, pages, messages and findings say the same.

Rows are those of ``expansion_verdicts``. Sentences have no group id and no topic name: pages and commands add
these, printable and escaped. A verdict or reason that this release does not know is named as such.

Example:

    >>> row = {"verdict": "broken", "evidence": "commits", "partition": 2, "source_partition": 0, "open_records": 3,
    ...        "source_offset": 57, "fence_low": 60}
    >>> verdict_sentence(row).split(": ")[0]
    'Partition 2 was begun while 3 records of partition 0 below offset 60 were open, the first at offset 57'
    >>> advice(row)
    'Keys of these records may have been processed out of order. Name them: acktrail expand check TOPIC.'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from acktrail_expansion.law.verdict import WORST_FIRST, NotProven, OrderVerdict

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
EVIDENCE: Final[Mapping[str, str]] = {
    "state_records": "state records",
    "commits": "commits",
    "lag": "the lag that the broker counted",
}
CHECK: Final = "acktrail expand check TOPIC"
_NOTHING: Final = "Nothing to do."
_ADVICE: Final[Mapping[str, str]] = {
    _V.SAFE: _NOTHING,
    _V.BROKEN: f"Keys of these records may have been processed out of order. Name them: {CHECK}.",
    _V.SKIPPED: "Reset the group to the beginning of the partition if it needs these records: acktrail reset plan.",
    _N.SEVERAL_EXPANSIONS: "It cannot be proven any more. Expand with acktrail expand apply: then each step is known.",
    _N.NO_FENCE: f"Once the expansion is settled, look again: {CHECK}.",
    _N.NOT_BEGUN: f"Let the group work, then: {CHECK}.",
    _N.NOT_RECORDED: f"Export the state topic and extend the history (acktrail export, acktrail history): {CHECK}.",
    _N.RESET: "It cannot be proven any more.",
    _N.NO_RECORD_KNOWN: f"Read the keys: {CHECK}.",
    _N.EXPIRED: "It cannot be proven any more.",
    _N.BETWEEN_FENCES: f"Read the keys: {CHECK}.",
    _N.BETWEEN_LOOKS: f"Read the keys, which narrow a wide fence: {CHECK}.",
}
PRODUCERS_NOT_SEEN: Final = "producers whose metadata was older than the settle time"
_NOT_SEEN: Final = {
    "share": f"Not seen: a first delivery in progress, and {PRODUCERS_NOT_SEEN}.",
    "": f"Not seen: work that was not committed, and {PRODUCERS_NOT_SEEN}.",
}
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


def worst_first(rows: Iterable[_Row]) -> list[_Row]:
    """Rows by verdict, then those with the most open or skipped records, then by group and partition."""
    return sorted(rows, key=_order)


def _order(row: _Row) -> tuple[Any, ...]:
    many = max(row["open_records"] or 0, row["skipped_records"] or 0)
    return rank(row["verdict"]), -many, row["group_id"] or "", row["partition"] or 0


def verdict_sentence(row: _Row) -> str:
    """What a verdict says: what is proven, and by what."""
    verdict = row["verdict"]
    if verdict == _V.BROKEN:
        return f"Partition {row['partition']} was begun while {_open(row)}: {_shown_by(row)}."
    if verdict == _V.SKIPPED:
        return (
            f"The group was placed in partition {row['partition']} at offset {_number(row['first_start_offset'])} "
            f"and never got {_records(row['skipped_records'], 'record')} before it."
        )
    if verdict == _V.SAFE:
        return (
            "Every record from before the expansion in the partitions whose keys moved to partition "
            f"{row['partition']} was finished before it was begun: {_shown_by(row)}."
        )
    return f"Partition {row['partition']}: not proven, {reason_text(row['reason'])}{_of_source(row)}."


def reason_text(reason: str | None) -> str:
    """Why a verdict is not proven."""
    return REASONS.get(reason or "", _UNKNOWN)


def advice(row: _Row) -> str:
    """What to do about a verdict; where keys were read and name those at risk, it leads there."""
    if row["verdict"] == _V.BROKEN and row.get("keys_at_risk") is not None:
        return f"{counted(row['keys_at_risk'], 'key')} may have been processed out of order: they are named by digest."
    found = _ADVICE.get(row["reason"] if row["verdict"] == _V.NOT_PROVEN else row["verdict"], "")
    return found or _NOTHING


def not_seen(row: _Row) -> str:
    """What a `safe` verdict does not say; empty beside others."""
    if row["verdict"] != _V.SAFE:
        return ""
    return _NOT_SEEN.get(row["group_type"] or "", _NOT_SEEN[""])


def _open(row: _Row) -> str:
    many, offset = row["open_records"], row["source_offset"]
    were = "was" if many == 1 else "were"
    first = "" if offset is None else f", the first at offset {offset:,}"
    below = f"of partition {row['source_partition']} below offset {_number(row['fence_low'])}"
    return f"{_records(many, 'record')} {below} {were} open{first}"


def _records(many: int | None, noun: str) -> str:
    return f"some {noun}s" if many is None else counted(many, noun)


def _of_source(row: _Row) -> str:
    return "" if row["source_partition"] is None else f" (records of partition {row['source_partition']})"


def _shown_by(row: _Row) -> str:
    return f"shown by {EVIDENCE.get(row['evidence'] or '', 'what was seen')}"


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"
