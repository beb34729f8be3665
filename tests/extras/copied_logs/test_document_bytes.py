"""Every kind of record, typed byte by byte from the document that has it, and not by an encoder of ours."""

from __future__ import annotations

from typing import Any

import pytest
from samples.golden_vectors import GOLDEN, typed, typed_vectors

from acktrail.format.wire.raw_record import RawRecord, decode_with
from acktrail_copied_logs.copied_files import dialect_named
from acktrail_copied_logs.drafts.draft_dialects import DRAFTS
from acktrail_copied_logs.replay_files import record_json
from acktrail_simulation.drafts.record_encoders import encode_in


@pytest.mark.parametrize("vector", typed_vectors(GOLDEN / "document_records.toml"), ids=lambda vector: vector["name"])
def test_typed_records(vector: dict[str, Any]) -> None:
    """R000-13, R000-25 to R000-28, R000-37, R000-45, R000-47, R000-51, R000-64, R001-02, R001-07, R001-38, R002-08,
    R002-09, R002-75, R002-76: a record's bytes are read as the document says, field by field; written again they are
    the same, so that what the simulation and our tests write is what the document has."""
    key, value = typed(vector["key"]), typed(vector["value"]) if "value" in vector else None
    dialect = dialect_named(vector["dialect"])
    raw = RawRecord(state_partition=0, offset=0, timestamp_ms=0, key=key, value=value)
    addressed = decode_with(dialect.decode, raw)
    form = record_json(addressed, dialect)

    assert {name: form.get(name) for name in vector["says"]} == vector["says"]
    assert (getattr(addressed.record, "start_offset", 0) is None) == (vector["says"].get("start_offset") == -1)
    if vector["dialect"] in DRAFTS:
        assert encode_in(vector["dialect"], addressed.record) == (key, value)
    else:
        assert dialect.encode is not None
        assert dialect.encode(addressed.record) == (key, value)
