"""The findings of an audit. What breaks a rule here is what breaks its expectation; an expansion, or a group in one,
has one finding of a rule at most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.tables.delta.store import Tables
from acktrail.tables.open_runs import write_branch_findings
from acktrail_expansion.branch import EXPANSION
from acktrail_expansion.law.order import OrderVerdict
from acktrail_expansion.settings import ordered_groups
from acktrail_expansion.words import LABELS, counted, rank, verdict_sentence

_Row = Mapping[str, Any]
_BAD: Final = (OrderVerdict.BROKEN, OrderVerdict.SKIPPED)


def write_findings(tables: Tables, cluster_id: str, seen_us: int) -> dict[str, int]:
    """Open and close the findings of an audit that has replaced its tables; gives how many of each rule are open.
    Raises as `write_branch_findings`."""
    expansions = {row["event_id"]: row for row in tables.rows("partition_expansions")}
    texts: dict[tuple[str, str, str | None], list[str]] = defaultdict(list)
    for rule, row, text in (*_late(tables), *_bad(tables)):
        texts[rule, row["event_id"], row.get("group_id")].append(text)
    found = [_finding(rule, group, expansions[event], own) for (rule, event, group), own in texts.items()]
    return write_branch_findings(tables, EXPANSION.audit, cluster_id, found, seen_us)


def _late(tables: Tables) -> Iterator[tuple[str, _Row, str]]:
    columns = ("event_id", "partition", "late_records")
    for row in tables.read("expansion_fences", columns=columns, where=pc.field("late_records") > 0).to_pylist():
        records = counted(row["late_records"], "record")
        text = f"Partition {row['partition']} got {records} by the old count after the settle time."
        yield "settle_time_long_enough", row, text


def _bad(tables: Tables) -> Iterator[tuple[str, _Row, str]]:
    """Broken order and skipped records, the worst first."""
    ordered = ordered_groups()
    where = pc.field("verdict").isin(list(_BAD)) | (pc.field("skipped_records") > 0)
    for row in worst_first(tables.read("expansion_verdicts", where=where)).to_pylist():
        if row["verdict"] == OrderVerdict.BROKEN:
            rule = "ordered_group_kept_order" if row["group_id"] in ordered else "group_kept_order"
            yield rule, row, verdict_sentence(row)
        if row["verdict"] == OrderVerdict.SKIPPED or row["skipped_records"]:
            yield "first_records_delivered", row, verdict_sentence({**row, "verdict": OrderVerdict.SKIPPED})


def worst_first(verdicts: pa.Table) -> pa.Table:
    """Rows by verdict, then those with the most open or skipped records, then by group and partition."""
    ranks = pc.fill_null(pc.index_in(verdicts["verdict"], value_set=pa.array([*LABELS])), fill_value=rank(None))
    many = pc.max_element_wise(verdicts["open_records"], verdicts["skipped_records"])
    order = [("rank", "ascending"), ("many", "descending"), ("group_id", "ascending"), ("partition", "ascending")]
    ranked = verdicts.append_column("rank", ranks).append_column("many", many)
    return verdicts.take(pc.sort_indices(ranked, sort_keys=order))


def _finding(rule: str, group_id: str | None, expansion: _Row, texts: list[str]) -> _Row:
    """The first of `texts`, and how many there are."""
    old, new = expansion["old_count"], expansion["new_count"]
    subject = f"{expansion['topic_id']}:{old}-{new}"
    more = f" It is so in {len(texts)} partitions." if len(texts) > 1 else ""
    return {
        "rule": rule,
        "subject": subject if group_id is None else f"{group_id}:{subject}",
        "group_id": group_id,
        "topic_id": expansion["topic_id"],
        "topic": expansion["topic"],
        "detail": f"expansion from {old} to {new} partitions: {texts[0]}{more}",
    }
