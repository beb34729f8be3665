"""Plans, their lives and the audit's check as the pages of changes have them, from tables that real changes left."""

from __future__ import annotations

from pathlib import Path

import pytest
from change.scenes import a_journal, attempt, planned, unlocked

from acktrail.change.audit.audit_chain import AuditEntry, Event, audit_entry
from acktrail.change.lifecycle.plan_life import ChangeStatus
from acktrail.config import TablesConfig
from acktrail.errors import UnknownName
from acktrail.tables.delta.store import Tables
from acktrail_dashboard.web.pages.changes import STANDING_TONES, audit_check, plan_page, plan_story


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


def test_every_plan_is_on_a_page_with_how_it_stands(changed: TablesConfig) -> None:
    """Each once. Every standing has a tone."""
    found = plan_page(changed, 1)["plans"]
    assert {row["plan_id"]: row["standing"] for row in found} == {"2026000001": "DONE", "2026000002": "REJECTED"}
    assert set(STANDING_TONES) == set(ChangeStatus)


def test_one_plan_has_its_whole_life(changed: TablesConfig) -> None:
    """From the plan to the proof: notices, share partitions, every step of the audit, the outcome."""
    story = plan_story(changed, "2026000001")
    assert (story["status"]["standing"], story["plan_problem"]) == ("DONE", None)
    events = [step["event"] for step in story["steps"]]
    assert (events[0], events[-1]) == ("planned", "lease_released")
    assert {"lease_taken", "before_call", "after_call", "verified"} <= set(events)
    assert len(story["partitions"]) == story["row"]["partitions"] == len(story["status"]["executions"])
    (rejected,) = plan_story(changed, "2026000002")["status"]["decisions"]
    assert (rejected["decision"], rejected["why"]) == ("reject", "<b>not now</b>")
    with pytest.raises(UnknownName, match="2026000009"):
        plan_story(changed, "2026000009")


def test_an_audit_that_is_broken_is_shown_as_broken(tmp_path: Path) -> None:
    """Whole it is whole, with the number of its rows; one altered row breaks it, and the answer names the row; where it
    cannot be read at all, whether it is whole is not known."""
    config = TablesConfig(uri=str(tmp_path))
    assert audit_check(config).text == "Nothing was changed yet."
    attempt(tmp_path, 1)
    whole = audit_check(config)
    assert (whole.is_whole, whole.flaws) == (True, ())
    assert whole.text.startswith(f"{len(Tables(config).read('reset_audit'))} rows are a whole chain")
    unlocked(tmp_path, "reset_audit").update(predicate="sequence = 2", updates={"actor": "'somebody else'"})
    broken = audit_check(config)
    assert broken.is_whole is False
    assert any("row 2" in flaw for flaw in broken.flaws)
    assert "broken at row 2" in broken.text
    for file in (tmp_path / "reset_audit").glob("*.parquet"):
        file.unlink()
    unread = audit_check(config)
    assert (unread.is_whole, unread.flaws) == (None, ())
    assert unread.text


def test_a_stored_plan_that_was_edited_is_not_believed(tmp_path: Path) -> None:
    """Its page says that its hash is another, and shows no notice of it."""
    attempt(tmp_path, 1)
    edit = {"plan": 'replace(plan, \'"reason": "\', \'"reason": "edited \')'}
    unlocked(tmp_path, "reset_plans").update(predicate="plan_id = '2026000001'", updates=edit)
    story = plan_story(TablesConfig(uri=str(tmp_path)), "2026000001")
    assert "hash" in story["plan_problem"]
    assert (story["notices"], story["partitions"]) == ((), [])
