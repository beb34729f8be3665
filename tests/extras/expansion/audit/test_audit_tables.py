"""What an audit writes stays true when looks are gone, and says what it cannot know; nothing is called a fence that is
none."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from extras.expansion.support.rows import BEGIN, MINUTE, SETTLE, Looks, applied_rows, audit, put

from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError
from acktrail.tables.delta.store import Tables
from acktrail.tables.upkeep.retention import drop_rows
from acktrail_expansion import STEP
from acktrail_expansion.audit.found_expansions import TopicExpansion, TopicLooks, find_expansions
from acktrail_expansion.audit.group_verdicts import destinations
from acktrail_expansion.ordering.order import FenceGap, NotProven

ASKED = [("t", 2, 4)]


def expanded() -> Looks:
    """From two to four partitions; the group is past both fences before it begins the new ones."""
    rows = Looks()
    rows.look(0, [10, 10], {0: 5, 1: 5})
    rows.look(1, [11, 12, 0, 0], {0: 6, 1: 5})
    rows.look(10, [20, 20, 4, 4], {0: 20, 1: 20})
    rows.look(11, [21, 21, 8, 8], {0: 21, 1: 21, 2: 3})
    rows.look(12, [21, 21, 9, 9], {0: 21, 1: 21, 2: 9})
    return rows


def contents(config: TablesConfig) -> list[list[dict[str, Any]]]:
    """Expansions, fences and verdicts."""
    names = ("partition_expansions", "expansion_fences", "expansion_verdicts")
    return [
        sorted(Tables(config).rows(name), key=lambda row: (row["topic_id"], row.get("partition"))) for name in names
    ]


def test_one_expansion_in_all_tables(tmp_path: Path) -> None:
    """R003-09, R003-01: an expansion, its fences, and what a group did, with the looks that prove it. The same looks
    again change nothing."""
    config = expanded().filled(tmp_path, ASKED)
    summary = audit(config)
    found = contents(config)
    [event], fences, [safe, idle] = found

    assert (event["sequence"], event["status"], event["is_single"]) == (1, "settled", True)
    assert (event["run_id"], event["key_mapping"]) == ("run-012.00", "murmur2")
    assert event["settles_at"] - event["first_seen_new_at"] == SETTLE
    assert [(row["fence_low"], row["fence_high"], row["reason"]) for row in fences] == [(10, 20, None)] * 2
    assert (safe["partition"], safe["verdict"], safe["evidence"], safe["source_partition"]) == (2, "safe", "commits", 0)
    assert (safe["source_shown_at"], safe["begun_at"]) == (BEGIN + 10 * MINUTE, BEGIN + 12 * MINUTE)
    assert (idle["partition"], idle["verdict"]) == (3, "safe"), "all is finished, whenever it begins"
    assert (summary["verdicts"], summary["expansions"]) == ({"safe": 2}, 1)
    audit(config)
    assert contents(config) == found


def test_only_what_acktrail_did_is_known_as_one_step(tmp_path: Path) -> None:
    """R003-02: without the audit of an apply that led from this count to that one, and was answered, another count can
    have been in between: nothing is safe. What an audit found stays found."""
    config = expanded().filled(tmp_path, [("t", 3, 4), ("u", 2, 4)])
    assert audit(config)["verdicts"] == {"not_proven": 2}
    [event], _, verdicts = contents(config)
    assert (event["is_single"], *(row["reason"] for row in verdicts)) == (False, *[NotProven.SEVERAL_EXPANSIONS] * 2)
    for row, verdict in zip(applied_rows(7, ASKED[0]), ("not_proven", "safe"), strict=True):
        put(Tables(config), "reset_audit", [row])
        assert audit(config)["verdicts"] == {verdict: 2}
    shutil.rmtree(Path(config.uri) / "reset_audit")
    assert audit(config)["verdicts"] == {"safe": 2}


def test_what_was_found_outlives_its_looks_unless_records_were_lost(tmp_path: Path) -> None:
    """R003-09: a look that is stored late shows that partition 0 lost records: neither its interval nor what keys show
    there counts any more. Partition 1 keeps both, the expansion its sequence, also when its looks are gone and the
    topic grows again."""
    config, late = expanded().filled(tmp_path, ASKED), Looks()
    audit(config)
    tables = Tables(config)
    put(tables, "expansion_fences", [row | {"fence_exact": 15} for row in contents(config)[1]], replaces=True)
    late.look(5, [12, 17, 1, 1], {})
    late.observations[0] |= {"leader_epoch": 4, "ended_epoch": 3, "epoch_end_offset": 7}
    later = Looks()
    later.look(20, [30, 30, 10, 10, 0, 0, 0], {0: 21})
    for looks, minute in ((late, 0), (Looks(), 11), (later, 11)):
        put(tables, "partition_observations", looks.observations)
        before, now = (int((BEGIN + each * MINUTE).timestamp() * 1_000) for each in (minute, 30))
        drop_rows(tables, "partition_observations", before, "r", now)
        audit(config)
        events, fences, _ = contents(config)
        numbers = ("fence_low", "fence_high", "fence_exact", "reason")
        kept = [[row[name] for name in numbers] for row in fences if row["event_id"] == events[0]["event_id"]]
        assert kept == [[None, None, None, FenceGap.TRUNCATED], [10, 17, 15, None]]
    assert [(row["sequence"], row["old_count"], row["new_count"]) for row in events] == [(1, 2, 4), (2, 4, 7)]


def test_tables_without_looks(tmp_path: Path) -> None:
    """Nothing observed and no topic described are one clear line each; a topic without an expansion leaves empty
    tables."""
    silent, plain = Looks(), Looks()
    silent.observations.append({"run_id": "r", "observed_at": BEGIN, "topic": "x", "error_code": 3})
    plain.look(0, [10, 10], {})
    with pytest.raises(ConfigurationError, match="no tables at"):
        audit(TablesConfig(uri=str(tmp_path / "empty")))
    with pytest.raises(ConfigurationError, match="no observation of topics"):
        audit(silent.filled(tmp_path / "silent"))
    config = plain.filled(tmp_path / "plain")
    assert audit(config)["verdicts"] == {}
    assert contents(config) == [[], [], []]


def test_looks_of_a_clock_that_was_ahead_stop_no_later_audit(tmp_path: Path) -> None:
    """Audits have the order of their commits. Once those looks are gone the next audit takes back what they showed, and
    the topic counts as looked at."""
    looks = expanded()
    config, ahead, tables = looks.filled(tmp_path, ASKED), Looks(), Tables(TablesConfig(uri=str(tmp_path)))
    found, step = audit(config), tables.transaction_version("partition_expansions", STEP)
    ahead.look(60 * 24 * 7, [90, 90, 90, 90, 0], {0: 80})
    put(tables, "partition_observations", ahead.observations)
    assert audit(config)["expansions"] == found["expansions"] + 1
    shutil.rmtree(Path(config.uri) / "partition_observations")
    put(tables, "partition_observations", looks.observations)
    assert audit(config) == found
    assert tables.transaction_version("partition_expansions", STEP) == step


BROKEN, NO_RECORD, EXPIRED = ("broken", None), ("not_proven", "no_record_known"), ("not_proven", "expired")


LEFT: list[tuple[list[bool | None], int, dict[str, int], tuple[str, str | None]]] = [
    ([True, True], 0, {}, BROKEN),
    ([True, True], 3, {}, EXPIRED),
    ([None, True], 0, {}, BROKEN),
    ([True, None], 0, {}, NO_RECORD),
    ([False, True], 0, {}, NO_RECORD),
    ([None, None], 0, {"last_record_offset": 7, "fence_exact": 10}, BROKEN),
    ([None, None], 0, {"last_record_offset": 4, "fence_exact": 10}, ("safe", None)),
    ([None, None], 0, {"fence_exact": 10}, NO_RECORD),
]
"""Of a topic each: whether looks say that offsets are records, the log's start, what keys show, and what is proven."""


def test_what_is_left_below_a_fence_may_be_no_record(tmp_path: Path) -> None:
    """R003-01: a group stands below the fence when it has begun with the new partition. The order is broken where looks
    say that each offset is a record's, or keys were read of one there, also when the retention took it later; and safe
    where the last record is before it. A position that follows the start of the log shows no beginning. Keys at risk
    stay with a verdict that names the same open records."""
    rows = Looks()
    for number, (is_gapless, start, _, _) in enumerate(LEFT):
        rows.topic_id = f"t{number}"
        rows.look(0, [10], {0: 5}, is_gapless=is_gapless[0])
        rows.look(1, [12, 0], {0: 6, 1: 0}, is_gapless=is_gapless[1])
        rows.look(10, [20, 4], {0: 6, 1: 3}, is_gapless=is_gapless[1], starts=[0, start])
        rows.look(20, [20, 4], {0: 6, 1: 3}, is_gapless=is_gapless[1], starts=[20, start])
    config = rows.filled(tmp_path)
    audit(config)
    _, fences, verdicts = contents(config)
    read = [own | fence for own, (_, _, fence, _) in zip(fences, LEFT, strict=True)]
    put(Tables(config), "expansion_fences", read, replaces=True)
    at_risk = [row | {"keys_at_risk": 2, "keys": []} for row in verdicts]
    put(Tables(config), "expansion_verdicts", at_risk, replaces=True)
    audit(config)

    for row, (*_, expected) in zip(contents(config)[2], LEFT, strict=True):
        assert (row["verdict"], row["reason"]) == expected, row
        assert row["keys_at_risk"] == (None if row["verdict"] == "safe" else 2)


def test_nothing_left_is_all_that_a_look_shows_of_a_share_group(tmp_path: Path) -> None:
    """Its start offset stands still. A lag of 0 proves, once producers know the count, and in an earlier look than one
    without a place in the new partition."""
    rows = Looks()
    for number, lags in enumerate(([5, 5, 0, 0], [5, 5, 1, 1], [5, 0, 1, 1], [5, 5, 9, 0])):
        rows.topic_id = f"t{number}"
        for minute, lag, ends in zip((0, 1, 10, 15), lags, ([10], [12, 0], [20, 4], [20, 4]), strict=True):
            rows.look(minute, ends, {})
            rows.place(minute + 0.01, "s", "share", [{"partition": 0, "position": 5, "lag": lag}])
    config = rows.filled(tmp_path)
    audit(config)

    assert [row["evidence"] for row in contents(config)[2]] == ["lag", None, None, None]


TICKS = 10
COLUMNS = ("log_end_offset", "leader_epoch", "ended_epoch", "epoch_end_offset")
GAP = FenceGap
Look = tuple[int, Sequence[int | None], str, int, tuple[int, int, int]]
"""Instant, log ends, consistency, how much later every broker had listed the topic, and epochs of partition 0."""


def look(at: int, *ends: int | None, said: str = "", later: int = 0, epochs: tuple[int, int, int] = (3, 2, 1)) -> Look:
    return at, ends, said or ("partial" if None in ends else "consistent"), later, epochs


def found(looks: Sequence[Look]) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    at = np.array([each[0] for each in looks])
    own = TopicLooks(
        topic="topic",
        newest_run="run",
        at=at,
        listed=at + [each[3] for each in looks],
        count=np.array([len(each[1]) for each in looks]),
        is_sound=np.array([each[2] != "straddles" for each in looks]),
        is_whole=np.array([each[2] == "consistent" for each in looks]),
        is_gapless=True,
    )
    logs = {("t", at): {0: dict(zip(COLUMNS, (ends[0], *epochs), strict=True))} for at, ends, _, _, epochs in looks}
    return list(find_expansions("c", {"t": own}, lambda _: logs, TICKS, ()))


OLD, STRADDLES = look(0, 5), look(5, 9, 0, said="straddles")


@pytest.mark.parametrize(
    ("looks", "settles_at", "fence"),
    [
        ([look(0, 4), look(3, 5), look(5, 9, 0), look(14, 9, 1), look(15, 12, 2), look(30, 20, 3)], 15, (5, 12, None)),
        ([look(0, 5, said="straddles"), look(5, 9, 0), look(20, 10, 1)], 15, (None, 10, GAP.NOT_SEEN_BEFORE)),
        ([OLD, look(5, 4, 0), look(20, 10, 1)], 15, (None, None, GAP.TRUNCATED)),
        ([OLD, look(2, None), look(5, 7, 0), look(20, None, 1), look(21, 12, 1)], 15, (5, 12, None)),
        ([OLD, look(5, 7, 0), look(20, None, 1)], 15, (5, None, GAP.NOT_SEEN_AFTER)),
        ([OLD, look(5, 7, 0)], 15, (5, None, GAP.SETTLING)),
        ([OLD, STRADDLES, look(15, 10, 1), look(25, 12, 2)], 25, (5, 12, None)),
        ([OLD, STRADDLES, look(15, 10, 1, later=2), look(25, 12, 2), look(27, 13, 2)], 27, (5, 13, None)),
        ([OLD, STRADDLES, look(50, 10, 1, said="straddles")], None, (5, None, GAP.SETTLING)),
        ([OLD, STRADDLES, look(15, 10, 1, 0)], 25, (5, None, GAP.SETTLING)),
        ([OLD, look(9, 9, 0, epochs=(4, 3, 8)), look(20, 12, 1, epochs=(4, 3, 8))], 19, (5, 12, None)),
        ([OLD, look(9, 9, 0, epochs=(4, 3, 4)), look(20, 12, 1, epochs=(4, 3, 4))], 19, (None, None, GAP.TRUNCATED)),
        ([OLD, look(9, 9, 0, epochs=(5, 4, 8)), look(20, 12, 1, epochs=(6, 3, 8))], 19, (5, 12, None)),
        ([OLD, look(9, 9, 0, epochs=(5, 4, 8))], 19, (None, None, GAP.LEADERS_CHANGED)),
        ([OLD, look(5, 9, 0), look(6, 10), look(8, 11, 0), look(20, 12, 1)], 15, (5, 12, None)),
    ],
)
def test_a_fence(looks: list[Look], settles_at: int | None, fence: tuple[Any, ...]) -> None:
    """R003-09: the low end is the last with the old count, the high one the first after the settle time, which begins
    when every broker has listed the new count, or a higher one. A look that straddles the change shows neither that
    nor a low end. Where the epochs show that records were lost, or may have been, there is none. A count that falls, by
    a broker with old metadata, changes nothing."""
    (row, [own]), *_ = found(looks)

    assert (row["old_count"], row["new_count"], row["settles_at"]) == (1, 2, settles_at)
    assert (own["fence_low"], own["fence_high"], own["reason"]) == fence
    is_settled = settles_at is not None and looks[-1][0] >= settles_at
    assert row["status"] == ("settled" if is_settled else "settling")


def test_two_expansions_are_more_than_each_of_them() -> None:
    """R003-02: from 4 to 6 to 9, hash 28 is in 0, then 4, then 1: partition 1 depends on 0 through 4, and no dependency
    of the second expansion says so."""
    rows = (
        {"old_count": old, "new_count": new, "key_mapping": "murmur2", "is_single": True}
        for old, new in ((4, 6), (6, 9))
    )
    own = [TopicExpansion(row=row, fences=[], is_gapless=True) for row in rows]
    [to] = [each for each in destinations(own) if (each.event, each.partition) == (1, 1)]

    assert (to.direct, to.earlier) == ([(1, 4)], [(0, 0), (0, 2), (0, 3)])
