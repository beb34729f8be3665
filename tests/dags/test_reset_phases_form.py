"""The form of a reset: the next phase of a plan, and the order of keys. Without a scheduler or a broker."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from reset.test_key_order import DOUBLED, END, four, request, snapshot

from acktrail.config import TablesConfig
from acktrail.group_changes import api
from acktrail.group_changes.json_values import with_hash
from acktrail.group_changes.planning.plan import build_plan

pytestmark = pytest.mark.airflow

EMPTY: dict[str, Any] = {
    **dict.fromkeys(("groups", "topics", "strategy", "ordering", "next_phase_of", "reason", "kafka_conn_id")),
    **dict.fromkeys(("offset", "shift_by", "datetime", "duration", "file")),
    **dict.fromkeys(("all_topics", "allow_skip", "phases", "partial"), False),
    "dry_run": True,
    "wait_for_empty_s": 0,
    "watch_s": 0,
}


def validated(form: dict[str, Any]) -> Any:
    from acktrail_dags.reset_steps import validate_reset

    run = SimpleNamespace(triggering_user_name="ann")
    return validate_reset.function(params=form, dag_run=run)["request"]


@pytest.fixture
def first(tmp_path: Path) -> dict[str, Any]:
    """The form for the phase after a stored plan."""
    tables = TablesConfig(uri=str(tmp_path))
    found = replace(snapshot({0: 10, 1: 20, 2: 0, 3: 0}, four(), DOUBLED), taken_at_ms=time.time_ns() // 1_000_000)
    plan = build_plan(request(phases=True), found, plan_id="p1", created_by="ann", acktrail_version="0.1.0")
    api.store_plan(tables, with_hash(plan))
    assert END in {row.target_offset for row in plan.partitions}
    return {**EMPTY, "tables_uri": str(tmp_path), "next_phase_of": "p1"}


def test_the_form_asks_for_phases_and_for_the_order_of_keys(tmp_path: Path) -> None:
    """What is filled in is in the request; what is empty is not asked for."""
    form = {**EMPTY, "tables_uri": str(tmp_path), "groups": ["g"], "topics": ["orders"], "strategy": "to-earliest"}
    asked = validated({**form, "ordering": "strict", "phases": True})
    assert (asked["ordering"], asked["phases"]) == ("strict", True)
    asked = validated(form)
    assert (asked["ordering"], asked["phases"]) == (None, False)


def test_the_next_phase_takes_everything_from_the_plan(first: dict[str, Any]) -> None:
    """Groups and strategy are the plan's; a field of another request is refused by name."""
    asked = validated(first)
    assert (asked["groups"], asked["strategy"]["kind"], asked["strategy"]["source"]) == (["g"], "next-phase", "p1")
    assert asked["requested_by"] == "ann"
    from airflow.sdk.exceptions import AirflowFailException

    for name, value in (("groups", ["g"]), ("topics", ["orders"]), ("strategy", "to-earliest"), ("phases", True)):
        with pytest.raises(AirflowFailException, match=f"does not take {name}"):
            validated({**first, name: value})
