"""What an expansion means in words: verdicts, dependencies, and what is not certain; the same on pages and on the
terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from acktrail.model.expansion.dependencies import DependencyKind
from acktrail.model.expansion.ordering import OrderingVerdict

_V = OrderingVerdict
_MEANINGS: Final = {
    _V.VIOLATION: "the destination was begun while records of the source from before were unfinished",
    _V.POSSIBLE_VIOLATION: "the source was between its fences when the destination was begun",
    _V.INDETERMINATE: "not known which moved first, or whether another partition count lay in between",
    _V.UNKNOWN_FENCE: "it is not known where the source's records from before the expansion end",
    _V.NOT_STARTED: "the group has not begun with the destination",
    _V.NOT_APPLICABLE: "the group came after the expansion, or does not read the source",
    _V.SAFE: "the source was finished up to its high fence before the destination was begun",
}
ORDERING_VERDICTS: Final = tuple(verdict.value for verdict in _MEANINGS)
"""Worst first."""


def ordering_meaning(verdict: str | None) -> str:
    """What a verdict means."""
    if verdict not in ORDERING_VERDICTS:
        return "this release does not know the verdict"
    return _MEANINGS[OrderingVerdict(verdict)]


def ordering_rank(verdict: str | None) -> int:
    """Sort key, worst first; one that this release does not know stands with those that are not proven."""
    return ORDERING_VERDICTS.index(verdict if verdict in ORDERING_VERDICTS else _V.INDETERMINATE.value)


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def counted(count: int, noun: str) -> str:
    """A count with its noun.

    >>> counted(1, "topic"), counted(2_000, "topic")
    ('1 topic', '2,000 topics')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def broken_order_text(partition: int, source: int, offsets: int, partitions: int) -> str:
    """What a group did whose order of keys is broken for certain in `partitions` destinations: in `partition` of them,
    while its position in `source` was `offsets` below the end of the records from before the expansion. Some of these
    can be of no record.

    >>> broken_order_text(2, 0, 1, 1)
    'began with partition 2 while records of partition 0 from before the expansion were unfinished: 1 offset was left'
    """
    left = f"{counted(offsets, 'offset')} {'was' if offsets == 1 else 'were'} left"
    what = f"records of partition {source} from before the expansion were unfinished: {left}"
    more = _and_more(partitions).removeprefix(",")
    return f"began with partition {partition}{more} while {what}"


def skipped_text(partition: int, records: int, partitions: int) -> str:
    """What a group did that skipped `records` in `partitions` added partitions, most in `partition`."""
    return f"skipped {counted(records, 'record')}, most in partition {partition}{_and_more(partitions)}"


def _and_more(partitions: int) -> str:
    return "" if partitions == 1 else f", and {counted(partitions - 1, 'more partition')}"


def dependency_texts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows of ``partition_dependencies`` of one expansion as sentences: one a destination where few are alike, else one
    for all that wait for as many sources for the same reason.

    >>> alike = {"kind": "new_partition", "source_step": 2, "source_count": 4, "sources": 2, "event_id": "e"}
    >>> dependency_texts([{**alike, "partition": 4, "source_event_id": "e"}])
    ['Partition 4 waits for 2 of the 4 partitions from before, 0, 2: keys moved there.']
    """
    alike: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: (row["source_event_id"] != row["event_id"], row["partition"] or 0)):
        alike.setdefault(tuple(row[name] for name in _ALIKE), []).append(row)
    return [text for own in alike.values() for text in _of_alike(own)]


_ALIKE: Final = ("source_event_id", "kind", "source_step", "source_count", "sources")
_NAMED: Final = 8
_FEW: Final = 6


def _of_alike(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    first, count = rows[0], len(rows)
    if any(first[name] is None for name in _ALIKE) or first["source_step"] < 1:
        return [f"What {counted(count, 'partition')} wait for is not known."]
    earlier = "" if first["source_event_id"] == first["event_id"] else " an earlier expansion"
    scope = f"{_number(first['sources'])} of the {counted(first['source_count'], 'partition')} from before{earlier}"
    why = _WHY.get(first["kind"], "for a reason that this release does not know")
    if count > _FEW:
        step = first["source_step"]
        which = "" if step == 1 else f", those with the same remainder by {_number(step)}"
        named = f"{_number(rows[0]['partition'])} to {_number(rows[-1]['partition'])}"
        return [f"{_number(count)} partitions ({named}) each wait for {scope}{which}: {why}."]
    return [f"Partition {row['partition']} waits for {scope}{_sources(row)}: {why}." for row in rows]


_WHY: Final = {
    DependencyKind.NEW_PARTITION.value: "keys moved there",
    DependencyKind.EXISTING_MOVE.value: "keys moved between partitions that were there before",
    DependencyKind.ALL_LOWER.value: "the mapping of keys is not known",
}


def _sources(row: Mapping[str, Any]) -> str:
    if row["source_event_id"] != row["event_id"]:
        return ""  # without those that a later expansion is a source of: the row does not name them
    every = range(row["partition"] % row["source_step"], row["source_count"], row["source_step"])
    named = [str(each) for each in every if each != row["partition"]][:_NAMED]
    more = row["sources"] - len(named)
    return ", " + ", ".join(named) + (f" and {_number(more)} more" if more > 0 else "")


def uncertainties(row: Mapping[str, Any], counts: Mapping[str, int], unknown_fences: int) -> list[str]:
    """The `doubts` about an expansion, then what no look sees of any."""
    return [*doubts(row, counts, unknown_fences), *NEVER_SEEN]


def doubts(row: Mapping[str, Any], counts: Mapping[str, int], unknown_fences: int) -> list[str]:
    """What is not certain of an expansion (row of ``partition_expansions``), a sentence each. `counts`: destinations by
    verdict; `unknown_fences`: sources whose fence is not known."""
    lines = []
    if not row["is_single"]:
        lines.append(
            f"Whether the topic went from {_number(row['old_count'])} to {_number(row['new_count'])} partitions in one "
            "step: another count can have been in between, by which keys moved in other ways. So no verdict on it is "
            "safe. It is known of one partition more, and of what acktrail expand apply did."
        )
    if row["status"] != "settled":
        lines.append(
            "Whether all producers know the count: the expansion is settling. Its fences have no high end yet, so that "
            "nothing is proven to be safe."
        )
    if row["key_mapping"] in {None, "none"}:
        lines.append(
            "How keys are mapped to partitions: no mapping is configured for the topic (ACKTRAIL_KEY_MAPPINGS). Each "
            "new partition waits for every old one, and moves between old ones are not seen."
        )
    if unknown_fences:
        what = counted(unknown_fences, "source")
        lines.append(f"Where the records from before the expansion end in {what}: the fence is not known.")
    for verdict in (_V.POSSIBLE_VIOLATION, _V.INDETERMINATE, _V.UNKNOWN_FENCE):
        if counts.get(verdict.value):
            places, word = counted(counts[verdict.value], "destination"), verdict.value.replace("_", " ")
            lines.append(f"The order of {places} ({word}): {ordering_meaning(verdict.value)}.")
    return lines


NEVER_SEEN: Final = (
    (
        "When a delivery began: a position shows that records were finished. One that is in progress is not seen, and "
        "a position that another tool moved forward looks like consumption."
    ),
    (
        "Who else reads the topic: a group without a committed offset in it, or a share group without a state there, "
        "is in no look and has no verdict."
    ),
)
"""What no look sees."""
