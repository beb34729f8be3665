"""The cluster's answers as columns beside share partitions, against a plain reading row by row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.reconcile.observed_run import PHASES, read_descriptions
from acktrail.tables.delta.store import Tables

Row = Mapping[str, Any]

NOT_AUTHORIZED = {
    29: "TOPIC_AUTHORIZATION_FAILED",
    30: "GROUP_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
}

few = st.integers(0, 2)
names = st.sampled_from("ab")
codes = st.sampled_from([None, 0, 0, 15, 29, 30, 69])
errors = st.sampled_from([None, "", "COORDINATOR_NOT_AVAILABLE", "GROUP_AUTHORIZATION_FAILED: no", "x" * 3])
offset_rows = st.fixed_dictionaries(
    {
        "phase": st.sampled_from(PHASES),
        "group_id": st.none() | names,
        "topic": st.none() | names,
        "topic_id": st.none() | names,
        "partition": st.none() | few,
        "log_start_offset": st.none() | few,
        "log_end_offset": st.none() | few,
        "start_offset": st.none() | few,
        "lag": st.none() | few,
        "error_code": codes,
        "error": errors,
    }
).filter(lambda row: row["group_id"] is not None or row["partition"] is not None)
group_rows = st.fixed_dictionaries(
    {
        "phase": st.sampled_from(PHASES),
        "group_id": names,
        "group_type": st.sampled_from([None, "", "share", "Share", "consumer"]),
        "group_state": st.sampled_from([None, "Stable", "Empty"]),
        "error_code": codes,
    }
)


class Stored:
    """Two tables of observations and one of topics."""

    def __init__(self, offsets: Sequence[Row], groups: Sequence[Row], topics: Sequence[Row]) -> None:
        self._rows = {"offset_observations": offsets, "group_observations": groups, "topics": topics}

    def read(self, name: str, *, columns: Sequence[str], where: Any = None) -> pa.Table:
        return pa.Table.from_pylist([*map(dict, self._rows[name])], schema=TABLES[name]).select(list(columns))


@given(
    st.lists(offset_rows, max_size=8),
    st.lists(group_rows, max_size=4),
    st.dictionaries(names, st.sampled_from(["present", "deleted"])),
    st.lists(st.tuples(names, st.none() | names, few), max_size=6),
)
def test_each_answer_lies_beside_its_share_partition(
    offsets: list[Row], groups: list[Row], statuses: dict[str, str], keys: list[tuple[str, str | None, int]]
) -> None:
    """Of several rows the first of a phase counts; errors, missing rights and absent groups are read as they are."""
    seen = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    topics = [{"topic_id": t, "topic": f"topic {t}", "status": s, "last_seen_at": seen} for t, s in statuses.items()]
    described = read_descriptions(cast("Tables", Stored(offsets, groups, topics)), "r1")
    schema = pa.schema([TABLES["offset_observations"].field(name) for name in KEY_COLUMNS])
    rows = pa.Table.from_pylist([dict(zip(KEY_COLUMNS, key, strict=True)) for key in keys], schema=schema)
    found = pa.table(described.beside(rows)).to_pylist()
    assert found == [plain_answer(key, offsets, groups, statuses) for key in keys]
    others = described.only_described(rows).to_pylist()
    distinct = dict.fromkeys(tuple(row[name] for name in KEY_COLUMNS) for row in share_rows(offsets))
    assert [tuple(row.values()) for row in others] == [key for key in distinct if key not in keys]


def share_rows(offsets: Sequence[Row]) -> list[Row]:
    named = (row for row in offsets if row["group_id"] is not None and row["partition"] is not None)
    return [row for row in named if row["topic_id"] is not None or row["error_code"]]


def plain_answer(
    key: tuple[str, str | None, int], offsets: Sequence[Row], groups: Sequence[Row], statuses: Mapping[str, str]
) -> dict[str, Any]:
    group_id, topic_id, partition = key
    own = [row for row in share_rows(offsets) if tuple(row[name] for name in KEY_COLUMNS) == key]
    answers = {
        phase: first(groups, phase, lambda row: is_share(row) and row["group_id"] == group_id) for phase in PHASES
    }
    answer: dict[str, Any] = {
        "topic": f"topic {topic_id}" if topic_id in statuses else None,
        "topic_status": statuses.get(topic_id or ""),
        "described_topic": own[0]["topic"] if own else None,
        "group_state": (answers["after"] or answers["before"] or {}).get("group_state"),
    }
    for phase, group in answers.items():
        share = first(own, phase, lambda row: True)
        logs = [row for row in offsets if row["group_id"] is None and topic_id is not None]
        log = first(logs, phase, lambda row: (row["topic_id"], row["partition"]) == (topic_id, partition)) or {}
        failed = [row for row in offsets if row["group_id"] == group_id and row["partition"] is None]
        group_error = error_of(first(failed, phase, lambda row: bool(row["error_code"])))
        refused = [row is not None and row["error_code"] in NOT_AUTHORIZED for row in (share, group)]
        sample = {
            "is_listed": share is not None,
            "start_offset": None if share is None else share["start_offset"],
            "lag": None if share is None else share["lag"],
            "error": error_of(share) or group_error,
            "is_group_present": is_present(group),
            "is_authorized": not any(refused) and not (group_error or "").startswith(tuple(NOT_AUTHORIZED.values())),
            "log_start_offset": log.get("log_start_offset"),
            "log_end_offset": log.get("log_end_offset"),
        }
        answer |= {f"{name}_{phase}": value for name, value in sample.items()}
    return answer


def first(rows: Sequence[Row], phase: str, is_own: Any) -> Row | None:
    return next((row for row in rows if row["phase"] == phase and is_own(row)), None)


def is_share(row: Row) -> bool:
    return (row["group_type"] or "share").lower() == "share"


def is_present(group: Row | None) -> bool | None:
    if group is None or group["error_code"] == 69:
        return False
    return None if group["error_code"] else True


def error_of(row: Row | None) -> str | None:
    if row is None or not row["error_code"]:
        return None
    return row["error"] or f"error {row['error_code']}"
