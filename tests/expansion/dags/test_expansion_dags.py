"""The DAGs of expansions as the scheduler has them. What every DAG keeps to is checked with those of the trunk."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytestmark = pytest.mark.airflow


def as_scheduled(dag_bag: Any, dag_id: str) -> Any:
    """A DAG as the scheduler gets it."""
    from airflow.serialization.serialized_objects import DagSerialization

    return DagSerialization.from_dict(DagSerialization.to_dict(dag_bag.dags[dag_id]))


def test_an_expansion_runs_by_hand_with_a_person_before_it(dag_bag: Any) -> None:
    """A dry run unless the form says otherwise; plan, answer and its record come before the expansion; the wait for
    producers holds no slot; the last look comes after it, and only after an expansion."""
    from airflow.providers.standard.sensors.date_time import DateTimeSensorAsync

    dag = as_scheduled(dag_bag, "acktrail_expand_topic")
    assert dag.timetable.can_be_scheduled is False
    assert dag.params["dry_run"] is True
    before = set(dag.task_dict["expand"].get_flat_relative_ids(upstream=True))
    assert before == {"plan", "dry_run_ends_here", "approve", "note_decision"}
    after = {"expand", "settle", "look_again", "audit"}
    assert dag.task_dict["publish"].get_flat_relative_ids(upstream=True) == before | after
    assert dag.task_dict["look_again"].upstream_task_ids >= {"settle"}
    assert {dag.task_dict[name].trigger_rule for name in (*after, "publish")} == {"all_success"}
    assert dag.task_dict["settle"].task_type == DateTimeSensorAsync.__name__
    assert "task_ids='expand'" in dag.task_dict["settle"].target_time


def test_looks_are_regular(dag_bag: Any) -> None:
    """Every five minutes, at once when it is switched on, never two at a time: a look, its audit, the gate."""
    from airflow.timetables.base import TimeRestriction

    dag = as_scheduled(dag_bag, "acktrail_partitions")
    whenever = TimeRestriction(earliest=None, latest=None, catchup=False)
    first = dag.timetable.next_dagrun_info(last_automated_data_interval=None, restriction=whenever)
    second = dag.timetable.next_dagrun_info(last_automated_data_interval=first.data_interval, restriction=whenever)
    assert first.run_after <= datetime.now(UTC)
    assert second.run_after - first.run_after <= timedelta(minutes=5)
    assert dag.task_dict["validate"].get_flat_relative_ids(upstream=True) == {"observe", "audit"}
    assert dag.task_dict["audit"].upstream_task_ids == {"observe"}
    assert dag.task_dict["notify"].upstream_task_ids == {"observe", "validate"}
    assert dag.task_dict["notify"].trigger_rule == "all_done"


BAD_TOPIC = [("topic", "a b"), ("topic", "x'; drop"), ("topic", ""), ("topic", "x" * 250)]
BAD_COUNT = [("partitions", 0), ("partitions", 10_001), ("partitions", "4"), ("partitions", 2.5)]


BAD_PLACE = [
    ("spark_conn_id", ""),
    ("spark_conn_id", "local[2] --conf x=y"),
    ("spark_conn_id", "sc://user:secret@host:15002"),
]


@pytest.mark.parametrize(("name", "value"), [*BAD_TOPIC, *BAD_COUNT, *BAD_PLACE, ("dry_run", "no"), ("dry_run", None)])
def test_the_form_of_an_expansion_refuses(dag_bag: Any, name: str, value: object) -> None:
    """Names that no topic has, counts that no topic gets, and words for yes and no."""
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError):
        dag_bag.dags["acktrail_expand_topic"].params.get_param(name).resolve(value)


def test_an_empty_form_starts_no_expansion(dag_bag: Any) -> None:
    """What a run cannot do without is required by its schema; the other fields have headings, but for a few."""
    from airflow.sdk.exceptions import ParamValidationError

    params = dag_bag.dags["acktrail_expand_topic"].params
    with pytest.raises(ParamValidationError):
        params.validate()
    fields = {name: params.get_param(name) for name in params}
    needed = {name for name, of in fields.items() if "null" not in of.schema["type"] and not of.has_value}
    assert needed == {"topic", "partitions"}
    assert sum("section" not in of.schema for of in fields.values()) <= 6
