"""The audit is a chain, and how a change stands follows from it alone."""

from __future__ import annotations

import datetime as dt
import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from change.change_tables import NOW, NOW_MS, STAMP, entry, lease, planned
from hypothesis import given
from hypothesis import strategies as st

from acktrail.change.audit import journal as journal_module
from acktrail.change.audit.audit_chain import (
    AuditEntry,
    AuditRow,
    Event,
    chained,
    check_chain,
    first_link,
)
from acktrail.change.audit.journal import Journal, read_audit
from acktrail.change.execution.attempt import Attempt
from acktrail.change.lifecycle.plan_life import ChangeStatus, Lease, blocking, standings
from acktrail.config import TablesConfig
from acktrail.errors import ChangeInProgress, ForeignCluster
from acktrail.kafka.changes import ChangeResult, Outcome


def rows_of(*entries: AuditEntry) -> list[AuditRow]:
    return chained(entries, STAMP, sequence=0, previous_hash=first_link("c1"))


def broken_at(rows: list[AuditRow], cluster_id: str = "c1") -> int | None:
    flaw = check_chain(rows, cluster_id)
    assert flaw is not None
    return flaw.sequence


texts = st.text(max_size=4)


@given(st.lists(st.tuples(st.sampled_from(Event), st.none() | texts, texts, texts), min_size=2, max_size=6), st.data())
def test_a_row_that_is_touched_breaks_the_chain(
    made: list[tuple[Event, str | None, str, str]], data: st.DataObject
) -> None:
    """Whole it is whole; any field changed, a row left out, doubled or swapped: broken at or before that row."""
    rows = rows_of(*(entry(e, o, group_id=g, detail={"text": t}) for e, o, g, t in made))
    assert check_chain(rows, "c1") is None
    assert check_chain(reversed(rows), "c1") is None
    at = data.draw(st.integers(0, len(rows) - 1))
    name = data.draw(st.sampled_from(sorted(rows[0].to_row())))
    old = getattr(rows[at], name)
    new = old + 1 if isinstance(old, int) else old + dt.timedelta(0, 1) if isinstance(old, dt.datetime) else f"{old}x"
    touched = [*rows[:at], replace(rows[at], **{name: new}), *rows[at + 1 :]]
    assert check_chain(touched, "c1") is not None
    if at < len(rows) - 1:
        assert broken_at([*rows[:at], *rows[at + 1 :]]) == at
    assert broken_at([*rows, rows[at]]) == at + 1
    assert broken_at(rows, "another") == 0


BEGUN = (lease(), entry(Event.BEFORE_CALL))


@pytest.mark.parametrize(
    ("entries", "standing"),
    [
        ((lease(),), ChangeStatus.STARTED),
        ((lease(), entry(Event.REFUSED), entry(Event.LEASE_RELEASED)), ChangeStatus.REFUSED),
        (BEGUN, ChangeStatus.UNKNOWN),
        ((*BEGUN, entry(Event.AFTER_CALL, "unknown")), ChangeStatus.UNKNOWN),
        ((*BEGUN, entry(Event.AFTER_CALL, "done")), ChangeStatus.UNVERIFIED),
        ((*BEGUN, entry(Event.AFTER_CALL, "partly")), ChangeStatus.UNVERIFIED),
        ((*BEGUN, entry(Event.AFTER_CALL, "refused")), ChangeStatus.FAILED),
        ((lease(), entry(Event.AFTER_CALL, "not_sent")), ChangeStatus.FAILED),
        ((*BEGUN, entry(Event.VERIFIED, "not_done")), ChangeStatus.FAILED),
        ((*BEGUN, entry(Event.AFTER_CALL, "done"), entry(Event.VERIFIED, "done")), ChangeStatus.DONE),
        ((*BEGUN, entry(Event.VERIFIED, "partly")), ChangeStatus.PARTLY),
        ((*BEGUN, entry(Event.VERIFIED, "overwritten")), ChangeStatus.OVERWRITTEN),
        ((*BEGUN, entry(Event.VERIFIED, "unknown")), ChangeStatus.UNKNOWN),
        ((*BEGUN, entry(Event.VERIFIED, "not_done"), lease(attempt=2)), ChangeStatus.STARTED),
    ],
)
@pytest.mark.parametrize("group_id", ["g", None])
def test_where_a_change_stands(entries: tuple[AuditEntry, ...], standing: ChangeStatus, group_id: str | None) -> None:
    """After every sequence of rows, also one that a killed process broke off; the newest attempt counts. A change that
    is about no group stands as that of a group."""
    (found,) = standings(rows_of(*(replace(one, group_id=group_id) for one in entries)))
    assert found.standing is standing
    later = found.at(NOW_MS + 3_600_000)
    assert later.standing is standing
    if found.lease is not None and standing in (ChangeStatus.UNKNOWN, ChangeStatus.STARTED, ChangeStatus.UNVERIFIED):
        assert found.at(NOW_MS).standing is ChangeStatus.RUNNING


def test_what_keeps_others_away() -> None:
    """A lease in force, or an outcome that nobody looked for, whoever holds it; nothing else does: not an outcome that
    verification could not find out, nor what others tried meanwhile."""
    for entries, blocks in (
        ((lease(),), True),
        ((lease(-1),), False),
        ((lease(-1), entry(Event.BEFORE_CALL)), True),
        ((lease(-1), entry(Event.BEFORE_CALL), entry(Event.AFTER_CALL, "done")), False),
        ((lease(), entry(Event.LEASE_RELEASED)), False),
        ((lease(), entry(Event.BEFORE_CALL), entry(Event.VERIFIED, "unknown"), entry(Event.LEASE_RELEASED)), False),
        ((lease(), entry(Event.BEFORE_CALL), entry(Event.LEASE_REFUSED, group_id=None, plan_id="p2")), True),
    ):
        found = standings(rows_of(*entries))
        assert (blocking(found, "g", plan_id="p2", now_ms=NOW_MS) is not None) is blocks, entries
        assert blocking(found, "other", plan_id="p2", now_ms=NOW_MS) is None


def test_a_plan_that_is_about_no_group_keeps_itself_away() -> None:
    """Its lease keeps a second process from the same plan, and nobody from another one."""
    found = standings(rows_of(replace(lease(), group_id=None)))
    assert blocking(found, "", plan_id=found[0].plan_id, now_ms=NOW_MS) is not None
    assert blocking(found, "", plan_id="another", now_ms=NOW_MS) is None


def journal(root: Path, cluster_id: str = "c1", clock: Any = lambda: NOW) -> Journal:
    return Journal(TablesConfig(uri=str(root)), cluster_id=cluster_id, run_id="r1", actor="ann", clock=clock)


def test_writers_that_overtake_each_other_keep_one_chain(tmp_path: Path) -> None:
    """Two journals on one table take turns: every row lands once, in one whole chain."""
    one, two = journal(tmp_path), journal(tmp_path)
    for number in range(3):
        one.note([entry(Event.BEFORE_CALL, detail={"n": number}), entry(Event.AFTER_CALL)])
        two.note([entry(Event.VERIFIED, detail={"n": number})])

    rows = read_audit(TablesConfig(uri=str(tmp_path)))
    assert [row.sequence for row in rows] == list(range(9))
    assert check_chain(two.audit(), "c1") is None
    with pytest.raises(ForeignCluster):
        journal(tmp_path, "c2").note([entry(Event.BEFORE_CALL)])


def test_files_are_put_together_while_others_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers that compact the table at every end of a change, side by side: every row lands once, in one chain."""
    monkeypatch.setattr(journal_module, "_SMALL_FILES", 1)
    journal(tmp_path).note([entry(Event.PLANNED)])

    def write(plan_id: str) -> None:
        mine = journal(tmp_path)
        for _ in range(4):
            mine.note([entry(Event.LEASE_RELEASED, plan_id=plan_id)])

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(write, f"p{number}") for number in range(3)]:
            done.result()
    rows = journal(tmp_path).audit()
    assert (len(rows), check_chain(rows, "c1")) == (13, None)


def test_one_change_of_a_group_at_a_time(tmp_path: Path) -> None:
    """Who comes second is told who has it; all groups of a plan are taken, or none."""
    first, second = journal(tmp_path), journal(tmp_path)
    first.take_lease([lease(group_id="a"), lease(group_id="b")])
    with pytest.raises(ChangeInProgress, match="'b'") as caught:
        second.take_lease([lease(plan_id="p2", group_id="c"), lease(plan_id="p2", group_id="b")])
    assert "process 7" in caught.value.hint
    *leases, kept_out = first.audit()
    assert {row.group_id for row in leases} == {"a", "b"}
    assert (kept_out.event, kept_out.plan_id, kept_out.actor) == (Event.LEASE_REFUSED, "p2", "ann")
    assert json.loads(kept_out.detail)["kept_by"] == "p1"
    assert {found.plan_id for found in first.standings()} == {"p1"}
    first.note([entry(Event.LEASE_RELEASED, group_id="b")])
    second.take_lease([lease(plan_id="p2", group_id="b")])
    late = journal(tmp_path, clock=lambda: NOW + dt.timedelta(hours=1))
    late.take_lease([lease(plan_id="p3", group_id="a")])
    first.note([entry(Event.BEFORE_CALL, plan_id="p2", group_id="b")])
    with pytest.raises(ChangeInProgress) as unknown:
        late.take_lease([lease(plan_id="p3", group_id="b")])
    assert "acktrail change verify p2" in unknown.value.hint


def test_a_lease_of_another_machine_is_held_until_it_ends() -> None:
    """Whether a process lives can only be seen where it runs: elsewhere the clock alone ends its lease."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    there, here = (Lease(expires_at_ms=NOW_MS, host=host, pid=gone.pid) for host in ("elsewhere", socket.gethostname()))
    assert [there.is_held(NOW_MS - 1), there.is_held(NOW_MS)] == [True, False]
    assert not here.is_held(NOW_MS - 1)
    assert replace(here, pid=os.getpid()).is_held(NOW_MS - 1)


def test_a_group_that_is_not_reached_says_why(tmp_path: Path) -> None:
    """A process that slept longer than its leases last sends nothing more; else a group that failed keeps those after
    it from being sent."""
    plan, now = planned("2026-lease"), [dt.datetime(2026, 1, 31, tzinfo=dt.UTC)]
    for groups, naps, wanted in ((["a", "b"], 300, "its lease was over"), (["c", "d"], 0, "a group before it")):
        journal = Journal(
            TablesConfig(uri=str(tmp_path)), cluster_id="c1", run_id="r1", actor="ann", clock=lambda: now[0]
        )
        attempt = Attempt(journal, plan, groups)

        def call(group_id: str, naps: int = naps) -> list[ChangeResult]:
            now[0] += dt.timedelta(seconds=naps)
            outcome = Outcome.DONE if naps else Outcome.REFUSED
            return [ChangeResult(group_id=group_id, topic=None, partition=None, outcome=outcome)]

        with attempt.take_leases():
            done = attempt.send(groups, call, 1_000, goes_on=False)
        assert [*done.not_sent] == groups[1:]
        assert wanted in done.not_sent[groups[1]]


def test_groups_that_are_given_up_are_noted_at_once_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its own reason, in one commit: the leases of the others run meanwhile."""
    kept, names, noted = journal(tmp_path), [f"g{number}" for number in range(9)], list[Any]()
    attempt = Attempt(kept, planned("2026-given-up"), ["first", *names])
    with attempt.take_leases():
        monkeypatch.setattr(kept, "note", noted.append)
        attempt.give_up({name: {"moved": name} for name in names})
    (rows,) = noted
    assert [(of.event, of.group_id, of.detail) for of in rows[:9]] == [
        (Event.REFUSED, name, {"moved": name}) for name in names
    ]
    assert [(of.event, of.group_id) for of in rows[9:]] == [(Event.LEASE_RELEASED, name) for name in names]
