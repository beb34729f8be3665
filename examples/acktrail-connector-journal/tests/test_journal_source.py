"""The source keeps what every source promises, and reads what programs leave in folders."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path

from acktrail_connect.contract import SourceTaskContext
from acktrail_connect.source_testing import SourceSuite
from acktrail_connector_journal import journal_source
from acktrail_connector_journal.journal_source import JournalSource, JournalTask


class TestJournalSource(SourceSuite):
    """Everything that ``acktrail_connect.source_testing`` asks of a source."""

    connector_class = JournalSource
    poll_s = 0.0
    examples = 8

    def prepare(self) -> None:
        self.numbers = itertools.count()
        journal_source.LINES = 3

    def config(self) -> Mapping[str, str]:
        return {"folder": str(self.folder)}

    def write(self, count: int) -> None:
        """Five entries a file, of two shapes."""
        for number in itertools.islice(self.numbers, count):
            with (self.folder / f"{number // 5:04d}.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps({"number": number, **({"odd": True} if number % 2 else {})}) + "\n")


def test_half_a_line_is_waited_for(tmp_path: Path) -> None:
    """A line counts when its end is written, or when its writer has begun another file."""
    file, task = tmp_path / "a.jsonl", JournalTask(tmp_path, "t", bounded=True)
    file.write_text('{"a": 1}\n{"a"')
    task.start(SourceTaskContext())
    (batch,) = task.poll(0)
    assert batch.position == {"file": "a.jsonl", "line": 1}
    assert not task.poll(0)
    (tmp_path / "b.jsonl").write_text("")
    (rest,) = task.poll(0)
    assert rest.rows["t"]["unreadable"].to_pylist() == ['{"a"']
    task.stop()


def test_shapes_do_not_share_a_batch(tmp_path: Path) -> None:
    """What a sink may refuse does not take other rows along."""
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n{"a": 2}\n{"a": "x"}\n[1]\n{"a": {"b": 1}}\n')
    journal_source.LINES = 10
    task = JournalTask(tmp_path, "t", bounded=True)
    task.start(SourceTaskContext())
    assert [batch.rows["t"].num_rows for batch in task.poll(0)] == [2, 1, 1, 1]
    task.stop()
