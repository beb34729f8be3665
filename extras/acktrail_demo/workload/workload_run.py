"""The demo workload: real share groups at work on a real broker, each with a script of its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

from acktrail.config import KafkaConfig
from acktrail.errors import OutcomeUnknown
from acktrail.kafka.client.error_codes import librdkafka_error
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail_demo.workload.demo_cluster import (
    DemoCluster,
    DemoProducer,
    StateObserver,
    WorkloadDeadline,
    client_properties,
)
from acktrail_demo.workload.scenario import (
    Action,
    GroupPlan,
    GroupScript,
    PartitionLog,
    Scenario,
    TopicPlan,
    plan_scenario,
)

DEFAULT_SEED: Final = 932

Progress = Callable[[str, int, int], None]
"""Called with the present activity, the steps done and all steps; on the caller's thread."""

_SHOW_EVERY_S: Final = 0.1
_ANSWER_MS: Final = 10_000
_POLL_S: Final = 0.25
_LEAVE_S: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmedAck:
    """One confirmed acknowledgement of one delivery."""

    log: PartitionLog
    offset: int
    action: Action
    delivery_count: int


class Ledger:
    """All acknowledgements of a group, and which records are still to be settled. Its members share it.

    `limit` is the delivery count limit: a record that is released at this delivery is archived.
    """

    def __init__(self, plan: GroupPlan, *, limit: int) -> None:
        self.plan, self.limit = plan, limit
        self.confirmed: list[ConfirmedAck] = []
        self.settled = 0
        self._lock = threading.Lock()
        self._pending: dict[PartitionLog, set[int]] = {}

    def outstanding(self, logs: Iterable[PartitionLog]) -> int:
        """Records of these logs that were announced and are not settled."""
        with self._lock:
            return sum(len(self._pending.get(log, ())) for log in logs)

    def announce(self, log: PartitionLog, offsets: Iterable[int]) -> None:
        """These records are to be settled."""
        with self._lock:
            self._pending.setdefault(log, set()).update(offsets)

    def decide(self, log: PartitionLog, offset: int, delivery_count: int) -> ConfirmedAck:
        """What the plan says about this delivery."""
        plan = self.plan.record_plan(log, offset)
        action = Action.RELEASE if delivery_count <= plan.releases else plan.final
        return ConfirmedAck(log=log, offset=offset, action=action, delivery_count=delivery_count)

    def confirm(self, entries: Iterable[ConfirmedAck]) -> None:
        """The broker took these acknowledgements."""
        with self._lock:
            for entry in entries:
                self.confirmed.append(entry)
                pending = self._pending.get(entry.log, set())
                is_final_release = self.plan.record_plan(entry.log, entry.offset).final is Action.RELEASE
                is_last = is_final_release or entry.delivery_count >= self.limit
                if entry.offset in pending and (is_last or entry.action is not Action.RELEASE):
                    pending.remove(entry.offset)
                    self.settled += 1


class ShareMember:
    """A member of the ledger's group, subscribed to `topics`; it leaves the group at the end of its ``with`` block.

    Only the thread that made it may use it.
    """

    def __init__(
        self, config: KafkaConfig, ledger: Ledger, topics: Sequence[TopicPlan], deadline: WorkloadDeadline
    ) -> None:
        self._ledger = ledger
        self._deadline = deadline
        self._group_id = ledger.plan.group_id
        self._logs = tuple(log for topic in topics for log in topic.logs)
        self._incarnations = {topic.name: topic.incarnation for topic in topics}
        own = {"group.id": self._group_id, "share.acknowledgement.mode": "explicit"}
        self._consumer = ShareConsumer({**client_properties(config), **own})

    def __enter__(self) -> Self:
        try:
            with self._translated():
                self._consumer.subscribe(list(self._incarnations))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Leave; a close that does not return (librdkafka 2.16.1, seen once) is left to the session timeout."""

        def close() -> None:
            with contextlib.suppress(KafkaException):
                self._consumer.close()

        closing = threading.Thread(target=close, name="leaving", daemon=True)
        closing.start()
        closing.join(_LEAVE_S)

    def settle_all(self) -> None:
        """Take and settle records until everything that was announced for its topics is settled."""
        self.consume_until(lambda: not self._outstanding())

    def consume_until(self, done: Callable[[], bool]) -> None:
        """Take and settle records until `done` holds.

        Raises WorkloadUnfinished, or OutcomeUnknown when the broker did not say whether it took an acknowledgement.
        """
        while not done():
            self._deadline.check(f"group {self._group_id!r} to settle {self._outstanding()} more records")
            with self._translated():
                messages = self._consumer.poll(_POLL_S)
            self._settle([self._acknowledge(message) for message in messages if message.error() is None])

    def _outstanding(self) -> int:
        return self._ledger.outstanding(self._logs)

    def _acknowledge(self, message: Any) -> ConfirmedAck:
        topic = message.topic()
        log = PartitionLog(topic=topic, incarnation=self._incarnations[topic], partition=message.partition())
        entry = self._ledger.decide(log, message.offset(), message.delivery_count())
        self._consumer.acknowledge(message, AcknowledgeType[entry.action.name])
        return entry

    def _settle(self, entries: Sequence[ConfirmedAck]) -> None:
        """Send the acknowledgements and enter the accepted ones; records of the others are delivered again."""
        if not entries:
            return
        try:
            outcomes = self._consumer.commit_sync(self._deadline.remaining_s)
        except KafkaException as error:
            raise OutcomeUnknown(
                f"group {self._group_id!r}: no answer to an acknowledgement: {error.args[0].str()}",
                hint="start the workload again on a new broker",
            ) from error
        taken = {(place.topic, place.partition) for place, failure in outcomes.items() if failure is None}
        self._ledger.confirm(entry for entry in entries if (entry.log.topic, entry.log.partition) in taken)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise librdkafka_error(error.args[0], operation="READ", kind="group", name=self._group_id) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRun:
    """What was done: the plan, the ids of its topics by name and incarnation, each group's acknowledgements."""

    scenario: Scenario
    topic_ids: Mapping[tuple[str, int], TopicId]
    ledgers: tuple[Ledger, ...]


def run_workload(
    bootstrap_servers: str,
    *,
    scale: float = 1.0,
    fault_partitions: int = 0,
    progress: Progress = lambda _doing, _done, _steps: None,
    deadline_s: float = 120.0,
) -> WorkloadRun:
    """Create topics, produce about ``4,300 * scale`` records and let nine share groups consume them, side by side.

    Equal scales give equal acknowledgements.
    No consumer is left at the end. `fault_partitions`: as in ``plan_scenario``.

    Raises Unreachable; ConfigurationError for Kafka before 4.2; RetryableError when a request failed;
    WorkloadUnfinished when `deadline_s` seconds were not enough: groups and topics remain; OutcomeUnknown when the
    broker did not say whether it took an acknowledgement.
    """
    scenario = plan_scenario(seed=DEFAULT_SEED, scale=scale, fault_partitions=fault_partitions)
    steps = sum(len(wave) for topic in scenario.topics for wave in topic.waves)
    steps += sum(plan.records_to_settle for plan in scenario.groups)
    deadline = WorkloadDeadline(deadline_s)
    config = KafkaConfig(bootstrap_servers=bootstrap_servers, request_timeout_ms=_ANSWER_MS)
    progress("connecting", 0, steps)
    cluster = DemoCluster(config, deadline)
    with contextlib.closing(StateObserver(config, deadline)) as observer:
        scripts = _set_up(scenario, cluster, observer, deadline)
        ledgers = [Ledger(plan, limit=cluster.configure_group(plan.group_id, plan.configs)) for plan in scenario.groups]

        def show(doing: str) -> None:
            progress(doing, scripts.producer.written + sum(ledger.settled for ledger in ledgers), steps)

        _side_by_side([partial(scripts.write_first_waves, scenario)], deadline, partial(show, "producing"))
        _side_by_side([partial(scripts.run, ledger) for ledger in ledgers], deadline, partial(show, "consuming"))
    cluster.wait_until_empty([plan.group_id for plan in scenario.groups if plan.script is not GroupScript.DELETE_GROUP])
    show("done")
    return WorkloadRun(scenario=scenario, topic_ids=scripts.topic_ids, ledgers=tuple(ledgers))


def _set_up(
    scenario: Scenario, cluster: DemoCluster, observer: StateObserver, deadline: WorkloadDeadline
) -> GroupScripts:
    """Create every topic's first incarnation."""
    first = {topic.name: topic.partitions for topic in scenario.topics if topic.incarnation == 1}
    return GroupScripts(
        cluster=cluster,
        producer=DemoProducer(cluster.config, deadline),
        observer=observer,
        deadline=deadline,
        topic_ids={(name, 1): topic_id for name, topic_id in cluster.create_topics(first).items()},
    )


def _side_by_side(jobs: Sequence[Callable[[], None]], deadline: WorkloadDeadline, show: Callable[[], None]) -> None:
    """Do all jobs at once and call `show` meanwhile. The first failure stops the others and is raised."""
    with ThreadPoolExecutor(len(jobs), thread_name_prefix="group") as pool:
        pending = {pool.submit(job) for job in jobs}
        try:
            while pending:
                done, pending = wait(pending, timeout=_SHOW_EVERY_S, return_when=FIRST_EXCEPTION)
                show()
                for future in done:
                    future.result()
        except BaseException:
            deadline.stop()
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScripts:
    """What happens to each group, from its first consumer to its last answer; no member is left at the end.

    `topic_ids` are by name and incarnation: a script enters the topic that it creates again.
    """

    cluster: DemoCluster
    producer: DemoProducer
    observer: StateObserver
    deadline: WorkloadDeadline
    topic_ids: dict[tuple[str, int], TopicId]

    def write_first_waves(self, scenario: Scenario) -> None:
        """Produce the records that exist before the first consumer joins."""
        for topic in scenario.topics:
            if topic.incarnation == 1 and topic.waves:
                self.producer.write(topic.name, topic.waves[0])

    def run(self, ledger: Ledger) -> None:
        """Run the script of the ledger's group."""
        plan = ledger.plan
        match plan.script:
            case GroupScript.STOP_AND_LAG:
                self._stop_and_lag(ledger)
            case GroupScript.NEVER_START:  # joined and initialized, but without a record
                keys = self._keys(ledger, plan.topics)
                with self._member(ledger, plan.topics) as member:
                    member.consume_until(lambda: self.observer.has_state(keys))
            case GroupScript.RECREATE_TOPIC:
                self._recreate_topic(ledger)
            case _:
                self._consume(ledger, plan.topics)
                if plan.script is GroupScript.DELETE_GROUP:
                    self.cluster.delete_group(plan.group_id)
                    self.observer.wait(self._keys(ledger, plan.topics), deleted=True)
                self._delete_topics(ledger)

    def _stop_and_lag(self, ledger: Ledger) -> None:
        """Consume the first wave, then a little of the second, release its rest and leave before the others."""
        (topic,) = topics = ledger.plan.topics
        _announce(ledger, topics, waves=1)
        with self._member(ledger, topics) as member:
            member.settle_all()
            for record in topic.waves[1]:
                ledger.announce(topic.logs[record.partition], [record.offset])
            self.producer.write(topic.name, topic.waves[1])
            member.settle_all()
        for wave in topic.waves[2:]:
            self.producer.write(topic.name, wave)

    def _recreate_topic(self, ledger: Ledger) -> None:
        """Consume a topic, delete it, and consume the new topic of its name."""
        before, after = ledger.plan.topics
        self._consume(ledger, (before,))
        self._delete_topics(ledger)
        created = self.cluster.create_topics({after.name: after.partitions})
        self.topic_ids[after.name, after.incarnation] = created[after.name]
        for wave in after.waves:
            self.producer.write(after.name, wave)
        self._consume(ledger, (after,))

    def _consume(self, ledger: Ledger, topics: Sequence[TopicPlan]) -> None:
        """All members settle everything that these topics will ever hold, side by side."""
        _announce(ledger, topics)

        def settle() -> None:
            with self._member(ledger, topics) as member:
                member.settle_all()

        with ThreadPoolExecutor(ledger.plan.members, thread_name_prefix="member") as pool:
            for future in [pool.submit(settle) for _ in range(ledger.plan.members)]:
                future.result()
        self.observer.wait(self._keys(ledger, topics))

    def _delete_topics(self, ledger: Ledger) -> None:
        gone = ledger.plan.deleted_topics
        for topic in gone:
            self.cluster.delete_topic(topic.name)
        self.observer.wait(self._keys(ledger, gone), deleted=True)

    def _member(self, ledger: Ledger, topics: Sequence[TopicPlan]) -> ShareMember:
        return ShareMember(self.cluster.config, ledger, topics, self.deadline)

    def _keys(self, ledger: Ledger, topics: Iterable[TopicPlan]) -> tuple[SharePartition, ...]:
        """The share partitions of a group on topics."""
        group_id, logs = GroupId(ledger.plan.group_id), [log for topic in topics for log in topic.logs]
        ids = [self.topic_ids[log.topic, log.incarnation] for log in logs]
        return tuple(
            SharePartition(group_id=group_id, topic_id=topic_id, partition=log.partition)
            for topic_id, log in zip(ids, logs, strict=True)
        )


def _announce(ledger: Ledger, topics: Iterable[TopicPlan], *, waves: int | None = None) -> None:
    for topic in topics:
        for log in topic.logs:
            ledger.announce(log, range(topic.end_offset(log.partition, waves=waves)))
