"""What an audit of expansions found, as rows of ``findings`` beside those of reconciliations.

Rules, severities and advice are those of the catalogue (``acktrail.model.rules.expansion_rules``), and what breaks a
rule here is what breaks its expectation. An audit opens and closes them all: a finding is open as long as the newest
audit has it, and no other run touches it.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.expansion.look_columns import LookColumns
from acktrail.columnar.expansion.lost_proofs import provable_fences
from acktrail.columnar.schemas.table_schemas import FINDINGS
from acktrail.errors import ConcurrentCommit
from acktrail.expansions.found_expansions import FencedTopicExpansion
from acktrail.model.expansion.expansion_texts import broken_order_text, counted, skipped_text
from acktrail.model.expansion.ordering import OrderingVerdict
from acktrail.model.expansion.start_audit import StartVerdict
from acktrail.model.rules.catalogue import RULE_BY_ID
from acktrail.tables.cluster_check import create_for
from acktrail.tables.delta.store import Tables
from acktrail.tables.open_runs import AUDITS, audit_run_id
from acktrail.times import utc_text

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SEEN: Final = f"{AUDITS}/looks"
"""The app id whose number is the newest look of the newest audit, in microseconds."""
_SAME: Final = ("rule", "subject", "severity", "detail", "last_seen_at")
"""The columns in which an audit that found nothing else agrees with the one before."""
_GROUP: Final = ("event_id", "group_id")
_Row = dict[str, Any]


def findings_of_audit(
    looks: LookColumns,
    fell: Int64Array,
    expansions: Sequence[FencedTopicExpansion],
    groups: tuple[pa.Table, pa.Table],
    ordered: Container[str],
) -> Iterator[_Row]:
    """Columns of ``FINDINGS`` that an audit knows: rule, subject, detail, and the topic and group they are about.

    `fell`: the looks with fewer partitions than the one before; `groups`: rows of ``ordering_audits`` and of
    ``start_audits``; `ordered`: the groups that rely on the order of keys. A topic, an expansion, or a group in an
    expansion has one finding of a rule at most. Cost: each table is read once; only the findings become Python's.
    """
    yield from _fallen(looks, fell)
    known = {each.event_id: each for each in expansions}
    ordering, starts = groups
    needed = _needed_fences(ordering)
    for each in expansions:
        yield from _of_fences(each, needed.get(each.event_id, []))
    for row in _broken_order(ordering):
        rule = "ordered_group_kept_order" if row["group_id"] in ordered else "group_kept_order"
        own = known[row["event_id"]]
        unfinished, many = row["unfinished_first"], row["count_all"]
        text = broken_order_text(row["partition_first"], row["source_partition_first"], unfinished, many)
        yield _of_expansion(rule, own, f"it {text}", row["group_id"])
    for row in _skipped(starts):
        text = skipped_text(row["partition_first"], row["skipped_records_sum"], row["count_all"])
        own = known[row["event_id"]]
        yield _of_expansion("new_partition_records_not_skipped", own, f"it {text}", row["group_id"])


def write_findings(tables: Tables, cluster_id: str, found: Iterable[Mapping[str, Any]], seen_us: int) -> dict[str, int]:
    """Open what was `found`, close what was not, in one commit; gives how many of each rule are open. `seen_us`: the
    newest look, microseconds. An audit that finds what the one before found in the same looks changes nothing.

    Of two audits that write at once the second one fails, and nothing of it lands; and
    none undoes what an audit of later looks has written.

    Raises ConcurrentCommit: another audit is writing, or has written what later looks show.
    """
    seen_at = _EPOCH + dt.timedelta(microseconds=seen_us)
    times = {"first_seen_at": seen_at, "last_seen_at": seen_at, "times_seen": 1}
    rows = [
        {**times, **row, "cluster_id": cluster_id, "severity": RULE_BY_ID[row["rule"]].severity.value} for row in found
    ]
    before = create_for(tables, "findings", cluster_id)
    done, seen_before = (before.transaction_version(app_id) for app_id in (AUDITS, _SEEN))
    _check_order(tables, seen_us, seen_before)
    known = [] if done is None else before.rows({"run_id": audit_run_id(done)}, columns=_SAME)
    if seen_before != seen_us or {_same(row) for row in rows} != {_same(row) for row in known}:
        number = (done or 0) + 1
        table = pa.Table.from_pylist([{**row, "run_id": audit_run_id(number)} for row in rows], schema=FINDINGS)
        write = tables.upsert if rows else tables.append  # a merge of nothing is no commit
        write("findings", table, transactions={AUDITS: number, _SEEN: seen_us}, expected={AUDITS: done})
    return dict(Counter(row["rule"] for row in rows))


def _check_order(tables: Tables, seen_us: int, seen_before: int | None) -> None:
    if seen_before is not None and seen_before > seen_us:
        raise ConcurrentCommit(
            f"another audit has written the findings of later looks to the tables at {tables.root}",
            hint="run `acktrail expand audit` again",
            data={"table": "findings", "newest_us": seen_us, "found_us": seen_before},
        )


def _same(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _SAME)


def _fallen(looks: LookColumns, fell: Int64Array) -> Iterator[_Row]:
    """One of each topic id, with its newest fall."""
    newest = {int(looks.topic[look]): int(look) for look in fell.tolist()}
    for topic, look in newest.items():
        topic_id = looks.topic_ids[topic].as_py()
        at = utc_text(_EPOCH + dt.timedelta(microseconds=int(looks.at[look])))
        after, times = counted(int(looks.count[look]), "partition"), int((looks.topic[fell] == topic).sum())
        yield {
            "rule": "partition_count_not_falling",
            "subject": topic_id,
            "topic_id": topic_id,
            "topic": looks.topic_names[topic],
            "detail": f"from {looks.count[look - 1]:,} to {after} in the look of {at}; looks where it falls: {times:,}",
        }


def _needed_fences(ordering: pa.Table) -> dict[str, list[int]]:
    """The sources of each expansion whose exact fences could prove an open verdict."""
    found: dict[str, list[int]] = {}
    for row in provable_fences(ordering).to_pylist():
        found.setdefault(row["event_id"], []).append(row["partition"])
    return found


def _of_fences(each: FencedTopicExpansion, needed: Sequence[int]) -> Iterator[_Row]:
    is_needed = np.zeros(each.old_count, np.bool_)
    is_needed[needed] = True
    expired = is_needed & (each.low >= 0) & (each.log_start > each.low)
    if expired.any():
        worst = _worst(expired, each.log_start - each.low)
        gone = counted(int(each.log_start[worst] - each.low[worst]), "offset")
        text = f"the retention removed {gone} behind the low fence of partition {worst}, and reached the fences"
        text = f"verdicts cannot be proven any more: {text}"
        yield _of_expansion("fence_not_expired", each, f"{text} of {_of_all(expired)}")
    late = (each.exact >= 0) & (each.high >= 0) & (each.exact > each.high)
    if late.any():
        worst = _worst(late, each.exact - each.high)
        beyond = counted(int(each.exact[worst] - each.high[worst]), "offset")
        text = f"a producer used the old count up to {beyond} behind the high fence of partition {worst}"
        yield _of_expansion("fence_exact_le_high", each, f"{text}, and behind those of {_of_all(late)}")


def _worst(mask: BoolArray, size: Int64Array) -> int:
    """The lowest of those with the greatest size."""
    return int(np.argmax(np.where(mask, size, -1)))


def _of_all(mask: BoolArray) -> str:
    return f"{int(mask.sum()):,} of {counted(len(mask), 'source')}"


def _broken_order(ordering: pa.Table) -> list[_Row]:
    """One of each group and expansion: the destination whose source had most records left, then the lowest."""
    rows = ordering.filter(pc.equal(ordering["verdict"], OrderingVerdict.VIOLATION.value))
    is_share = pc.equal(rows["group_type"], "share")
    below = pc.subtract(rows["fence_low"], rows["source_at"])
    rows = rows.append_column("unfinished", pc.if_else(is_share, rows["remaining"], below))
    return _by_group(rows, "unfinished", ("partition", "source_partition", "unfinished"))


def _skipped(starts: pa.Table) -> list[_Row]:
    rows = starts.filter(pc.equal(starts["verdict"], StartVerdict.SKIPPED_RECORDS.value))
    return _by_group(rows, "skipped_records", ("partition",), sums=("skipped_records",))


def _by_group(rows: pa.Table, size: str, first: Iterable[str], sums: Iterable[str] = ()) -> list[_Row]:
    order = [*((name, "ascending") for name in _GROUP), (size, "descending"), ("partition", "ascending")]
    wanted = [*((name, "first") for name in first), *((name, "sum") for name in sums), ([], "count_all")]
    found: list[_Row] = rows.sort_by(order).group_by([*_GROUP], use_threads=False).aggregate(wanted).to_pylist()
    return found


def _of_expansion(rule: str, each: FencedTopicExpansion, what: str, group_id: str | None = None) -> _Row:
    counts = f"{each.old_count}-{each.new_count}"
    return {
        "rule": rule,
        "subject": f"{each.topic_id}:{counts}" if group_id is None else f"{group_id}:{each.topic_id}:{counts}",
        "group_id": group_id,
        "topic_id": each.topic_id,
        "topic": each.topic,
        "detail": f"expansion from {each.old_count:,} to {counted(each.new_count, 'partition')}: {what}",
    }
