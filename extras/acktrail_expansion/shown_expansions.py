"""Expansions, fences and verdicts as pages, reports, messages and commands show them: rows of the tables with their
words. Every label and sentence about verdicts is here, once.

Nothing is judged here. Only the rows that are shown become Python values: one expansion can have a hundred thousand
verdicts. Sentences have no group id and no topic name: pages and commands add these, printable and escaped. A verdict
or reason that this release does not know is named as such.

Example: two groups in the two partitions that were added, ``broken`` and ``safe`` of the one, ``safe`` twice of the
other: `worst` is ``broken``, `groups` is ``{"broken": 1, "safe": 1}``.

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

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.tables.delta.store import Tables
from acktrail.view.wording import counted, instant, number
from acktrail_expansion.ordering.order import WORST_FIRST, NotProven, OrderVerdict

_V, _N = OrderVerdict, NotProven
_Row = Mapping[str, Any]
Read = Callable[..., pa.Table]
"""``Tables.read``, or ``Visit.read``, which does not raise."""
Row = dict[str, Any]

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
"""What keys would say more about; they are read only of the newest expansion of a topic."""
_GREW_AGAIN: Final = "The topic grew again since: keys are not read any more."
_UNKNOWN: Final = "this release does not know it"
_COUNTED: Final = ("event_id", "group_id", "partition", "verdict", "open_records", "skipped_records")
_TONES: Final = {OrderVerdict.BROKEN: "critical", OrderVerdict.SKIPPED: "critical", OrderVerdict.SAFE: "ok"}
_OLDEST: Final = "min.observed_at"
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)


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
        place = f"partition {partition} at offset {number(row['first_start_offset'])}"
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
    below = f"of partition {row['source_partition']} below offset {number(row['fence_low'])}"
    return f"{_records(row['open_records'])} {below} open, the first at offset {number(row['source_offset'])}"


def _records(many: int | None) -> str:
    return "some records" if many is None else counted(many, "record")


def worst_first(verdicts: pa.Table) -> pa.Table:
    """Rows by verdict, then those with the most open or skipped records, then by group and partition."""
    ranks = pc.fill_null(pc.index_in(verdicts["verdict"], value_set=pa.array([*LABELS])), fill_value=rank(None))
    many = pc.max_element_wise(verdicts["open_records"], verdicts["skipped_records"])
    order = [("rank", "ascending"), ("many", "descending"), ("group_id", "ascending"), ("partition", "ascending")]
    ranked = verdicts.append_column("rank", ranks).append_column("many", many)
    return verdicts.take(pc.sort_indices(ranked, sort_keys=order))


def expansions(read: Read, *, event_id: str = "", until: datetime | None = None) -> list[Row]:
    """Rows of ``partition_expansions``, the worst first, then the newest; those first seen after `until` are left out.

    Each with `worst`: the worst verdict of a group, None where no group was judged; `tone` of it; `groups`: groups by
    their worst verdict, and `groups_text`; `skipped_records`: how many groups never got, as far as it is known.
    """
    where = pc.field("event_id") == event_id if event_id else None
    groups, skipped = _of_groups(read("expansion_verdicts", columns=_COUNTED, where=where))
    shown = [
        {**row, **_judged(groups[row["event_id"]]), "skipped_records": skipped[row["event_id"]]}
        for row in read("partition_expansions", where=where).to_pylist()
        if until is None or row["first_seen_new_at"] is None or row["first_seen_new_at"] <= until
    ]
    shown.sort(key=lambda row: row["first_seen_new_at"] or _EARLIEST, reverse=True)
    return sorted(shown, key=lambda row: rank(row["worst"]) if row["worst"] else len(LABELS))


def _of_groups(verdicts: pa.Table) -> tuple[Mapping[str, Counter[str]], Mapping[str, int]]:
    """By expansion: groups by their worst verdict, and skipped records."""
    groups: defaultdict[str, Counter[str]] = defaultdict(Counter)
    skipped: Counter[str] = Counter()
    own = worst_first(verdicts).group_by(["event_id", "group_id"], use_threads=False)
    for row in own.aggregate([("verdict", "first"), ("skipped_records", "sum")]).to_pylist():
        groups[row["event_id"]][row["verdict_first"] or "unknown"] += 1
        skipped[row["event_id"]] += row["skipped_records_sum"] or 0
    return groups, skipped


def _judged(groups: Mapping[str, int]) -> Row:
    worst = min(groups, key=rank, default=None)
    return {"worst": worst, "tone": _tone(worst), "groups": dict(groups), "groups_text": counts_text(groups)}


def _tone(verdict: str | None) -> str:
    """One that this release does not know is never good news."""
    return _TONES[OrderVerdict(verdict)] if verdict in _TONES else "unknown"


def counts_text(groups: Mapping[str, int]) -> str:
    """Groups by verdict in words, the worst first.

    >>> counts_text({"safe": 2, "broken": 1})
    '1 order broken, 2 safe'
    """
    named = (f"{number(groups[each])} {label(each)}" for each in sorted(groups, key=rank))
    return ", ".join(named) or "no group judged"


def detailed(read: Read, row: Mapping[str, Any], size: int, group_id: str = "") -> Row:
    """One of `expansions` with what is known of it. `verdicts`: the worst `size` of all groups, or of one, with their
    words; `fences`: the first `size`, those that are not known before the others; `verdict_count` and `fence_count`:
    how many there are; `doubts`."""
    where = pc.field("event_id") == row["event_id"]
    fences = read("expansion_fences", where=where).to_pylist()
    fences.sort(key=lambda each: (each["fence_high"] is not None, each["partition"] or 0))
    later = (pc.field("topic_id") == row["topic_id"]) & (pc.field("sequence") > row["sequence"])
    is_newest = not read("partition_expansions", columns=["sequence"], where=later).num_rows
    verdicts = read("expansion_verdicts", where=where & (pc.field("group_id") == group_id) if group_id else where)
    return {
        **row,
        "verdicts": [_worded(each, is_newest=is_newest) for each in worst_first(verdicts).slice(0, size).to_pylist()],
        "verdict_count": verdicts.num_rows,
        "fences": fences[:size],
        "fence_count": len(fences),
        "doubts": [*_doubts(row)],
    }


def _worded(row: Row, *, is_newest: bool) -> Row:
    said = {"label": label(row["verdict"]), "sentence": verdict_sentence(row)}
    return {**row, **said, "advice": advice(row, is_newest=is_newest), "tone": _tone(row["verdict"])}


def _doubts(row: Mapping[str, Any]) -> Iterator[str]:
    """What is not certain of one expansion, a sentence each."""
    if not row["is_single"]:
        yield "Whether the topic grew in one step: another count may have lain in between."
    if row["status"] != "settled":
        since = f"they do from {instant(row['settles_at'])}" if row["settles_at"] else "not every broker lists it yet"
        yield f"Whether every producer knows the count: {since}."
    if row["key_mapping"] in {None, "none"}:
        yield "Which keys move: no mapping of keys is configured for the topic (ACKTRAIL_KEY_MAPPINGS)."


def why_none(tables: Tables) -> str:
    """Why there is no expansion to show: nothing was looked at or judged yet, or no topic grew. Raises
    ConfigurationError, RetryableError: the tables cannot be read."""
    looks = tables.followed("partition_observations")
    if looks is None or not tables.exists("partition_expansions"):
        return f"No topic was {'looked at' if looks is None else 'audited'} yet: run {CHECK}."
    oldest = [each[_OLDEST] for each in looks.statistics((_OLDEST,)).values()]
    since = f" since {instant(min(oldest))}" if oldest and None not in oldest else ""
    return f"No topic gained partitions{since}."
