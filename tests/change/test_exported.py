"""Records that the tables kept count only where all of them are there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from change.scenes import CLUSTER

from acktrail.change.verification.exported_records import exported_between
from acktrail.config import TablesConfig
from acktrail.format.wire.dialects import encode
from acktrail.model.records import ShareSnapshot
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail.tables.delta.store import Tables

STATE_TOPIC = "AQIDBAUGBwgJCgsMDQ4PEA"
KEY = SharePartition(group_id=GroupId("g"), topic_id=TopicId("AQIDBAUGBwgJCgsMDQ4PEQ"), partition=0)
HOME = 3


def tables(root: Path, *ranges: dict[str, Any], value: bytes | None = None) -> TablesConfig:
    """Tables with records of one share partition at offsets 5 to 9, and these ranges."""
    config = TablesConfig(uri=str(root))
    rows = []
    for offset in range(5, 10):
        record = ShareSnapshot(
            key=KEY, snapshot_epoch=offset, state_epoch=1, leader_epoch=0, start_offset=offset,
            delivery_complete_count=0, create_timestamp_ms=7, write_timestamp_ms=7, batches=(),
        )  # fmt: skip
        key, good = encode(record)
        raw = {"key": key, "value": good if value is None else value, "group_id": "g", "timestamp_ms": 7}
        rows.append({"cluster_id": "c1", "run_id": "r", "state_partition": HOME, "offset": offset, **raw})
    Tables(config).append("state_records", rows)
    about = {"cluster_id": "c1", "run_id": "r", "state_topic_id": STATE_TOPIC, "state_partition": HOME}
    Tables(config).append("export_ranges", [{**about, **each} for each in ranges])
    return config


def offsets(config: TablesConfig, span: tuple[int, int], state_topic_id: str | None = STATE_TOPIC) -> list[int] | None:
    cluster = replace(CLUSTER, state_topic_id=state_topic_id)
    kept = exported_between(config, cluster, frozenset([KEY]), {HOME: span})
    return None if kept is None else [place[1] for _, (place, _) in kept]


WHOLE = {"first_offset": 5, "last_offset": 9}


@pytest.mark.parametrize(
    ("ranges", "span", "found"),
    [
        ([WHOLE], (6, 9), [6, 7, 8]),
        ([{"first_offset": 5, "last_offset": 6}, {"first_offset": 7, "last_offset": 9}], (5, 10), [5, 6, 7, 8, 9]),
        ([WHOLE], (6, 11), None),
        ([{"first_offset": 5, "last_offset": 6}, {"first_offset": 8, "last_offset": 9}], (5, 10), None),
        ([WHOLE, {"gap_first": 10, "gap_last": 10}], (5, 10), [5, 6, 7, 8, 9]),
        ([WHOLE, {"first_offset": 11, "last_offset": 12, "offset_shift": 6}], (6, 9), None),
        ([], (6, 9), None),
    ],
)
def test_records_are_given_where_all_are_there(
    tmp_path: Path, ranges: list[dict[str, Any]], span: tuple[int, int], found: list[int] | None
) -> None:
    """Past the end of the export, in a gap or behind a break of the log the tables tell nothing."""
    assert offsets(tables(tmp_path, *ranges), span) == found


def test_other_records_tell_nothing(tmp_path: Path) -> None:
    """Nor do records of another state topic, records that cannot be decoded, or tables that are not there."""
    whole = tables(tmp_path / "whole", WHOLE)
    assert offsets(whole, (6, 9), "AQIDBAUGBwgJCgsMDQ4PFA") is None
    assert offsets(whole, (6, 9), None) is None
    assert offsets(tables(tmp_path / "damaged", WHOLE, value=b"\x00"), (6, 9)) is None
    assert offsets(TablesConfig(uri=str(tmp_path / "none")), (6, 9)) is None
