"""What must hold of the five tables: Great Expectations' checks, and the frames that they look at.

Only proofs are compared: a verdict that is not proven is not evaluated, and never taken for kept order.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Iterator, Mapping
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.share_partition_keys import key_codes
from acktrail.tables.delta.store import Tables
from acktrail_expansion.law.partition_ledger import ExpansionStatus
from acktrail_expansion.law.verdict import OrderVerdict
from acktrail_expectations.gx.suite_check import RowLabel, SuiteCheck, at_least, is_true, one_of, rule_check
from acktrail_expectations.suites.frame_columns import frame_of, known_true, last_known, previous, where

SUITE: Final = "partition_expansions"
LOOK_COLUMNS: Final = (
    *("run_id", "observed_at", "topic_id", "topic", "partition"),
    *("partition_count", "leader_epoch", "epoch_end_offset", "log_end_offset"),
)
"""The columns of ``partition_observations`` that are looked at."""

LOOK_CHECKS: Final[tuple[SuiteCheck, ...]] = (
    rule_check(
        "partition_count_not_falling",
        at_least("partition_count", "previous_count"),
        only_where="topic that was looked at before",
    ),
    rule_check(
        "log_kept_records",
        at_least("epoch_end_offset", "earlier_end"),
        only_where="partition that was looked at under an earlier leader",
    ),
)
FENCE_CHECKS: Final[tuple[SuiteCheck, ...]] = (
    rule_check("fence_low_le_high", at_least("fence_high", "fence_low")),
    rule_check("settle_time_long_enough", one_of("late_records", 0), only_where="fence whose keys were read"),
)
EXPANSION_CHECKS: Final[tuple[SuiteCheck, ...]] = (
    rule_check("expansion_settles", is_true("is_in_time"), only_where="expansion that is settling"),
)
VERDICT_CHECKS: Final[tuple[SuiteCheck, ...]] = (
    rule_check("ordered_group_kept_order", is_true("ordered_kept"), only_where="proof about a group that needs order"),
    rule_check("group_kept_order", is_true("other_kept"), only_where="proof about a group that is not marked"),
    rule_check("first_records_delivered", is_true("got_first"), only_where="known beginning of a partition"),
)
SUITES: Final[Mapping[str, tuple[SuiteCheck, ...]]] = {
    SUITE: (*LOOK_CHECKS, *FENCE_CHECKS, *EXPANSION_CHECKS, *VERDICT_CHECKS)
}
"""The suite by its name, as a branch names it."""

_SETTLE_TIMES: Final = 2
"""After how many settle times an expansion that is still settling is late."""
_UNKNOWN_SETTLE: Final = dt.timedelta(minutes=15)
_LOOK: Final = RowLabel(
    ("topic_id", "topic", "partition", "run_id"), lambda row: f"{_place(row)}, seen by run {row['run_id']}"
)
_FENCE: Final = RowLabel(
    ("topic_id", "topic", "partition", "event_id"), lambda row: f"{_place(row)} before expansion {row['event_id']}"
)
_EXPANSION: Final = RowLabel(
    ("topic_id", "topic", "old_count", "new_count"),
    lambda row: f"{_topic(row)} from {row['old_count']} to {row['new_count']}",
)
_VERDICT: Final = RowLabel(
    ("group_id", "topic_id", "topic", "partition", "event_id"),
    lambda row: f"{row['group_id']}/{_place(row)} after expansion {row['event_id']}",
)
_Frame = tuple[tuple[SuiteCheck, ...], pd.DataFrame, RowLabel, str]


def suite_frames(store: Tables, looks: pd.DataFrame, ordered: Container[str], now: dt.datetime) -> Iterator[_Frame]:
    """Checks, the frame that they look at, how its rows are named, and why it is empty. `looks`: a `look_frame`;
    `ordered`: the groups that need order."""
    yield LOOK_CHECKS, looks, _LOOK, "no topic was looked at"
    fences = (*("event_id", "topic_id", "topic", "partition"), *("fence_low", "fence_high", "late_records"))
    yield FENCE_CHECKS, frame_of(store.read("expansion_fences", columns=fences)), _FENCE, "no expansion has a fence"
    yield EXPANSION_CHECKS, _expansion_frame(store, now), _EXPANSION, "no expansion was found"
    yield VERDICT_CHECKS, _verdict_frame(store, ordered), _VERDICT, "no group was audited"


def look_frame(looks: pa.Table, run_id: str, since: dt.datetime) -> pd.DataFrame:
    """The partitions that `run_id` saw, and those that were seen after `since`. `looks`: ``LOOK_COLUMNS`` of those, and
    of earlier ones that they are compared with.

    Returns:
        ``LOOK_COLUMNS``; in partition 0 the topic's `previous_count`; `earlier_end`: the newest log end that is known
        under the leader epoch before. Both are missing where there is none.
    """
    named = pc.field("topic_id").is_valid() & pc.field("partition").is_valid()
    rows = looks.filter(named).sort_by([(name, "ascending") for name in ("topic_id", "partition", "observed_at")])
    frame, chain = frame_of(rows), key_codes([rows["topic_id"], rows["partition"]])
    leader = frame["leader_epoch"]
    before = previous(last_known(leader, chain), chain)
    end = last_known(where(frame["log_end_offset"], leader.notna()), chain)
    frame["earlier_end"] = last_known(where(previous(end, chain), known_true(leader > before)), chain)
    count = previous(frame["partition_count"], chain)
    frame["previous_count"] = where(count, known_true(frame["partition"] == 0))
    is_own = pc.or_(pc.greater(rows["observed_at"], pa.scalar(since)), pc.equal(rows["run_id"], run_id))
    return frame[is_own.to_numpy()].reset_index(drop=True)


def _expansion_frame(store: Tables, now: dt.datetime) -> pd.DataFrame:
    columns = (*("topic_id", "topic", "old_count", "new_count"), *("first_seen_new_at", "settles_at", "status"))
    rows = store.rows("partition_expansions", columns=columns)
    return pd.DataFrame([{**row, "is_in_time": _in_time(row, now)} for row in rows])


def _in_time(row: Mapping[str, Any], now: dt.datetime) -> bool | None:
    """None: it is settled."""
    if row["status"] != ExpansionStatus.SETTLING:
        return None
    seen, settles = row["first_seen_new_at"], row["settles_at"]
    settle = _UNKNOWN_SETTLE if settles is None else settles - seen
    return bool(now <= seen + _SETTLE_TIMES * settle)


def _verdict_frame(store: Tables, ordered: Container[str]) -> pd.DataFrame:
    columns = (*("event_id", "topic_id", "topic", "group_id", "partition"), *("verdict", "skipped_records"))
    rows = store.read("expansion_verdicts", columns=columns)
    chosen = [group for group in rows["group_id"].unique().to_pylist() if group in ordered]
    is_ordered = pc.is_in(rows["group_id"], value_set=pa.array(chosen, pa.string()))
    kept = pc.equal(rows["verdict"], OrderVerdict.SAFE.value)
    is_proof = pc.or_kleene(kept, pc.equal(rows["verdict"], OrderVerdict.BROKEN.value))
    for name, own in (("ordered_kept", is_ordered), ("other_kept", pc.invert(is_ordered))):
        proven = pc.and_kleene(is_proof, own)
        rows = rows.append_column(name, pc.if_else(proven, kept, pa.scalar(None, pa.bool_())))
    skipped = pc.equal(rows["verdict"], OrderVerdict.SKIPPED.value)
    got_first = pc.if_else(
        pc.fill_null(skipped, fill_value=False), pa.scalar(value=False), pc.equal(rows["skipped_records"], 0)
    )
    return frame_of(rows.append_column("got_first", got_first))


def _place(row: Mapping[str, Any]) -> str:
    return f"{_topic(row)}/{row['partition']}"


def _topic(row: Mapping[str, Any]) -> str:
    return str(row["topic"] if isinstance(row["topic"], str) else row["topic_id"])
