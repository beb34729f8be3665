"""Plans, their lives and the audit's check as the pages of resets have them, from tables that real changes left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest
from change.change_tables import a_journal, attempt, planned, unlocked

from acktrail.change.audit.audit_chain import AuditEntry, Event, audit_entry
from acktrail.change.lifecycle.plan_life import ChangeStatus
from acktrail.config import TablesConfig
from acktrail.errors import UnknownName
from acktrail.tables.delta.store import Tables
from acktrail_dashboard.lists import change_list
from acktrail_dashboard.lists.change_list import audit_check, plan_page, plan_story


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> TablesConfig:
    """A reset that was carried out, and a plan that somebody rejected."""
    root = tmp_path_factory.mktemp("changes")
    attempt(root, 1)
    plan = planned("2026000002")
    journal = a_journal(root, "2-plan")
    journal.write_plan(plan)
    rejection: AuditEntry = audit_entry(plan, 0, Event.REJECTED, detail={"note": "<b>not now</b>"})
    journal.note([rejection])
    return TablesConfig(uri=str(root))


def test_every_plan_is_on_a_page_with_how_it_stands(changed: TablesConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest first, each once; a number that no page has gives the nearest one."""
    page = plan_page(changed)
    assert {line.plan_id: line.standing for line in page.lines} == {"2026000001": "DONE", "2026000002": "REJECTED"}
    assert (page.at, page.count, page.total) == (1, 1, 2)
    monkeypatch.setattr(change_list, "PLANS_A_PAGE", 1)
    pages = [plan_page(changed, at=at) for at in (0, 2)]
    assert [found.at for found in pages] == [1, 2]
    assert plan_page(changed, at=9) == pages[1]
    assert [line.plan_id for found in pages for line in found.lines] == [line.plan_id for line in page.lines]


def test_one_plan_has_its_whole_life(changed: TablesConfig) -> None:
    """From the plan to the proof: notices, share partitions, every step of the audit, the outcome."""
    story = plan_story(changed, "2026000001")
    assert (story.standing, story.tone, story.plan_problem) == ("DONE", "ok", None)
    events = [step.event for step in story.steps]
    assert events[0] == "planned"
    assert events[-1] == "lease_released"
    assert {"lease_taken", "before_call", "after_call", "verified"} <= set(events)
    assert len(story.partitions) == story.row["partitions"] == len(story.executions)
    assert {tone for _, tone in story.executions} == {"ok"}
    rejected = plan_story(changed, "2026000002")
    assert [(each["decision"], each["why"]) for each in rejected.decisions] == [("reject", "<b>not now</b>")]
    with pytest.raises(UnknownName, match="2026000009"):
        plan_story(changed, "2026000009")


def test_every_standing_has_a_tone() -> None:
    """None that a later change adds is left without."""
    assert set(change_list._TONES) == set(ChangeStatus)


def test_an_audit_that_is_broken_is_shown_as_broken(tmp_path: Path) -> None:
    """Whole it is whole, with the number of its rows; one altered row breaks it, and the answer names the row."""
    config = TablesConfig(uri=str(tmp_path))
    assert audit_check(config).text == "nothing was changed yet"
    attempt(tmp_path, 1)
    whole = audit_check(config)
    assert (whole.is_whole, whole.flaws) == (True, ())
    assert whole.rows == len(Tables(config).read("reset_audit"))
    unlocked(tmp_path, "reset_audit").update(predicate="sequence = 2", updates={"actor": "'somebody else'"})
    broken = audit_check(config)
    assert broken.is_whole is False
    assert any("row 2" in flaw for flaw in broken.flaws)
    assert "broken at row 2" in broken.text


def test_a_stored_plan_that_was_edited_is_not_believed(tmp_path: Path) -> None:
    """Its page says that its hash is another, and shows no notice of it."""
    attempt(tmp_path, 1)
    config = TablesConfig(uri=str(tmp_path))
    (text,) = Tables(config).read("reset_plans", where=pc.field("plan_id") == "2026000001")["plan"].to_pylist()
    edited = text.replace('"reason": "', '"reason": "edited ', 1)
    assert edited != text
    plan, problem = change_list._parsed(edited, "2026000001")
    assert plan is None
    assert problem is not None
    assert "hash" in problem
    assert change_list._parsed("no json", "x")[1] == "plan x: is no JSON"


def test_tables_that_cannot_be_read_are_not_called_broken(tmp_path: Path) -> None:
    """Where the audit cannot be read at all, whether it is whole is not known."""
    attempt(tmp_path, 1)
    for file in (tmp_path / "reset_audit").glob("*.parquet"):
        file.unlink()
    found = audit_check(TablesConfig(uri=str(tmp_path)))
    assert (found.is_whole, found.flaws) == (None, ())
    assert found.text
    assert replace(found, is_whole=True) != found
