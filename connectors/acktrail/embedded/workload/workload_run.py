"""The demo workload: real share groups at work on a real broker, and an exact account of what they did.

::

    python -m acktrail.embedded.workload.workload_run --bootstrap-server localhost:9092 --out report.json
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Final

from acktrail.config import KafkaConfig, read_properties
from acktrail.embedded.workload.demo_cluster import DemoCluster
from acktrail.embedded.workload.group_scripts import WorkloadContext, count_to_settle, deleted_topics, run_script
from acktrail.embedded.workload.ledger import Ledger, action_ranges, fate_ranges
from acktrail.embedded.workload.producer import DemoProducer
from acktrail.embedded.workload.scenario import GroupScript, Scenario, plan_scenario
from acktrail.embedded.workload.state_observer import StateObserver
from acktrail.embedded.workload.workload_deadline import WorkloadDeadline
from acktrail.embedded.workload.workload_report import GroupRun, SharePartitionRun, TopicRun, WorkloadReport
from acktrail.errors import AcktrailError, ConfigurationError
from acktrail.stderr_lines import StepLines

DEFAULT_SEED: Final = 932

Progress = Callable[[str, int, int], None]
"""Called with the present activity, the steps done and all steps; on the caller's thread."""

_SHOW_EVERY_S: Final = 0.1
_ANSWER_MS: Final = 10_000
_INTERRUPTED: Final = 130


def run_workload(
    bootstrap_servers: str,
    *,
    seed: int = DEFAULT_SEED,
    scale: float = 1.0,
    prefix: str = "",
    progress: Progress = lambda _doing, _done, _steps: None,
    deadline_s: float = 120.0,
    properties: Mapping[str, str] | None = None,
) -> WorkloadReport:
    """Create topics, produce about ``4,300 * scale`` records and let nine share groups consume them, side by side.

    Equal seeds and scales give equal actions and fates. Every group and topic name starts with `prefix`.
    No consumer is left at the end. `properties` are Kafka's own client properties (TLS, SASL).

    Raises:
        Unreachable: when no broker answers.
        ConfigurationError: for Kafka before 4.2, or when one of the topics exists.
        NotAuthorized: when an ACL is missing.
        WorkloadUnfinished: when `deadline_s` seconds were not enough; groups and topics remain.
        OutcomeUnknown: when the broker did not say whether it took an acknowledgement.
    """
    begun = time.monotonic()
    scenario = plan_scenario(seed=seed, scale=scale, prefix=prefix)
    deadline = WorkloadDeadline(deadline_s)
    config = KafkaConfig(
        bootstrap_servers=bootstrap_servers, properties=dict(properties or {}), request_timeout_ms=_ANSWER_MS
    )
    steps = _Steps(scenario, progress)
    steps.show("connecting")
    cluster = DemoCluster(config, deadline)
    with contextlib.closing(StateObserver(config, deadline)) as observer:
        context = _set_up(scenario, cluster, observer, deadline)
        ledgers = [Ledger(plan, limit=cluster.configure_group(plan.group_id, plan.configs)) for plan in scenario.groups]
        steps.follow(context.producer, ledgers)
        _side_by_side([partial(_write_first_waves, scenario, context)], deadline, partial(steps.show, "producing"))
        _side_by_side(
            [partial(run_script, context, led) for led in ledgers], deadline, partial(steps.show, "consuming")
        )
    cluster.wait_until_empty([plan.group_id for plan in scenario.groups if plan.script is not GroupScript.DELETE_GROUP])
    steps.show("done")
    return _report(scenario, context, ledgers, elapsed_s=time.monotonic() - begun)


class _Steps:
    """Counts records written and records settled."""

    def __init__(self, scenario: Scenario, progress: Progress) -> None:
        self._progress = progress
        self._all = sum(len(wave) for topic in scenario.topics for wave in topic.waves)
        self._all += sum(count_to_settle(plan) for plan in scenario.groups)
        self._producer: DemoProducer | None = None
        self._ledgers: Sequence[Ledger] = ()

    def follow(self, producer: DemoProducer, ledgers: Sequence[Ledger]) -> None:
        self._producer, self._ledgers = producer, ledgers

    def show(self, doing: str) -> None:
        written = self._producer.written if self._producer else 0
        self._progress(doing, written + sum(ledger.settled for ledger in self._ledgers), self._all)


def _set_up(
    scenario: Scenario, cluster: DemoCluster, observer: StateObserver, deadline: WorkloadDeadline
) -> WorkloadContext:
    """Create every topic's first incarnation."""
    first = {topic.name: topic.partitions for topic in scenario.topics if topic.incarnation == 1}
    there = sorted(cluster.topic_names() & first.keys())
    if there:
        raise ConfigurationError(
            f"topic {there[0]!r} exists already", hint="start a new broker, or choose another prefix"
        )
    return WorkloadContext(
        cluster=cluster,
        producer=DemoProducer(cluster.config, deadline),
        observer=observer,
        deadline=deadline,
        topic_ids={(name, 1): topic_id for name, topic_id in cluster.create_topics(first).items()},
    )


def _write_first_waves(scenario: Scenario, context: WorkloadContext) -> None:
    """Produce the records that exist before the first consumer joins."""
    for topic in scenario.topics:
        if topic.incarnation == 1 and topic.waves:
            context.producer.write(topic.name, topic.waves[0])


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


def _report(
    scenario: Scenario, context: WorkloadContext, ledgers: Sequence[Ledger], *, elapsed_s: float
) -> WorkloadReport:
    gone = {(topic.name, topic.incarnation) for plan in scenario.groups for topic in deleted_topics(plan)}
    return WorkloadReport(
        seed=scenario.seed,
        scale=scenario.scale,
        prefix=scenario.prefix,
        cluster_id=context.cluster.cluster_id,
        elapsed_s=round(elapsed_s, 3),
        topics=tuple(
            TopicRun(
                name=topic.name,
                incarnation=topic.incarnation,
                topic_id=context.topic_ids[topic.name, topic.incarnation],
                end_offsets=tuple(topic.end_offset(partition) for partition in range(topic.partitions)),
                deleted=(topic.name, topic.incarnation) in gone,
            )
            for topic in scenario.topics
        ),
        groups=tuple(
            GroupRun(
                group_id=ledger.plan.group_id,
                story=ledger.plan.script,
                delivery_count_limit=ledger.limit,
                deleted=ledger.plan.script is GroupScript.DELETE_GROUP,
            )
            for ledger in ledgers
        ),
        share_partitions=tuple(run for ledger in ledgers for run in _share_partitions(context, ledger)),
    )


def _share_partitions(context: WorkloadContext, ledger: Ledger) -> Iterator[SharePartitionRun]:
    plan = ledger.plan
    for topic in plan.topics:
        deleted = plan.script is GroupScript.DELETE_GROUP or topic in deleted_topics(plan)
        for log in topic.logs:
            entries, end_offset = ledger.of(log), topic.end_offset(log.partition)
            yield SharePartitionRun(
                group_id=plan.group_id,
                topic=topic.name,
                incarnation=topic.incarnation,
                topic_id=context.topic_ids[topic.name, topic.incarnation],
                partition=log.partition,
                log_end_offset=end_offset,
                deleted=deleted,
                actions=action_ranges(entries),
                fates=fate_ranges(entries, end_offset=end_offset, limit=ledger.limit),
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: 0, or the error's exit code."""
    parser = argparse.ArgumentParser(prog="python -m acktrail.embedded.workload.workload_run", description=_summary())
    parser.add_argument("--bootstrap-server", required=True, help="host:port of a broker, Kafka 4.2 or later")
    parser.add_argument("--out", required=True, type=Path, help="file for the report, JSON")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--scale", type=float, default=1.0, help="how many times 4,300 records (default 1)")
    parser.add_argument("--prefix", default="", help="what the names of topics and groups start with")
    parser.add_argument("--deadline", type=float, default=120.0, help="seconds (default 120)")
    parser.add_argument("--client-config", type=Path, help="key=value lines for the Kafka clients")
    options = parser.parse_args(arguments)
    try:
        report = _run_with_progress(options)
        report.write(options.out)
    except AcktrailError as error:
        sys.stderr.write(f"error: {error.message}\n" + f"hint: {error.hint}\n" * bool(error.hint))
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except OSError as error:
        sys.stderr.write(f"error: cannot write {options.out}: {error.strerror}\n")
        return ConfigurationError.exit_code
    sys.stdout.write(f"{len(report.groups)} share groups, {report.elapsed_s:.1f} s, written to {options.out}\n")
    return 0


def _summary() -> str:
    return "Let nine share groups work on a broker and record exactly what they did."


def _run_with_progress(options: argparse.Namespace) -> WorkloadReport:
    properties = read_properties(options.client_config) if options.client_config else {}
    with StepLines() as lines:
        return run_workload(
            options.bootstrap_server,
            seed=options.seed,
            scale=options.scale,
            prefix=options.prefix,
            progress=lines.count,
            deadline_s=options.deadline,
            properties=properties,
        )


if __name__ == "__main__":
    sys.exit(main())
