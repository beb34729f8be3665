"""Files of drafts: where their records lie, and what does not take them."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivers.command_line import run
from samples.dump_lines import dump_line
from samples.golden_vectors import wire
from state_topics.segment_bytes import CONTROL, batch

from acktrail.format.wire.raw_record import RawRecord


def record(offset: int, key: str, value: str) -> RawRecord:
    return RawRecord(state_partition=5, offset=offset, timestamp_ms=0, key=wire(key), value=wire(value))


def test_control_batches_of_the_drafts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R000-45, R001-02: drafts i and ii lie in control batches of the user's topic; then these are read, and the
    user's records are not."""
    records = [record(4, "W-i-cp-key", "W-i-cp-value"), record(6, "W-i-delta-key", "W-ii-delta-value")]
    users = [record(offset, "W-4x-snapshot-key", "W-42-snapshot-value") for offset in range(4)]
    folder = tmp_path / "orders-5"
    folder.mkdir()
    file = folder / "00.log"
    parts = [batch(users), batch(records[:1], attributes=CONTROL), batch(records[1:], attributes=CONTROL)]
    file.write_bytes(b"".join(parts))

    done = run(capsys, "record", "decode", "--dialect", "ii", file)

    assert [(row["type"], row["offset"], row["partition"]) for row in done.rows] == [
        ("checkpoint", 4, 5),
        ("delta", 6, 5),
    ]


def test_the_tables_take_no_drafts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They have no columns for them."""
    file = tmp_path / "later.jsonl"
    file.write_text(dump_line(record(1, "W-4x-snapshot-key", "W-42-snapshot-value")) + "\n")

    done = run(capsys, "tables", "import", file, "--tables", tmp_path / "iv", "--cluster", "c1", "--dialect", "iv")

    assert "never shipped" in done.complaint(2)
