"""``acktrail expand show``: what the newest audit found, for people and programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivers.command_line import Done, run
from expansion.support.rows import SETTLING, STRANGE, TROUBLE, rows_of, write_rows

from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line an expansion, the worst first; of one its verdicts in words, the worst first, with what is not seen beside
    `safe`, fences, what is not certain. Names move no cursor. Without an audit, and of an unknown id, that is said."""

    def show(*words: str) -> Done:
        return run(capsys, "expand", "show", *words, "--tables", str(tmp_path))

    assert "acktrail expand check" in show().stdout
    write_rows(Tables(TablesConfig(uri=str(tmp_path))), rows_of(SETTLING, TROUBLE, STRANGE))
    lines = show().stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        "TOPIC",
        "orders",
        "clicks",
        "<script>document.title='owned'</script>",
    ]
    assert "1 order broken, 1 first records skipped, 1 not proven, 2 safe" in lines[1]
    first, *_ = show("--json").rows
    assert (first["skipped_records"], first["first_seen_new_at"]) == (624, "2026-11-22T22:04:05Z")

    worst = show(TROUBLE.event_id).stdout.splitlines()[1]
    assert worst.startswith("order broken: share group fraud-scoring: Partition 2 was begun with 58 records of")
    unclear = show(SETTLING.event_id).stdout
    assert "not certain: Whether the topic grew in one step" in unclear
    (form,) = show(SETTLING.event_id, "--json").rows
    assert [fence["fence_high"] for fence in form["fences"]] == [None, None]
    assert {(row["group_id"], row["reason"]) for row in form["verdicts"]} == {("warehouse", "no_fence")}
    strange = show(STRANGE.event_id).stdout
    assert all(line.isprintable() for line in strange.splitlines())
    assert (strange.count("Not seen: work that was not committed"), strange.count("5990")) == (8, 1)
    assert "unknown expansion 'x'" in show("x").complaint(2)
