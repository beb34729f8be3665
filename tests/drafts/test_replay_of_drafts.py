"""``acktrail record replay`` on what the drafts' leaders and coordinators leave in their logs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from drafts.random_walks import CheckpointWalk, ControlWalk
from drivers.command_line import run
from samples.dump_lines import dump_line

from acktrail.format.wire.raw_record import RawRecord
from acktrail_simulation.drafts.record_encoders import encode_in

LIVES: dict[str, Any] = {
    "ii": lambda source: ControlWalk(source, chained=True),
    "i": lambda source: ControlWalk(source, chained=False),
    "iii": CheckpointWalk,
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dialect", LIVES)
def test_draft_logs_replay_to_what_was_acknowledged(
    dialect: str, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R000-14, R000-44, R000-58, R001-38: after crashes, cleanings, compactions, roll-overs and removals the bytes that
    are left replay to what was done to every offset, whatever was written about it and is gone."""
    life = LIVES[dialect](random.Random(seed))
    for _ in range(120):
        life.step()
    log = (life.leader if dialect != "iii" else life.coordinator).log
    file = tmp_path / "log.jsonl"
    with file.open("w", encoding="utf-8") as lines:
        for placed in log.records:
            key, value = encode_in(dialect, placed.record)
            raw = RawRecord(state_partition=0, offset=placed.offset, timestamp_ms=5, key=key, value=value)
            lines.write(dump_line(raw) + "\n")

    states = {row["group"]: row for row in run(capsys, "record", "replay", "--dialect", dialect, file).rows}
    truth = {getattr(key, "group_id", key): told for key, told in life.truth.told().items()}
    assert truth
    for group, (start, offsets) in truth.items():
        assert states[group]["start_offset"] == start
        batches = states[group]["batches"]
        assert {o: (state, count) for first, last, state, count in batches for o in range(first, last + 1)} == offsets
