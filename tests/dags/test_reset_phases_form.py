"""The form of a reset: the next phase of a plan, and the order of keys. Without a scheduler or a broker."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from reset.test_key_order import DOUBLED, END, four, request, snapshot

from acktrail.config import TablesConfig
from acktrail.group_changes import api
from acktrail.group_changes.json_values import with_hash
from acktrail.group_changes.planning.plan import build_plan

pytestmark = pytest.mark.airflow

FORM: dict[str, Any] = {
    "groups": ["g"],
    "strategy": "to-earliest",
    "ordering": "configured",
    **dict.fromkeys(("topics", "next_phase_of", "reason", "kafka_conn_id")),
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
    return {**FORM, "tables_uri": str(tmp_path), "strategy": "next-phase", "next_phase_of": "p1"}


def test_the_form_asks_for_phases_and_for_the_order_of_keys(tmp_path: Path) -> None:
    """What is filled in is in the request; what is empty is not asked for."""
    form = {**FORM, "tables_uri": str(tmp_path), "topics": ["orders"]}
    asked = validated({**form, "ordering": "strict", "phases": True})
    assert (asked["ordering"], asked["phases"]) == ("strict", True)
    asked = validated(form)
    assert (asked["ordering"], asked["phases"]) == (None, False)


def test_the_next_phase_takes_everything_from_the_plan(first: dict[str, Any]) -> None:
    """Strategy and share partitions are the plan's."""
    asked = validated(first)
    assert (asked["groups"], asked["strategy"]["kind"], asked["strategy"]["source"]) == (["g"], "next-phase", "p1")
    assert asked["requested_by"] == "ann"


def test_messages_name_the_fields_of_the_form(first: dict[str, Any]) -> None:
    """By their titles, also where the rule is one of the command line's: no option of it is in a message."""
    earliest = {**first, "strategy": "to-earliest", "next_phase_of": None}
    later = {"strategy": "to-history", "datetime": "2999-01-01T00:00:00Z"}
    for form, message in (
        ({**first, "groups": ["other"]}, "plan p1 is not about the groups of Share groups"),
        ({**first, "topics": ["orders"]}, "Where to: next-phase does not take Topics"),
        ({**first, "phases": True}, "Where to: next-phase does not take In phases"),
        ({**first, "next_phase_of": None}, "Where to: next-phase needs Next phase of"),
        (earliest, "Topics is empty"),
        ({**earliest, "topics": ["orders"], "all_topics": True}, "Topics does not take All topics"),
        ({**earliest, "all_topics": True, "offset": 0}, "Where to: to-earliest does not take Offset"),
        ({**earliest, "all_topics": True, "strategy": "to-offset"}, "Where to: to-offset needs Offset"),
        ({**earliest, "strategy": "from-file", "file": "f", "all_topics": True}, "from-file does not take All topics"),
        ({**earliest, "topics": ["orders:0", "orders:0"]}, "“Topics”: orders:0 is named twice"),
        ({**earliest, "all_topics": True, **later}, "“Where to: to-history” 2999-01-01T00:00:00"),
    ):
        with pytest.raises(AirflowFailException, match=re.escape(message)) as caught:
            validated(form)
        assert "--" not in str(caught.value)
