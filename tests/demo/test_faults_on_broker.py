"""Faults in the state topic of a real broker are found like those on paper."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from change.world import World
from confluent_kafka import AcknowledgeType
from samples.history_tables import build

from acktrail.executors import InProcess
from acktrail.export.export_run import observe
from acktrail.tables.delta.store import Tables
from acktrail_demo.faults.library import FAULTS, faults_on, find_faults, signs_in_run
from acktrail_demo.workload.demo_cluster import inject_faults
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail_expectations.gate import validate_run
from acktrail_jobs.pipeline.reconcile_run import reconcile
from acktrail_jobs.pipeline.status_run import write_statuses

pytestmark = [pytest.mark.broker, pytest.mark.slow]
RECORDS = 100


def _run(broker: EmbeddedBroker, world: World, run_id: str) -> None:
    observe(broker.config(), world.tables, run_id=run_id)
    reconcile(world.tables, lambda _rows: nullcontext(InProcess()), run_id)
    build(Tables(world.tables))
    write_statuses(world.tables, InProcess(), run_id)
    validate_run(Tables(world.tables), run_id)


@pytest.mark.full
def test_share_coordinators_load_faults_and_all_are_found(tmp_path: Path) -> None:
    """Real consumers finish everything and nothing is found. Then each fault happens to one share partition: brokers
    that load them describe what was replayed, and exactly the faults are found."""
    faults = faults_on("4.4.0")
    assert len(faults) == sum(fault.on_broker for fault in FAULTS.values())
    with EmbeddedBroker("4.4.0") as broker:
        world = World.at(broker.config(), tmp_path)
        world.make_topic("stock", len(faults), RECORDS)
        world.settle("desk", "stock", len(faults) * RECORDS, lambda _: AcknowledgeType.ACCEPT)
        _run(broker, world, "before")
        assert signs_in_run(Tables(world.tables), "before") == frozenset()

        injected = inject_faults(broker, faults, group_id="desk", topic="stock", records=RECORDS)
        _run(broker, world, "after")
        found = find_faults(Tables(world.tables), "after", injected)
        assert {each.fault.name: signs for each, signs in zip(injected, found.missing, strict=True) if signs} == {}
        assert found.others == frozenset()
