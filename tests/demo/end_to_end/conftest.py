"""One Spark session's worth of patience, and brokers that have seen the demo's workload."""

from __future__ import annotations

import subprocess

import pytest
from coordinator_messages import coordinator_states
from demo.end_to_end.end_to_end_run import RUN_ID, Observed
from demo.workload_report import report_of
from servers.real_broker import kafka_tool
from servers.releases import releases
from state_topics.filled_topic import read_all

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.embedded import EmbeddedBroker
from acktrail.export.export_run import observe
from acktrail_demo.workload.workload_run import run_workload


@pytest.fixture(scope="module", params=releases("4.4.0", "4.3.1", "4.2.1"))
def observed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Observed:
    """The main job up to the tables, on a broker of each release; the broker is gone when the tests look."""
    version = request.param
    tables = TablesConfig(uri=str(tmp_path_factory.mktemp("tables")))
    with EmbeddedBroker(version) as broker:
        workload = report_of(run_workload(broker.bootstrap_servers))
        kafka = KafkaConfig(bootstrap_servers=broker.bootstrap_servers)
        observe(kafka, tables, run_id=RUN_ID)
        command = kafka_tool(
            "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
            *("--bootstrap-server", broker.bootstrap_servers, "--describe", "--all-groups"),
            version=version,
        )
        described = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
        records = tuple(read_all(broker))
        held = coordinator_states(kafka)
    return Observed(
        version=version,
        workload=workload,
        tables=tables,
        described_by_kafka=described,
        coordinator_states=held,
        records=records,
    )
