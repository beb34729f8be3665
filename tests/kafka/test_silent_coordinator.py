"""A group coordinator that keeps silent holds up no state, and what it would have said is recorded as unknown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from drivers.command_line import run
from servers.kafka_proxy import KafkaProxy, kafka_proxy
from servers.releases import releases
from servers.workload import Workload

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.embedded import EmbeddedBroker
from acktrail.embedded.kafka.embedded_broker import free_ports
from acktrail.errors import NotAllAnswered
from acktrail.export.export_run import export, observe
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.error_codes import GROUP_ID_NOT_FOUND
from acktrail.tables.delta.store import Tables

pytestmark = pytest.mark.broker

_DESCRIBE_GROUP, _DESCRIBE_OFFSETS, _LIST_GROUPS = 77, 90, 16
_FIND_COORDINATOR, _DESCRIBE_CONFIGS = 10, 32


@dataclass(frozen=True)
class Silenced:
    """A broker whose clients all go through `proxy`."""

    config: KafkaConfig
    proxy: KafkaProxy


@pytest.fixture(scope="module", params=releases("4.3.1", "4.4.0"))
def behind(request: pytest.FixtureRequest) -> Iterator[Silenced]:
    """A broker with the state of one group; its requests time out after one second."""
    ports = free_ports()
    with kafka_proxy(f"127.0.0.1:{ports.client}") as proxy:
        advertised = {"advertised.listeners": f"CLIENT://{proxy.address}"}
        with EmbeddedBroker(request.param, port=ports.client, properties=advertised) as broker:
            workload = Workload(broker.config())
            workload.create_topic("orders")
            workload.produce("orders", 20)
            workload.acknowledge("g", "orders", 20)
            yield Silenced(config=proxy.config(1_000), proxy=proxy)


@pytest.fixture
def tables(tmp_path: Path) -> TablesConfig:
    return TablesConfig(uri=str(tmp_path / "tables"))


@pytest.fixture(params=[_DESCRIBE_GROUP, _DESCRIBE_OFFSETS])
def silent(behind: Silenced, request: pytest.FixtureRequest) -> Iterator[KafkaConfig]:
    behind.proxy.silenced = {request.param}
    yield behind.config
    behind.proxy.silenced = set()


@pytest.mark.few(1)
def test_state_is_exported_and_the_silence_is_recorded(silent: KafkaConfig, tables: TablesConfig) -> None:
    """Every state record is in the tables; the group has a row with the reason; the error says what is missing and
    carries what was done. An observation has both its samples over the silence."""
    with pytest.raises(NotAllAnswered, match="no coordinator answered") as caught:
        observe(silent, tables)
    summary = caught.value.summary
    stored = Tables(tables).read("state_records")
    assert stored.num_rows == summary.records_read > 0  # type: ignore[attr-defined]
    assert "g" in stored["group_id"].to_pylist()
    rows = [*rows_of(tables, "group_observations"), *rows_of(tables, "offset_observations")]
    errors = [row["error"] for row in rows if row["error_code"] == 7]
    assert errors
    assert all("REQUEST_TIMED_OUT" in str(error) for error in errors)
    assert not [row for row in rows if row["error_code"] == 7 and row.get("start_offset") is not None]
    assert {row["phase"] for row in Tables(tables).read("offset_observations").to_pylist()} == {"before", "after"}


def rows_of(tables: TablesConfig, name: str) -> list[dict[str, object]]:
    return [row for row in Tables(tables).read(name).to_pylist() if row["group_id"] == "g"]


def test_a_broker_too_busy_for_many_groups_describes_them_all(behind: Silenced) -> None:
    """Requests about more than some twenty groups get no answer, nor does the first one of the others that groups are
    looked up with: every group is described all the same, and the requests without an answer are few. Offsets are asked
    for group by group, so that none of those goes without an answer."""
    names = ["g", *(f"group-number-{number:04}" for number in range(400))]
    proxy, before = behind.proxy, Counter(behind.proxy.spoiled)
    proxy.patience = dict.fromkeys((_DESCRIBE_GROUP, _DESCRIBE_OFFSETS), 500)
    proxy.forgotten = {_FIND_COORDINATOR, _DESCRIBE_CONFIGS}
    try:
        with ShareGroupAdmin(behind.config) as admin:
            described = {group.group_id: group.error_code for group in admin.describe_groups(names)}
            offsets = {group.group_id: group.offsets for group in admin.describe_group_offsets(names)}
            configs = {group.group_id: group.error_code for group in admin.group_configs(names)}
    finally:
        proxy.patience, proxy.forgotten = {}, set()
    assert described == {name: 0 if name == "g" else GROUP_ID_NOT_FOUND for name in names}
    assert [name for name in names if offsets[name]] == ["g"]
    assert configs == dict.fromkeys(names, 0)
    found = proxy.spoiled - before
    assert {key: found[key] for key in (_FIND_COORDINATOR, _DESCRIBE_CONFIGS, _DESCRIBE_OFFSETS)} == {
        _FIND_COORDINATOR: 1,
        _DESCRIBE_CONFIGS: 1,
        _DESCRIBE_OFFSETS: 0,
    }
    assert 0 < found[_DESCRIBE_GROUP] <= 4


def test_groups_that_cannot_be_listed_hold_up_no_state(behind: Silenced, tables: TablesConfig) -> None:
    """Not even the groups are known: the state records are exported all the same."""
    behind.proxy.silenced = {_LIST_GROUPS}
    try:
        with pytest.raises(NotAllAnswered, match="not observed"):
            export(behind.config, tables)
    finally:
        behind.proxy.silenced = set()
    assert Tables(tables).read("state_records").num_rows > 0


def test_the_command_shows_what_was_done_and_ends_with_4(
    behind: Silenced, tables: TablesConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The summary is on stdout, the reason in it and on stderr."""
    monkeypatch.setattr(KafkaConfig, "from_environment", lambda *_: behind.config)
    behind.proxy.silenced = {_DESCRIBE_GROUP}
    try:
        done = run(capsys, "run", "export", "--no-observe", "--tables", tables.uri, "--json")
    finally:
        behind.proxy.silenced = set()
    assert done.code == 4, done
    summary = json.loads(done.stdout)
    assert summary["records_read"] > 0
    assert "no coordinator answered" in summary["unanswered"][0]
    assert "no coordinator answered" in done.stderr
