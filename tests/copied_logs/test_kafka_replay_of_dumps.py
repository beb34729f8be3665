"""What each release wrote, replayed as the release's own classes replay it."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivers.command_line import run
from oracle.kafka_states import assert_equal, by_key, kafkas_answers
from samples.dump_lines import dump_line
from servers.real_broker import releases

from acktrail_copied_logs.copied_files import read_dump
from acktrail_copied_logs.log_segment import ReadReport
from acktrail_copied_logs.replay_files import replay_sorted
from acktrail_embedded.kafka.installation import RELEASES

pytestmark = pytest.mark.broker

RECORDED = Path(__file__).parents[1] / "support/golden/state_topic"


@pytest.mark.parametrize("version", releases("4.4.0", *sorted(RELEASES.keys() - {"4.4.0"})))
def test_what_a_real_broker_wrote(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a dump that a broker of each release wrote, `acktrail record replay` and the sweep over all share partitions
    (which it takes for large dumps) give what the release's own classes give: of the log as it was at many a moment,
    and of what pruning would leave, where updates stand without a snapshot."""
    records = list(read_dump(RECORDED / f"{version}.jsonl.gz"))
    end = max(record.offset for record in records)
    cuts = range(3, end, max(1, end // 9))
    windows = [(0, end), *((0, last) for last in cuts), *((first, end) for first in cuts)]
    dumps = [[dump_line(r) for r in records if first <= r.offset <= last] for first, last in windows]
    theirs = kafkas_answers(dumps, version, tmp_path)

    assert len(records) > 100
    for number, dump in enumerate(dumps):
        file = tmp_path / f"{number}.jsonl"
        file.write_text("".join(line + "\n" for line in dump), encoding="utf-8")
        swept = replay_sorted([file], ReadReport())
        assert swept is not None
        assert_equal(by_key(run(capsys, "record", "replay", file).rows), by_key(theirs[number]))
        assert_equal(by_key([*swept[0].states]), by_key(theirs[number]))
    assert len(theirs) == len(dumps)
    assert {batch[2] for states in theirs for state in states for batch in state["batches"]} == {0, 2, 4}
    assert max(len(state["batches"]) for states in theirs for state in states) > 10
