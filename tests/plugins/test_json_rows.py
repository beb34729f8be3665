"""Rows of any columns become JSON that has the same values."""

from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail_plugins.topic.topic_sink import json_rows

UTC = dt.UTC
DAY = dt.datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.timestamp("us", tz="UTC"), DAY, "2026-01-02T03:04:05.678901Z"),
        (pa.timestamp("ms", tz="Europe/Berlin"), DAY.replace(microsecond=1_000), "2026-01-02T03:04:05.001000Z"),
        (pa.timestamp("us"), DAY.replace(tzinfo=None), "2026-01-02T03:04:05.678901"),
        (pa.date32(), dt.date(2026, 1, 2), "2026-01-02"),
        (pa.binary(), b"\x00\xff", base64.b64encode(b"\x00\xff").decode()),
        (pa.binary_view(), b"\x00", "AA=="),
        (pa.binary(2), b"ab", "YWI="),
        (pa.int64(), 2**62 + 1, 2**62 + 1),
        (pa.uint64(), 2**64 - 1, 2**64 - 1),
        (pa.decimal128(38, 2), Decimal("12345678901234567890.12"), "12345678901234567890.12"),
        (pa.float64(), float("nan"), "NaN"),
        (pa.float32(), float("-inf"), "-Infinity"),
        (pa.float64(), 1.5, 1.5),
        (pa.bool_(), True, True),
        (pa.string(), "ü\u2028😀\x00", "ü\u2028😀\x00"),
        (pa.list_(pa.binary()), [b"a", None], ["YQ==", None]),
        (pa.large_list(pa.int32()), [], []),
        (pa.list_(pa.int8(), 2), [1, 2], [1, 2]),
        (pa.struct([("at", pa.timestamp("s", tz="UTC"))]), {"at": DAY}, {"at": "2026-01-02T03:04:05Z"}),
        (pa.map_(pa.string(), pa.timestamp("s", tz="UTC")), [("k", DAY)], {"k": "2026-01-02T03:04:05Z"}),
        (pa.dictionary(pa.int32(), pa.string()), "x", "x"),
    ],
)
def test_each_type_has_its_json(kind: pa.DataType, value: Any, expected: Any) -> None:
    """A value, and a null before and behind it, in a table and in a slice of one; what is written is strict JSON."""
    column = pa.array([None, value, None, value], kind)
    for rows in (pa.table({"c": column}), pa.table({"c": pa.array([None], kind)}), pa.table({"c": column.slice(1)})):
        found = [row["c"] for row in json_rows(rows)]
        assert found == [None if each is None else expected for each in rows["c"].to_pylist()]
        assert json.loads(json.dumps(found, allow_nan=False)) == found


@given(st.lists(st.lists(st.none() | st.lists(st.none() | st.integers(-(2**62), 2**62)))))
def test_nested_lists_keep_their_shape(values: list[Any]) -> None:
    """Lists in lists, with nulls and empty ones anywhere, in several chunks."""
    kind = pa.list_(pa.list_(pa.int64()))
    column = pa.chunked_array([pa.array(values, kind), pa.array([None, []], kind)])
    assert [row["c"] for row in json_rows(pa.table({"c": column}))] == [*values, None, []]
