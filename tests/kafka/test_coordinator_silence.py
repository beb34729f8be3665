"""A coordinator that keeps silent: it is asked about fewer groups and then no more, it holds up no state, and what it
would have said is recorded as unknown."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from drivers.command_line import run
from kafka.errors import RequestTimedOutError
from kafka.net.connection import KafkaConnection
from servers.kafka_proxy import KafkaProxy, kafka_proxy
from servers.real_broker import broker_of_release, releases
from servers.workload import Workload

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import NotAllAnswered, RetryableError
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.broker_client import BrokerClient, NoResponse
from acktrail.kafka.client.coordinators import Coordinators
from acktrail.kafka.client.error_codes import GROUP_ID_NOT_FOUND, REQUEST_TIMED_OUT
from acktrail.tables.delta.store import Tables
from acktrail_connect.export.export_run import export, observe
from acktrail_embedded import DEFAULT_VERSION


@dataclass
class Cluster:
    """`nodes` coordinators. Without an answer stay requests to those in `silent`, of the rounds in `silent_rounds`,
    with more than `limit` groups, or with one of `stuck`, or for the first time with one of `once`: such a request
    takes those beside it with it, as they wait in one connection, and all of its timeout. A round takes `takes_s` of
    the cluster's own clock."""

    nodes: int = 3
    silent: Collection[int] = ()
    silent_rounds: Collection[int] = ()
    limit: int = 100
    stuck: frozenset[str] = frozenset()
    once: set[str] = field(default_factory=set)
    takes_s: float = 0.0
    request_timeout_s: float = 0.02
    seconds: float = 0.0
    rounds: int = 0
    silences: int = 0
    largest: int = 0
    most: int = 0
    requests: Counter[int] = field(default_factory=Counter)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def send(self, request: Any, timeout_retries: int) -> Any:
        found = [SimpleNamespace(key=key, error_code=0, error_message=None) for key in request.coordinator_keys]
        return SimpleNamespace(coordinators=found)

    def learn_coordinator(self, found: Any, key: str) -> int:
        return zlib.crc32(key.encode()) % self.nodes

    def explain(self, missing: NoResponse) -> Exception:
        return RetryableError("kept silent", hint="try again")

    def send_all(self, requests: list[tuple[int, Any]]) -> list[Any]:
        self.rounds += 1
        self.requests.update(node for node, _ in requests)
        self.most = max(self.most, *Counter(node for node, _ in requests).values())
        self.largest = max(self.largest, *(len(group_ids) for _, group_ids in requests))
        silent = {node for node, group_ids in requests if self._is_silent(node, group_ids)}
        self.silences += bool(silent)
        self.sleep(self.takes_s + self.request_timeout_s * bool(silent))  # the time that requests have
        return [self._reply(node, group_ids, is_silent=node in silent) for node, group_ids in requests]

    def _is_silent(self, node: int, group_ids: list[str]) -> bool:
        first = self.once.intersection(group_ids)
        self.once -= first
        is_too_much = len(group_ids) > self.limit or bool(first or self.stuck.intersection(group_ids))
        return node in self.silent or self.rounds in self.silent_rounds or is_too_much

    def _reply(self, node: int, group_ids: list[str], *, is_silent: bool) -> Any:
        if is_silent:
            return NoResponse(node_id=node, error=RequestTimedOutError())
        rows = [SimpleNamespace(group_id=group_id, error_code=0, error_message=None) for group_id in group_ids]
        return SimpleNamespace(groups=rows)


def names(count: int) -> list[str]:
    return [f"g{number}" for number in range(count)]


def ask(cluster: Cluster, group_ids: list[str], **options: Any) -> dict[str, Any]:
    """A query by the clock of `cluster`; it tolerates timeouts unless `options` say otherwise."""
    coordinators, options = Coordinators(cast("BrokerClient", cluster)), {"tolerates_timeouts": True, **options}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("acktrail.backoff.time", cluster)
        return coordinators.query(group_ids, list, read=lambda row: row.group_id, **options)


def bodies(answers: dict[str, Any]) -> dict[str, Any]:
    return {name: answer.body for name, answer in answers.items()}


def test_a_silence_late_in_a_long_query_is_asked_again() -> None:
    """Time counts from the last answer, not from the first request: all groups take longer than a try may take. Each
    broker has at most two requests of at most 100 groups at once; every group has its own answer."""
    cluster, groups = Cluster(nodes=1, takes_s=0.01, silent_rounds={9}), names(2_000)
    assert bodies(ask(cluster, groups, tolerates_timeouts=False)) == dict(zip(groups, groups, strict=True))
    assert (cluster.most, cluster.largest) == (2, 100)


def test_a_silent_coordinator_is_not_asked_about_all_its_groups() -> None:
    """Its silence costs one round of requests a try, however many groups it has; the others answer."""
    silent, awake = Cluster(silent={1}), Cluster()
    answers = ask(silent, names(10_000))
    ask(awake, names(10_000))
    assert Counter(answer.error_code for answer in answers.values()).keys() == {0, REQUEST_TIMED_OUT}
    assert silent.requests[0] == awake.requests[0]
    assert silent.requests[1] < 40
    assert sum(answer.error_code == 0 for answer in answers.values()) > 6_000


@pytest.mark.parametrize("count", [1_000, 150, 7])
@pytest.mark.parametrize("most", [99, 10, 3, 1])
def test_a_coordinator_that_is_too_slow_for_large_requests_is_asked_about_fewer_groups(most: int, count: int) -> None:
    """Every group is described, whatever the number is that the coordinator masters in time, and what it did not master
    is tried a few times, not once for each request."""
    cluster, groups = Cluster(nodes=1, limit=most), names(count)
    assert bodies(ask(cluster, groups)) == dict(zip(groups, groups, strict=True))
    assert cluster.silences <= 2


def test_a_group_that_is_never_answered_costs_the_others_nothing() -> None:
    """Its request is divided until it is asked alone: it has the error, all others their answers, also those whose
    requests waited beside it."""
    cluster, groups = Cluster(nodes=1, stuck=frozenset({"g321"})), names(1_000)
    answers = ask(cluster, groups)
    assert [name for name in groups if answers[name].error_code] == ["g321"]
    assert (answers["g321"].error_code, answers["g321"].message) == (REQUEST_TIMED_OUT, "kept silent")
    assert cluster.silences == 3
    with pytest.raises(RetryableError, match="kept silent"):
        ask(cluster, groups, tolerates_timeouts=False)


@pytest.mark.parametrize("tolerates_timeouts", [True, False])
def test_a_group_that_is_silent_once_is_asked_again(*, tolerates_timeouts: bool) -> None:
    """Also where every group is asked alone, and its coordinator was silent about another one before."""
    cluster, groups = Cluster(nodes=1, once={"g0", "g6"}), names(12)
    answers = ask(cluster, groups, tolerates_timeouts=tolerates_timeouts, at_once=1)
    assert bodies(answers) == dict(zip(groups, groups, strict=True))


def test_many_groups_that_are_never_answered_end_the_query() -> None:
    """However much is answered between them, the silences of a query are few; what was answered stays."""
    stuck = frozenset(names(1_000)[::50])
    cluster = Cluster(nodes=1, stuck=stuck)
    answers = ask(cluster, names(1_000))
    assert cluster.silences <= 10
    assert answers.keys() == {*names(1_000)}
    assert {answers[name].error_code for name in stuck} == {REQUEST_TIMED_OUT}
    assert {answers[name].body for name in answers if not answers[name].error_code} <= {*names(1_000)} - stuck


_DESCRIBE_GROUP, _DESCRIBE_OFFSETS, _LIST_GROUPS = 77, 90, 16
_FIND_COORDINATOR, _DESCRIBE_CONFIGS = 10, 32
GROUP = "behind-a-proxy"


@dataclass(frozen=True)
class Silenced:
    """A broker whose clients all go through `proxy`."""

    config: KafkaConfig
    proxy: KafkaProxy


@pytest.fixture(scope="module", params=releases(DEFAULT_VERSION, "4.4.0"))
def behind(request: pytest.FixtureRequest) -> Iterator[Silenced]:
    """A broker with the state of `GROUP`. Requests that it does not hear are given up after a second; all others have
    the time that they have by default, however busy the machine is."""
    with ExitStack() as stack:
        kafka = stack.enter_context(broker_of_release(request)).config()
        workload = Workload(kafka)
        workload.create_topic(GROUP)
        workload.produce(GROUP, 20)
        workload.acknowledge(GROUP, GROUP, 20)
        proxy = stack.enter_context(kafka_proxy(kafka.bootstrap_servers))
        patch, send = stack.enter_context(pytest.MonkeyPatch.context()), KafkaConnection.send_request

        def send_request(connection: Any, sent: Any, request_timeout_ms: float | None = None) -> Any:
            size = sum(map(len, getattr(sent, "group_ids", ())))
            return send(connection, sent, 1_000 if proxy.is_lost(sent.API_KEY, size) else request_timeout_ms)

        patch.setattr(KafkaConnection, "send_request", send_request)
        yield Silenced(config=proxy.config(30_000), proxy=proxy)


@pytest.fixture
def tables(tmp_path: Path) -> TablesConfig:
    return TablesConfig(uri=str(tmp_path / "tables"))


@contextmanager
def silence_about(behind: Silenced, call: int) -> Iterator[None]:
    behind.proxy.silenced = {call}
    try:
        yield
    finally:
        behind.proxy.silenced = set()


@pytest.mark.broker
@pytest.mark.few(1)
@pytest.mark.parametrize("call", [_DESCRIBE_GROUP, _DESCRIBE_OFFSETS])
def test_state_is_exported_and_the_silence_is_recorded(behind: Silenced, tables: TablesConfig, call: int) -> None:
    """Every state record is in the tables; the group has a row with the reason; the error says what is missing and
    carries what was done. An observation has both its samples over the silence."""
    match = "no coordinator answered"
    with silence_about(behind, call), pytest.raises(NotAllAnswered, match=match) as caught:
        observe(behind.config, tables)
    summary = caught.value.summary
    stored = Tables(tables).read("state_records")
    assert stored.num_rows == summary.records_read > 0  # type: ignore[attr-defined]
    assert GROUP in stored["group_id"].to_pylist()
    rows = [*rows_of(tables, "group_observations"), *rows_of(tables, "offset_observations")]
    errors = [row["error"] for row in rows if row["error_code"] == 7]
    assert errors
    assert all("REQUEST_TIMED_OUT" in str(error) for error in errors)
    assert not [row for row in rows if row["error_code"] == 7 and row.get("start_offset") is not None]
    assert {row["phase"] for row in Tables(tables).read("offset_observations").to_pylist()} == {"before", "after"}


def rows_of(tables: TablesConfig, name: str) -> list[dict[str, object]]:
    return [row for row in Tables(tables).read(name).to_pylist() if row["group_id"] == GROUP]


@pytest.mark.broker
def test_a_broker_too_busy_for_many_groups_describes_them_all(behind: Silenced) -> None:
    """Requests about more than some twenty groups get no answer, nor does the first one of the others that groups are
    looked up with: every group is described all the same, and the requests without an answer are few. Offsets are asked
    for group by group, so that none of those goes without an answer."""
    names = [GROUP, *(f"group-number-{number:04}" for number in range(199))]
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
    assert described == {name: 0 if name == GROUP else GROUP_ID_NOT_FOUND for name in names}
    assert [name for name in names if offsets[name]] == [GROUP]
    assert configs == dict.fromkeys(names, 0)
    found = proxy.spoiled - before
    assert {key: found[key] for key in (_FIND_COORDINATOR, _DESCRIBE_CONFIGS, _DESCRIBE_OFFSETS)} == {
        _FIND_COORDINATOR: 1,
        _DESCRIBE_CONFIGS: 1,
        _DESCRIBE_OFFSETS: 0,
    }
    assert 0 < found[_DESCRIBE_GROUP] <= 4


@pytest.mark.broker
def test_groups_that_cannot_be_listed_hold_up_no_state(behind: Silenced, tables: TablesConfig) -> None:
    """Not even the groups are known: the state records are exported all the same."""
    with silence_about(behind, _LIST_GROUPS), pytest.raises(NotAllAnswered, match="not observed"):
        export(behind.config, tables)
    assert Tables(tables).read("state_records").num_rows > 0


@pytest.mark.broker
def test_the_command_shows_what_was_done_and_ends_with_4(
    behind: Silenced, tables: TablesConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The summary is on stdout, the reason in it and on stderr."""
    monkeypatch.setattr(KafkaConfig, "from_environment", lambda *_: behind.config)
    with silence_about(behind, _DESCRIBE_GROUP):
        done = run(capsys, "run", "export", "--no-observe", "--tables", tables.uri, "--json")
    assert done.code == 4, done
    summary = json.loads(done.stdout)
    assert summary["records_read"] > 0
    assert "no coordinator answered" in summary["unanswered"][0]
    assert "no coordinator answered" in done.stderr
