"""The DAGs of expansions as the scheduler has them. What every DAG keeps to is checked with those of the trunk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dags.test_resets import FORM, validated
from expansion.change.test_expansion_plan import HOSTILE, a_group, a_plan

pytestmark = pytest.mark.airflow


def test_a_person_comes_before_an_expansion_and_a_wait_after_it(dag_bag: Any) -> None:
    """Plan, answer and its record come before it; the wait for producers holds no slot; the last look and the audit
    come after it, and only after an expansion. Messages follow the audit of looks, and the gate ends a run."""
    from airflow.providers.standard.sensors.date_time import DateTimeSensorAsync

    dag, looks = (dag_bag.dags[dag_id] for dag_id in ("acktrail_expand_topic", "acktrail_partitions"))
    before = ["plan", "dry_run_ends_here", "approve", "note_decision", "recheck"]
    line = [*before, "execute", "verify", "settle", "look_again", "audit"]
    for number, name in enumerate(line):
        assert dag.task_dict[name].get_flat_relative_ids(upstream=True) == {*line[:number]}
    assert {dag.task_dict[name].trigger_rule for name in line if name != "verify"} == {"all_success"}
    assert "execute" in dag.task_dict["settle"].upstream_task_ids
    assert isinstance(dag.task_dict["settle"], DateTimeSensorAsync)
    assert dag.params["dry_run"] is True
    assert {task.task_id for task in looks.leaves} == {"validate", "notify"}
    assert all("audit" in task.upstream_task_ids for task in looks.leaves)


def test_what_is_allowed_is_in_the_request_of_a_reset(tmp_path: Path) -> None:
    """What is filled in is in the request; what is empty is not asked for."""
    form = {**FORM, "tables_uri": str(tmp_path), "topics": ["orders"]}
    assert validated({**form, "allow": ["order_broken"]})["allow"] == ["order_broken"]
    assert validated(form)["allow"] == []


BAD = [*(("topic", name) for name in (None, "x'; drop", "x" * 250)), *(("partitions", at) for at in (None, 0, 10_001))]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_the_form_of_an_expansion_refuses(dag_bag: Any, name: str, value: object) -> None:
    """Names that no topic has, and counts that no topic gets."""
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError):
        dag_bag.dags["acktrail_expand_topic"].params.get_param(name).resolve(value)


def test_the_preview_has_keys_groups_and_notices_with_names_harmless() -> None:
    """A hostile id stays text in a line of code, or in one cell. Of sixty groups fifty are shown, and the others
    counted."""
    from acktrail_dags.plan_text import plan_text

    groups = [a_group(HOSTILE, is_ordered=True, open_records=7), *(a_group(f"h{number}") for number in range(59))]
    preview = plan_text(a_plan(3, *groups), where="here")
    assert all(text in preview.replace("\\", "") for text in ("2/3 of all keys move", "open_before_expansion"))
    markdown = [line for line in preview.splitlines() if not line.startswith("    ")]
    assert all(raw not in "\n".join(markdown) for raw in ("<b>", "](", "\x1b", "|`", "\n# head"))
    assert all(line.isprintable() for line in preview.splitlines())
    assert "10 more" in preview
