"""docs/reference/rest.md: its commands, in their order, against a real broker and ``acktrail connect standalone``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from drivers.own_process import printed
from servers.connect_worker import ConnectWorker, connect_worker
from servers.workload import Workload, until

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.model.log_positions import SKIPPED_BY_REQUEST
from acktrail.model.share_partition import GroupId, SharePartition, TopicId, state_partition_of
from acktrail.tables.delta.store import Tables
from acktrail.tables.records.continuity import ensure_whole
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

DOCUMENT = Path(__file__).parents[4] / "docs/reference/rest.md"
WORKER = "http://127.0.0.1:8083"
TOKEN_FILE = "/var/lib/acktrail/connect/rest.token"


def commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


class Session:
    """Runs the commands with this test's addresses, and with the offset that is moved."""

    def __init__(self, worker: ConnectWorker, kafka: KafkaConfig, root: str) -> None:
        self.folder = worker.folder
        self.words = {WORKER: worker.url, "localhost:9092": kafka.bootstrap_servers, "/data/acktrail": root}
        self.words |= {TOKEN_FILE: f"{worker.folder}/store/rest.token"}
        self.kafka, self.workload = kafka, Workload(kafka)
        self.moved: tuple[int, int, int] = (-1, -1, -1)

    def run(self, command: str) -> Any:
        for old, new in self.words.items():
            command = command.replace(old, str(new))
        said = printed("bash", "-c", command, cwd=self.folder)
        return json.loads(said) if said else None

    def offsets(self) -> dict[int, tuple[Any, int]]:
        """Source partition and offset by state partition."""
        found = self.run(f"curl -sSf -K rest.curl {WORKER}/connectors/state/offsets")["offsets"]
        return {each["partition"]["partition"]: (each["partition"], each["offset"]["offset"]) for each in found}

    def state(self) -> str:
        return str(self.run(f"curl -sSf -K rest.curl {WORKER}/connectors/state/status")["connector"]["state"])

    def acknowledge(self) -> None:
        self.workload.acknowledge("rest-document", "rest-document", 5)

    def move(self, command: str) -> None:
        """Skip what is written while the connector is stopped; more is written afterwards."""
        until(lambda: self.state() == "STOPPED")
        self.acknowledge()
        number, end = own_end(self.kafka)
        place, begin = self.offsets()[number]
        self.words |= {"CLUSTER": place["cluster_id"], "TOPIC": place["topic_id"]}
        self.words |= {'"partition": 7': f'"partition": {number}', '{"offset": 120}': f'{{"offset": {end}}}'}
        self.run(command)
        assert self.offsets()[number][1] == end
        self.moved = (number, begin, end - 1)
        self.acknowledge()

    def delete(self, command: str) -> None:
        """Once it has read on."""
        number, _, last = self.moved
        until(lambda: self.offsets()[number][1] > last + 1)
        self.run(command)

    def step(self, command: str) -> None:
        self.run(command)
        if "/connectors/state" in command:
            until(lambda: self.state() in {"RUNNING", "PAUSED", "STOPPED"})
        if command.endswith("/offsets"):
            until(lambda: own_end(self.kafka)[0] in self.offsets())


def test_the_commands_of_the_document(broker: EmbeddedBroker, kafka: KafkaConfig, tmp_path: Path) -> None:
    """Each succeeds; the offset that is changed leaves a gap with its reason, rows continue behind it, and the tables
    are whole."""
    tables = Tables(TablesConfig(uri=str(tmp_path / "tables")))
    own = {"rest.listener": "127.0.0.1:0", "lease": "false", "config.storage.dir": str(tmp_path / "worker/store")}
    with connect_worker(tmp_path / "worker", own) as worker:
        worker.start()
        until(lambda: worker.url, what="REST")
        session = Session(worker, kafka, tables.root)
        session.workload.create_topic("rest-document")
        session.workload.produce("rest-document", 20)
        session.acknowledge()
        for command in commands():
            is_move = "PATCH" in command and "/offsets" in command
            (session.move if is_move else session.delete if "DELETE" in command else session.step)(command)
        assert worker.stop() == 0
    rows = tables.read("export_ranges").to_pylist()
    names = ("state_partition", "gap_first", "gap_last")
    skipped = [tuple(row[name] for name in names) for row in rows if row["gap_reason"] == SKIPPED_BY_REQUEST]
    assert skipped == [session.moved]
    ensure_whole(tables)


def own_end(kafka: KafkaConfig) -> tuple[int, int]:
    """The state partition that holds the test's share partition, and its log's end."""
    from acktrail.kafka.admin import ShareGroupAdmin
    from acktrail.kafka.log_reader import StateTopic

    with ShareGroupAdmin(kafka) as admin:
        (topic,) = admin.topics(["rest-document"])
        logs = StateTopic(admin).log_offsets()
        key = SharePartition(group_id=GroupId("rest-document"), topic_id=TopicId(str(topic.topic_id)), partition=0)
        number = state_partition_of(key, len(logs))
        return number, logs[number].high_watermark or 0
