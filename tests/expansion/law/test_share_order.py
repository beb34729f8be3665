"""Verdicts by state records are those of the replayed states, at the record that shows work in the destination."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples.coordinator_random_logs import KEYS, coordinator_logs

from acktrail.model.delivery import DeliveryState, StateBatch
from acktrail.model.offset_history.offset_status import OffsetStatusKind, StatusRange, status_ranges
from acktrail.model.offset_history.status_changes import History, StatusChange
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord
from acktrail.model.replay import replay
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail_expansion.law.order import Judged
from acktrail_expansion.law.share_order import ShareSource, judge_by_records, open_at, placed_at
from acktrail_expansion.law.verdict import NotProven, OrderVerdict

V, N = OrderVerdict, NotProven
END = 12
FINAL = {int(DeliveryState.ACKNOWLEDGED), int(DeliveryState.ARCHIVED), int(DeliveryState.ARCHIVING)}
UNKNOWN = {OffsetStatusKind.UNKNOWN, OffsetStatusKind.ABSENT, OffsetStatusKind.UNINITIALIZED}
SOURCE, TO = (SharePartition(group_id=GroupId("g"), topic_id=TopicId("t"), partition=each) for each in (0, 2))
ACK = 2


def counted(ranges: Sequence[StatusRange]) -> tuple[list[int], bool]:
    """The offsets below `END` that could be delivered, and whether some are unknown, one by one."""
    every = [next(own.status for own in ranges if own.first_offset <= n <= own.last_offset) for n in range(END)]
    kinds = [each.kind for each in every]
    is_open = [
        each.kind is OffsetStatusKind.UNRECORDED
        or (each.kind is OffsetStatusKind.RECORDED and each.delivery_state not in FINAL)
        for each in every
    ]
    return [n for n in range(END) if is_open[n]], bool(UNKNOWN & {*kinds})


@given(coordinator_logs(), st.integers(0, 30))
def test_open_offsets_are_those_of_the_replayed_state(log: Sequence[StateRecord], last: int) -> None:
    """At any record, whatever resets, snapshots and deletions came before."""
    history = History(3, {})
    own = [c for at, record in enumerate(log) for c in history.record(record, offset=at, timestamp_ms=at) if at <= last]
    states = replay(log[: last + 1])
    for key in KEYS:
        state, found = states.get(key), open_at([each for each in own if each.key == key], END)
        expected = counted(status_ranges(OffsetStatusKind.ABSENT if state is None else state))
        offsets = [n for first, end, _ in found.ranges for n in range(first, end + 1)]
        assert (offsets, found.has_unknown) == expected


class Log:
    """State records of a source and of a destination, on one state partition or on two, a second apart."""

    def __init__(self, *, is_apart: bool = False) -> None:
        self._histories = {SOURCE: History(0, {})}
        self._histories[TO] = History(1, {}) if is_apart else self._histories[SOURCE]
        self._at = 0
        self.changes: dict[SharePartition, list[StatusChange]] = {SOURCE: [], TO: []}

    def _put(self, record: StateRecord, wait_ms: int) -> Log:
        self._at += 1
        at = self._at * 10, wait_ms + self._at * 1_000
        self.changes[record.key] += self._histories[record.key].record(record, offset=at[0], timestamp_ms=at[1])
        return self

    def begin(self, key: SharePartition, start: int | None = None, *, epoch: int = 0, ms: int = 0) -> Log:
        """An initialization, or with another epoch a reset."""
        record = ShareSnapshot(
            key=key, snapshot_epoch=epoch, state_epoch=epoch, leader_epoch=0, start_offset=start, batches=(),
            delivery_complete_count=None, create_timestamp_ms=1, write_timestamp_ms=1,
        )  # fmt: skip
        return self._put(record, ms)

    def update(self, key: SharePartition, start: int | None, *batches: tuple[int, int, int], ms: int = 0) -> Log:
        own = tuple(
            StateBatch(first_offset=a, last_offset=b, delivery_state=c, delivery_count=1) for a, b, c in batches
        )
        record = ShareUpdate(
            key=key, snapshot_epoch=0, leader_epoch=1, start_offset=start, batches=own, delivery_complete_count=None
        )
        return self._put(record, ms)

    def gap(self, ms: int = 0) -> Log:
        """Records that were not exported."""
        self._at += 1
        for history in {id(each): each for each in self._histories.values()}.values():
            for change in history.gap(self._at * 10):
                self.changes[change.key].append(change)
        return self

    def judged(self, low: int | None = 60, high: int | None = 60, **more: Any) -> Judged:
        source = ShareSource(partition=0, low=low, high=high, **{"is_gapless": True, **more})
        return judge_by_records(self.changes[TO], (0, 0), self.changes[SOURCE], source)


def both(*, is_apart: bool = False) -> Log:
    return Log(is_apart=is_apart).begin(SOURCE).begin(TO)


def test_a_lazy_start_offset_is_no_progress() -> None:
    """R003-01: offsets 0 to 59 are acknowledged, and the start offset stands at 26 for good: safe, with both state
    records. One that was not acknowledged then is broken, with the offset, also when it is acknowledged later."""
    drained = both().update(SOURCE, 0, (0, 25, ACK)).update(SOURCE, 26, (26, 59, ACK)).update(TO, 0, (0, 4, ACK))
    held = (
        both()
        .update(SOURCE, 0, (0, 25, ACK), (27, 59, ACK))
        .update(TO, 0, (0, 4, ACK))
        .update(SOURCE, 0, (26, 26, ACK))
    )

    safe, broken = drained.judged(), held.judged()
    assert (safe.verdict, safe.evidence, safe.source_record, safe.begun_record) == (
        *(V.SAFE, "state_records"),
        *((0, 40), (0, 50)),
    )
    assert (broken.verdict, broken.first_open, broken.open_records) == (V.BROKEN, 26, 1)


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

    assert before.update(TO, 0, (0, 0, ACK)).judged().verdict is V.SAFE
    assert after.judged().reason is N.NOT_RECORDED
    assert held.judged().verdict is V.NOT_PROVEN
    held.changes[TO] = [each for each in held.changes[TO] if each.at.offset != 40]
    assert held.judged().verdict is V.BROKEN, "its first record may be missing"


def test_a_reset_that_a_gap_may_hide_breaks_no_order() -> None:
    """What is open after a gap close to the beginning may have been finished, and set back, before it was begun."""
    log = both(is_apart=True).update(SOURCE, 0, (0, 59, ACK)).update(TO, 0, (0, 0, ACK)).gap().begin(SOURCE, 0, epoch=9)

    assert log.judged().reason is N.NOT_RECORDED


def test_reasons() -> None:
    """R003-01: why nothing is proven."""
    begun = both().update(SOURCE, 0, (0, 49, ACK)).update(TO, 0, (0, 0, ACK))
    assert begun.judged(low=None).reason is N.NO_FENCE
    assert begun.judged(low=50, high=60).reason is N.BETWEEN_FENCES
    assert begun.judged(is_gapless=False).reason is N.NO_RECORD_KNOWN
    assert begun.judged(is_gapless=False, last_record=55).verdict is V.BROKEN
    assert both().update(SOURCE, 0, (0, 59, ACK)).judged().reason is N.NOT_BEGUN
    assert begun.begin(SOURCE, 0, epoch=7).judged().reason is N.RESET
    again = both().update(TO, 0, (0, 9, ACK)).update(SOURCE, 0, (0, 59, ACK)).begin(TO, 5, epoch=7)
    assert again.update(TO, 5, (6, 6, ACK)).judged().reason is N.RESET, "offsets 0 to 4 are not delivered again"
    fresh = both().update(TO, 0, (0, 9, ACK)).update(SOURCE, 0, (0, 59, ACK)).begin(TO, 0, epoch=7)
    assert fresh.update(TO, 0, (0, 0, ACK)).judged().verdict is V.SAFE


def test_where_a_share_partition_was_placed() -> None:
    """KAFKA-20742: by its first start offset, unless a record before it is missing, or it was reset."""
    latest = both().update(TO, 7, (7, 8, ACK))
    placed = placed_at(latest.changes[TO])
    assert placed is not None
    assert (placed[0], placed[1].offset) == (7, 30)
    for log in (
        both().update(TO, 0, (0, 0, ACK)),
        both().gap().update(TO, 7, (7, 8, ACK)),
        both().begin(TO, 7, epoch=2),
    ):
        assert placed_at(log.changes[TO]) is None
