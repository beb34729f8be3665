"""What the tables of the newest audit say that people have to know: findings, and the groups in trouble.

What breaks a rule here is what breaks its expectation. A topic, an expansion, or a group in an expansion has one
finding of a rule at most.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow.compute as pc

from acktrail.tables.branch_findings import write_branch_findings
from acktrail.tables.delta.store import Tables
from acktrail_expansion.branch import EXPANSION
from acktrail_expansion.law.verdict import OrderVerdict
from acktrail_expansion.words import counted, verdict_sentence, worst_first

_Row = Mapping[str, Any]
Troubles = Mapping[tuple[str, str], Mapping[OrderVerdict, Sequence[_Row]]]
"""By expansion and group: the rows with broken order, and those with skipped records, each the worst first."""
_BAD: Final = (OrderVerdict.BROKEN, OrderVerdict.SKIPPED)
_COLUMNS: Final = (
    *("event_id", "group_id", "group_type", "partition", "verdict", "reason", "evidence", "source_partition"),
    *("fence_low", "source_offset", "open_records", "first_start_offset", "skipped_records", "keys_at_risk"),
)


def write_findings(
    tables: Tables, cluster_id: str, seen_us: int, *, ordered: Container[str], fallen: Mapping[str, tuple[str, str]]
) -> dict[str, int]:
    """Open and close the findings of an audit that has replaced its tables; gives how many of each rule are open.

    `ordered`: the groups that need order. `fallen`: topics with fewer partitions than in the look before, by their ids:
    the name, and what was seen. Raises as `write_branch_findings`.
    """
    found = (*_fallen(fallen), *_of_tables(tables, ordered))
    return write_branch_findings(tables, EXPANSION.audit, cluster_id, found, seen_us)


def troubles(tables: Tables) -> Troubles:
    """Of groups that broke order or never got first records."""
    where = pc.field("verdict").isin(list(_BAD)) | (pc.field("skipped_records") > 0)
    found: dict[tuple[str, str], dict[OrderVerdict, list[_Row]]] = {}
    for row in worst_first(tables.read("expansion_verdicts", columns=_COLUMNS, where=where).to_pylist()):
        own = found.setdefault((row["event_id"], row["group_id"]), {})
        for verdict in _BAD:
            if row["verdict"] == verdict or (verdict is OrderVerdict.SKIPPED and row["skipped_records"]):
                own.setdefault(verdict, []).append({**row, "verdict": verdict.value})
    return found


def trouble_text(rows: Sequence[_Row]) -> str:
    """The worst of `rows` in words, and how many there are."""
    return verdict_sentence(rows[0]) + (f" It is so in {counted(len(rows), 'partition')}." if len(rows) > 1 else "")


def growth(expansion: _Row) -> str:
    """From how many partitions to how many."""
    return f"from {expansion['old_count']:,} to {counted(expansion['new_count'], 'partition')}"


def _fallen(fallen: Mapping[str, tuple[str, str]]) -> Iterator[_Row]:
    for topic_id, (topic, detail) in fallen.items():
        own = {"subject": topic_id, "topic_id": topic_id, "topic": topic, "detail": detail}
        yield {"rule": "partition_count_not_falling", **own}


def _of_tables(tables: Tables, ordered: Container[str]) -> Iterator[_Row]:
    expansions = {row["event_id"]: row for row in tables.rows("partition_expansions")}
    late: dict[str, list[_Row]] = {}
    columns = ("event_id", "partition", "late_records")
    for row in tables.read("expansion_fences", columns=columns, where=pc.field("late_records") > 0).to_pylist():
        late.setdefault(row["event_id"], []).append(row)
    for event_id, behind in late.items():
        records = counted(sum(row["late_records"] for row in behind), "record")
        where = f"in {counted(len(behind), 'partition')}, first in {min(row['partition'] for row in behind)}"
        text = f"{records} of producers that used the old count after the settle time, {where}"
        yield _finding("settle_time_long_enough", expansions[event_id], text)
    for (event_id, group_id), kinds in troubles(tables).items():
        of_order = "ordered_group_kept_order" if group_id in ordered else "group_kept_order"
        for verdict, rows in kinds.items():
            rule = of_order if verdict is OrderVerdict.BROKEN else "first_records_delivered"
            yield _finding(rule, expansions[event_id], trouble_text(rows), group_id)


def _finding(rule: str, expansion: _Row, text: str, group_id: str | None = None) -> _Row:
    subject = f"{expansion['topic_id']}:{expansion['old_count']}-{expansion['new_count']}"
    return {
        "rule": rule,
        "subject": subject if group_id is None else f"{group_id}:{subject}",
        "group_id": group_id,
        "topic_id": expansion["topic_id"],
        "topic": expansion["topic"],
        "detail": f"expansion {growth(expansion)}: {text}",
    }
