"""The cluster's answers as columns beside share partitions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.reconcile.observed_run import read_descriptions
from acktrail.tables.delta.store import Tables

COMMON = {"cluster_id": "c1", "run_id": "r1", "observed_at": dt.datetime(2026, 3, 1, tzinfo=dt.UTC)}
SHARE = {"group_id": "a", "topic": "orders", "topic_id": "t", "partition": 0, "start_offset": 3, "lag": 7}
LOG = {"topic": "orders", "topic_id": "t", "partition": 0, "log_start_offset": 1, "log_end_offset": 10}
GROUP = {"group_id": "a", "group_type": "Share", "group_state": "Stable", "error_code": 0}
FAILED = {"group_id": "a", "error_code": 15}
USUAL = {
    "is_listed": True,
    "start_offset": 3,
    "lag": 7,
    "error": None,
    "is_group_present": True,
    "is_authorized": True,
    "log_start_offset": 1,
    "log_end_offset": 10,
}
NO_SHARE = {"is_listed": False, "start_offset": None, "lag": None}
NO_LOG = {"log_start_offset": None, "log_end_offset": None}


def beside(folder: Path, rows: Mapping[str, list[Mapping[str, Any]]], *keys: tuple[str, str | None, int]) -> Any:
    """What `after` says beside each of `keys`, with `described_topic` and `group_state`; and who was only described."""
    tables = Tables(TablesConfig(uri=str(folder)))
    for name, own in rows.items():
        tables.append(name, [{**COMMON, **({} if name == "topics" else {"phase": "after"}), **row} for row in own])
    described = read_descriptions(tables, "r1")
    schema = pa.schema([TABLES["offset_observations"].field(name) for name in KEY_COLUMNS])
    asked = pa.Table.from_pylist([dict(zip(KEY_COLUMNS, key, strict=True)) for key in keys], schema=schema)
    found = pa.table(described.beside(asked)).to_pylist()
    for row in found:
        assert not row["is_listed_before"], "nothing was asked before"
        assert row["is_group_present_before"] is False
    kept = [
        {name.removesuffix("_after"): value for name, value in row.items() if "before" not in name} for row in found
    ]
    return kept, [tuple(row.values()) for row in described.only_described(asked).to_pylist()]


@pytest.mark.parametrize(
    ("offsets", "groups", "expected"),
    [
        ([SHARE, LOG], [GROUP], {}),
        ([{**SHARE, "start_offset": None, "lag": None}, LOG], [GROUP], {"start_offset": None, "lag": None}),
        ([SHARE, {**SHARE, "start_offset": 9}, LOG], [{**GROUP, "group_type": None}], {}),
        ([SHARE], [{**GROUP, "group_type": "consumer"}], {"is_group_present": False, "group_state": None, **NO_LOG}),
        ([{**SHARE, "topic_id": None}, LOG], [GROUP], NO_SHARE),
        ([{**SHARE, "error_code": 3, "error": ""}, LOG], [GROUP], {"error": "error 3"}),
        ([{**SHARE, "error_code": 29, "error": "no"}, LOG], [GROUP], {"error": "no", "is_authorized": False}),
        ([FAILED, LOG], [GROUP], {"error": "error 15", **NO_SHARE}),
        (
            [{**FAILED, "error": "GROUP_AUTHORIZATION_FAILED: no"}, LOG],
            [GROUP],
            {"error": "GROUP_AUTHORIZATION_FAILED: no", "is_authorized": False, **NO_SHARE},
        ),
        ([SHARE, LOG], [{**GROUP, "error_code": 69}], {"is_group_present": False}),
        ([SHARE, LOG], [{**GROUP, "error_code": 15}], {"is_group_present": None}),
        ([SHARE, LOG], [{**GROUP, "error_code": 30}], {"is_group_present": None, "is_authorized": False}),
        ([SHARE, LOG], [], {"is_group_present": False, "group_state": None}),
    ],
)
def test_each_answer_lies_beside_its_share_partition(
    tmp_path: Path, offsets: list[Mapping[str, Any]], groups: list[Mapping[str, Any]], expected: Mapping[str, Any]
) -> None:
    """Of several rows the first of a phase counts; errors, missing rights and absent groups are read as they are."""
    rows = {"offset_observations": offsets, "group_observations": groups}
    (found,), _ = beside(tmp_path, rows, ("a", "t", 0))
    assert {name: found[name] for name in USUAL} == {**USUAL, **{n: expected[n] for n in USUAL if n in expected}}
    assert found["group_state"] == expected.get("group_state", "Stable")


def test_topics_have_the_newest_name_and_status(tmp_path: Path) -> None:
    """By their id; an id that no listing had has none, and a null id no log. Who was only described comes once."""
    topics = [
        {"topic_id": "t", "topic": name, "status": "present", "last_seen_at": COMMON["observed_at"] + dt.timedelta(age)}
        for age, name in enumerate(("old", "new"))
    ]
    nameless = {**SHARE, "topic_id": None, "error_code": 3}
    rows = {"offset_observations": [SHARE, {**LOG, "topic_id": None}, nameless, nameless], "topics": topics}
    (known, unknown), others = beside(tmp_path, rows, ("a", "t", 0), ("b", None, 0))
    assert (known["topic"], known["topic_status"], known["described_topic"]) == ("new", "present", "orders")
    assert (unknown["topic"], unknown["topic_status"], unknown["log_end_offset"]) == (None, None, None)
    assert others == [("a", None, 0)]
