"""The demo workload says exactly what its consumers did, and the broker's own state says the same."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from demo.workload_report import (
    Fate,
    SharePartitionRun,
    WorkloadReport,
    report_of,
)
from drivers.whole_topic import messages_of
from hypothesis import given
from hypothesis import strategies as st
from servers.releases import releases
from servers.workload import until

from acktrail.config import KafkaConfig
from acktrail.embedded import DEFAULT_VERSION, EmbeddedBroker
from acktrail.errors import ConfigurationError, Unreachable
from acktrail.format.wire.dialects import decode
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.model.batches import DeliveryState
from acktrail.model.records import StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState, replay
from acktrail.model.share_partition import STATE_TOPIC, SharePartition
from acktrail_demo.workload.demo_cluster import WorkloadUnfinished
from acktrail_demo.workload.scenario import (
    ALWAYS,
    HOSTILE_GROUP,
    Action,
    GroupScript,
    RecordPlan,
    plan_scenario,
)
from acktrail_demo.workload.workload_run import DEFAULT_SEED, Ledger, run_workload

STATES = {
    Fate.ACKNOWLEDGED: DeliveryState.ACKNOWLEDGED,
    Fate.ARCHIVED: DeliveryState.ARCHIVED,
    Fate.AVAILABLE: DeliveryState.AVAILABLE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """A run, and every state record that was there after it, in log order."""

    broker: EmbeddedBroker
    report: WorkloadReport
    records: tuple[StateRecord, ...]
    states: dict[SharePartition, SharePartitionState]
    shown: tuple[tuple[str, int, int], ...]

    @property
    def live(self) -> tuple[SharePartitionRun, ...]:
        return tuple(run for run in self.report.share_partitions if not run.deleted)


@pytest.fixture(scope="module", params=releases(DEFAULT_VERSION, "4.2.1", "4.4.0"))
def performance(request: pytest.FixtureRequest) -> Iterator[Performance]:
    """One run on a real broker of each release."""
    with EmbeddedBroker(request.param) as broker:
        shown: list[tuple[str, int, int]] = []
        run = run_workload(broker.bootstrap_servers, progress=lambda *step: shown.append(step))
        records = tuple(_state_records(broker))
        yield Performance(
            broker=broker, report=report_of(run), records=records, states=replay(records), shown=tuple(shown)
        )


def _state_records(broker: EmbeddedBroker) -> Iterator[StateRecord]:
    """The state topic from its beginning to its end; nothing is pruned in the minutes a test takes."""
    for message in messages_of({"bootstrap.servers": broker.bootstrap_servers}, STATE_TOPIC):
        yield decode(message.key(), message.value())


@pytest.mark.broker
def test_replayed_start_offset_and_lag_are_those_of_the_report(performance: Performance) -> None:
    """For every share partition that lives, replay gives the report's start offset and lag, unknown ones included."""
    for run in performance.live:
        state = performance.states[run.key]
        assert state.first_unfinished_offset == run.first_unfinished_offset, run
        if state.start_offset is None or state.delivery_complete_count is None:
            assert run.lag is None, run
        else:
            assert run.log_end_offset - state.start_offset - state.delivery_complete_count == run.lag, run


@pytest.mark.broker
def test_the_broker_describes_what_the_report_says(performance: Performance) -> None:
    """Request 90 and 77, asked after the run: same lag and start offsets, no members, no group that was deleted."""
    report = performance.report
    with ShareGroupAdmin(KafkaConfig(bootstrap_servers=performance.broker.bootstrap_servers)) as admin:
        offsets = {
            (group.group_id, offset.topic_id, offset.partition): offset
            for group in admin.describe_group_offsets([group.group_id for group in report.groups])
            for offset in group.offsets
            if offset.topic_id is not None
        }
        groups = {group.group_id: group for group in admin.describe_groups([g.group_id for g in report.groups])}
    assert {(run.group_id, run.topic_id, run.partition) for run in performance.live} == offsets.keys()
    for run in performance.live:
        described = offsets[run.group_id, run.topic_id, run.partition]
        assert described.lag == run.lag, run
        assert (described.start_offset is None) == (run.first_unfinished_offset is None), run
        assert described.start_offset == performance.states[run.key].start_offset, run
    for group in report.groups:
        assert groups[group.group_id].error_code == (69 if group.deleted else 0)
        assert groups[group.group_id].members == ()


@pytest.mark.broker
def test_every_record_met_the_fate_the_report_says(performance: Performance) -> None:
    """The last state the coordinator wrote about each offset, with its delivery count, is the report's fate of it."""
    written: dict[SharePartition, dict[int, tuple[int, int]]] = defaultdict(dict)
    for record in performance.records:
        for batch in () if isinstance(record, Tombstone) else record.batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                said = (batch.delivery_count, batch.delivery_state)
                written[record.key][offset] = max(said, written[record.key].get(offset, said))
    for run in performance.report.share_partitions:
        expected = {
            offset: (count, STATES[fate])
            for offset, (fate, count) in enumerate(run.fates)
            if fate is not Fate.NEVER_DELIVERED
        }
        assert written[run.key] == expected, run


@pytest.mark.broker
def test_deleted_state_ends_in_a_tombstone(performance: Performance) -> None:
    """Keys of the deleted group, the deleted topic and the first incarnation of the recreated one had state, and
    their last record is a tombstone; replay keeps exactly the others."""
    last = {record.key: record for record in performance.records}
    deleted = [run for run in performance.report.share_partitions if run.deleted]
    assert {run.topic for run in deleted} == {"shipments", "returns-2025", "price-changes"}
    for run in deleted:
        assert isinstance(last[run.key], Tombstone)
        assert run.actions
    assert performance.states.keys() == {run.key for run in performance.live}


def of_group(report: WorkloadReport, name: str) -> list[SharePartitionRun]:
    return [run for run in report.share_partitions if run.group_id == name]


@pytest.mark.broker
def test_every_promised_state_is_there(performance: Performance) -> None:
    """Retries, rejections, exhausted records, a window with gaps, lag, unknown starts, one name with two ids."""
    report = performance.report
    by_group = {group.group_id: group for group in report.groups}
    poisoned = of_group(report, "fraud-scoring")
    limit = by_group["fraud-scoring"].delivery_count_limit
    assert any((Fate.ARCHIVED, limit) in run.fates for run in poisoned)
    assert all(run.acted_on(Action.REJECT) for run in poisoned)
    retried = of_group(report, HOSTILE_GROUP)
    assert all(run.acted_on(Action.RELEASE) & run.offsets(Fate.ACKNOWLEDGED) for run in retried)
    lagging = of_group(report, "order-analytics")
    assert all(run.lag and run.offsets(Fate.NEVER_DELIVERED) for run in lagging)
    assert any(
        run.first_unfinished_offset in run.offsets(Fate.AVAILABLE)
        and max(run.offsets(Fate.ARCHIVED), default=0) > (run.first_unfinished_offset or 0)
        for run in lagging
    )
    unstarted = [run for run in performance.live if run.first_unfinished_offset is None]
    assert {run.topic for run in unstarted} == {"newsletters", "shipments"}
    assert len({topic_id for (name, _), topic_id in report.topic_ids.items() if name == "price-changes"}) == 2


@pytest.mark.broker
def test_progress_ascends_to_its_end(performance: Performance) -> None:
    """Steps never go back and end at all steps."""
    done = [step for _, step, _ in performance.shown]
    assert done == sorted(done)
    assert len({steps for _, _, steps in performance.shown}) == 1
    assert performance.shown[-1] == ("done", performance.shown[0][2], performance.shown[0][2])


@pytest.mark.full
@pytest.mark.broker
def test_a_deadline_ends_the_run_and_its_consumers() -> None:
    """When time is up there is one error that says for what it waited, and no thread is left, nor a member: one whose
    close did not return goes when its session ends. What is there is not touched by a second run."""
    before = threading.active_count()
    with EmbeddedBroker() as broker:
        groups = [plan.group_id for plan in plan_scenario(seed=DEFAULT_SEED).groups]
        with pytest.raises(WorkloadUnfinished, match="waiting for"):
            run_workload(broker.bootstrap_servers, scale=30, deadline_s=5)
        assert threading.active_count() == before
        with ShareGroupAdmin(KafkaConfig(bootstrap_servers=broker.bootstrap_servers)) as admin:
            until(lambda: not any(group.members for group in admin.describe_groups(groups)), what="members left")
        with pytest.raises(ConfigurationError, match=r"'.*' exists already"):
            run_workload(broker.bootstrap_servers, scale=0.01)


@pytest.mark.full
@pytest.mark.broker
@pytest.mark.slow
def test_a_release_that_cannot_serve_every_consumer_is_refused() -> None:
    """Kafka 4.1 fails on half of librdkafka's member ids: the run says so instead of hanging."""
    with EmbeddedBroker("4.1.2") as old, pytest.raises(ConfigurationError, match=r"needs Kafka 4\.2 or later"):
        run_workload(old.bootstrap_servers)


def test_nobody_at_the_address_is_one_clear_error() -> None:
    """No broker: Unreachable, in seconds."""
    with pytest.raises(Unreachable, match=r"no Kafka broker answered at 127\.0\.0\.1:1"):
        run_workload("127.0.0.1:1", deadline_s=5)


@given(st.integers(), st.sampled_from([0.01, 0.1, 0.5]))
def test_the_plan_follows_from_the_seed(seed: int, scale: float) -> None:
    """Equal seeds plan equally, others otherwise; offsets of each log are dense; every record_plan is of a record that
    will be there."""
    scenario = plan_scenario(seed=seed, scale=scale)
    assert scenario == plan_scenario(seed=seed, scale=scale) != plan_scenario(seed=seed + 1, scale=scale)
    assert {plan.script for plan in scenario.groups} == set(GroupScript)
    for topic in scenario.topics:
        for log in topic.logs:
            offsets = [r.offset for wave in topic.waves for r in wave if r.partition == log.partition]
            assert offsets == list(range(topic.end_offset(log.partition)))
    for plan in scenario.groups:
        ends = {log: topic.end_offset(log.partition) for topic in plan.topics for log in topic.logs}
        assert all(offset < ends[log] for log, offset in plan.record_plans)
    plans = [plan for group in scenario.groups for plan in group.record_plans.values()]
    assert {plan.final for plan in plans} == set(Action)
    assert RecordPlan(releases=ALWAYS) in plans


def test_only_confirmed_acknowledgements_settle() -> None:
    """A record stays outstanding until it is accepted, rejected, or released at the delivery count limit."""
    plan = next(plan for plan in plan_scenario(seed=1).groups if plan.group_id == "fraud-scoring")
    (log, offset), _ = next((k, t) for k, t in plan.record_plans.items() if t.releases == ALWAYS)
    ledger = Ledger(plan, limit=3)
    ledger.announce(log, [offset])
    for delivery, left in ((1, 1), (2, 1), (3, 0)):
        entry = ledger.decide(log, offset, delivery)
        assert entry.action is Action.RELEASE
        ledger.confirm([entry])
        assert ledger.outstanding([log]) == left
