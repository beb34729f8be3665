"""Verdicts by state records rest on delivery states, at the record that shows work in the destination."""

from __future__ import annotations

from itertools import starmap
from typing import Any

import pytest
from definitions.status_history import History
from jobs.world import batch, snapshot, update

from acktrail.model.records import StateRecord
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail.model.status_changes import StatusChange
from acktrail_expansion.law.order import Judged, NotProven, OrderVerdict, SourceFence
from acktrail_expansion.law.share_order import judge_by_records, placed_at

V, N = OrderVerdict, NotProven
SOURCE, TO = (SharePartition(group_id=GroupId("g"), topic_id=TopicId("t"), partition=each) for each in (0, 2))
ACK = 2


class Log:
    """State records of a source and of a destination, on one state partition or on two, a second apart."""

    def __init__(self, *, is_apart: bool = False) -> None:
        self._histories = {SOURCE: History(0, {})}
        self._histories[TO] = History(1, {}) if is_apart else self._histories[SOURCE]
        self._at = 0
        self.changes: dict[SharePartition, list[StatusChange]] = {SOURCE: [], TO: []}

    def _put(self, record: StateRecord, wait_ms: int = 0) -> Log:
        self._at += 1
        at = self._at * 10, wait_ms + self._at * 1_000
        self.changes[record.key] += self._histories[record.key].record(record, offset=at[0], timestamp_ms=at[1])
        return self

    def begin(self, key: SharePartition, start: int | None = None, *, epoch: int = 0) -> Log:
        """An initialization, or with another epoch a reset."""
        return self._put(snapshot(key, start, snapshot_epoch=epoch, state_epoch=epoch, leader_epoch=0))

    def update(self, key: SharePartition, start: int, *batches: tuple[int, int, int], ms: int = 0) -> Log:
        return self._put(update(key, start, 0, tuple(starmap(batch, batches))), ms)

    def gap(self) -> Log:
        """Records that were not exported."""
        self._at += 1
        for history in {*self._histories.values()}:
            for change in history.gap(self._at * 10):
                self.changes[change.key].append(change)
        return self

    def judged(self, low: int | None = 60, high: int | None = 60, **more: Any) -> Judged:
        source = SourceFence(partition=0, low=low, high=high, **{"is_gapless": True, **more})
        return judge_by_records(self.changes[TO], (0, 0), self.changes[SOURCE], source)


def both(*, is_apart: bool = False) -> Log:
    return Log(is_apart=is_apart).begin(SOURCE).begin(TO)


def test_a_lazy_start_offset_is_no_progress() -> None:
    """R003-01: offsets 0 to 59 are acknowledged, and the start offset stands at 26 for good: safe, with both state
    records. One that was not acknowledged then is broken, with the offset, also when it is acknowledged later; neither
    once the group is reset."""
    drained = both().update(SOURCE, 0, (0, 25, ACK)).update(SOURCE, 26, (26, 59, ACK)).update(TO, 0, (0, 4, ACK))
    held = both().update(SOURCE, 0, (0, 25, ACK), (27, 59, ACK)).update(TO, 0, (0, 4, ACK))
    held.update(SOURCE, 0, (26, 26, ACK))

    safe, broken = drained.judged(), held.judged()
    assert (safe.verdict, safe.evidence) == (V.SAFE, "state_records")
    assert (safe.source_state_offset, safe.begun_state_offset) == (40, 50)
    assert (broken.verdict, broken.source_offset, broken.open_records) == (V.BROKEN, 26, 1)
    assert held.judged(is_gapless=False).reason is N.NO_RECORD_KNOWN
    assert held.begin(SOURCE, 0, epoch=7).judged().reason is N.RESET


@pytest.mark.parametrize(("wait_ms", "verdict"), [(0, V.NOT_PROVEN), (3_000, V.NOT_PROVEN), (9_000, V.SAFE)])
def test_two_state_partitions_are_ordered_by_clocks_alone(wait_ms: int, verdict: OrderVerdict) -> None:
    """Five seconds count as the same moment: neither safe nor broken."""
    log = both(is_apart=True).update(SOURCE, 0, (0, 59, ACK)).update(TO, 0, (0, 0, ACK), ms=wait_ms)
    late = both(is_apart=True).update(SOURCE, 0, (0, 0, ACK)).update(TO, 0, (0, 0, ACK))
    late.update(SOURCE, 0, (1, 59, ACK), ms=wait_ms)

    assert log.judged().verdict is verdict
    assert late.judged().verdict is (V.BROKEN if verdict is V.SAFE else V.NOT_PROVEN)


def test_a_gap_blinds_until_the_next_snapshot_of_the_share_partition() -> None:
    """Records that are missing before a snapshot of either share partition take nothing away; after it nothing is
    known, but what an update names. What was open later, with the destination begun, was open when it began."""
    before = both().gap().begin(SOURCE, 0, epoch=5).begin(TO, 0, epoch=5).update(SOURCE, 0, (0, 59, ACK))
    after = both().update(SOURCE, 0, (0, 59, ACK)).gap().update(TO, 0, (0, 0, ACK))
    held = both().gap().update(TO, 0, (0, 0, ACK)).update(SOURCE, 0, (3, 3, 0)).update(TO, 0, (1, 1, ACK))

    assert before.judged().reason is N.NOT_BEGUN
    assert before.update(TO, 0, (0, 0, ACK)).judged().verdict is V.SAFE
    assert after.judged().reason is N.NOT_RECORDED
    assert held.judged().verdict is V.NOT_PROVEN
    held.changes[TO] = [each for each in held.changes[TO] if each.at.offset != 40]
    assert held.judged().verdict is V.BROKEN, "its first record may be missing"


def test_where_a_share_partition_was_placed() -> None:
    """KAFKA-20742: by its first start offset, unless a record before it is missing, or it was reset."""
    logs = (both(), both(), both().gap(), both().begin(TO, 7, epoch=2))
    placed = [
        placed_at(log.update(TO, start, (7, 8, ACK)).changes[TO]) for log, start in zip(logs, (7, 0, 7, 7), strict=True)
    ]
    assert [each and (each[0], each[1].offset) for each in placed] == [(7, 30), None, None, None]
