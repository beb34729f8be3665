"""The rules for the JMX exporter against what a real broker of the newest release has: each metric of share groups that
Kafka documents becomes one series with the right labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from confluent_kafka import AcknowledgeType
from confluent_kafka.admin import NewTopic
from drivers.own_process import printed
from oracle.kafka_classes import compile_java
from prometheus_client.parser import text_string_to_metric_families
from servers.fetched_jars import fetched_jars
from servers.workload import Workload, until

from acktrail.java import find_java
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail_embedded import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

RULES: Final = Path(__file__).parents[2] / "dashboards/prometheus/jmx-exporter.yml"
GROUP: Final = 'bil,ling="x", topic=other'
DOCUMENTED: Final = Path(__file__).with_name("jmx_metrics.txt").read_text("utf-8").splitlines()
"""Kafka's documented metrics of share groups (docs/operations/monitoring.md), and those of dead letters that it does
not document. Left out are rates (`write-rate`, `share-group-rebalance-rate`): Prometheus has them of the counters."""

NOT_HERE: Final = frozenset(
    {
        "kafka_share_topic_failed_fetch_requests_total",  # nothing failed
        "kafka_share_topic_failed_acknowledgement_requests_total",
        "kafka_share_group_failed_dead_letter_produce_requests_total",
        "kafka_share_coordinator_thread_idle_ratio_min",  # documented; the release does not have it
    }
)


_JAR: Final = {
    ("io.prometheus.jmx", "jmx_prometheus_javaagent", "1.0.1"): (
        "7d61f737fd661610ccc14aea79764faa1ea94a340cbc8f0029b3d2edea3d80c1"
    )
}
_PROGRAM: Final = Path(__file__).with_name("ShareMetrics.java")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMetrics:
    """`beans`: attributes of MBeans in the form that the exporter's patterns are about; `text`: what it shows."""

    beans: tuple[str, ...]
    text: str


def ask(pid: int, rules: Path, folder: Path) -> BrokerMetrics:
    """What the exporter makes of the JVM `pid` by the file of `rules`; skips the test without a JDK or the exporter."""
    jar = f"{fetched_jars('jmx-exporter', _JAR)}/*"
    if not (folder / "ShareMetrics.class").exists():
        compile_java(jar, folder, _PROGRAM)
    command = [find_java(), "-XX:TieredStopAtLevel=1", "-cp", f"{folder}:{jar}", "ShareMetrics", str(pid), rules]
    lines = printed(*command).splitlines()
    beans = [line.removeprefix("mbean ") for line in lines if line.startswith("mbean ")]
    return BrokerMetrics(
        beans=tuple(map(_exporter_form, beans)), text="\n".join(line for line in lines if not line.startswith("mbean "))
    )


def _exporter_form(bean: str) -> str:
    """``kafka.server:type=A,name=B`` and an attribute as ``kafka.server<type=A, name=B><>attribute``."""
    name, _, attribute = bean.partition("\t")
    domain, _, rest = name.partition(":")
    parts = re.findall(r'(?:"(?:\\.|[^"])*"|[^,"])+', rest)
    return f"{domain}<{', '.join(parts)}><>{attribute}"


@cache
def rules() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(RULES.read_text("utf-8"))["rules"]
    return found


def rule_of(name: str) -> dict[str, Any] | None:
    """The first rule whose pattern the exporter finds in `name`."""
    return next((rule for rule in rules() if re.search(rule["pattern"], name)), None)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerMetrics]:
    """Of a broker on which a member holds records, rejected others, and a state partition was pruned."""
    often = {"state.topic.prune.interval.ms": "500", "snapshot.update.records.per.snapshot": "2"}
    changes = {f"share.coordinator.{name}": value for name, value in often.items()}
    with EmbeddedBroker("4.4.0", properties=changes) as broker:
        workload = Workload(broker.config())
        workload.create_topic("orders.eu-1")
        letters = NewTopic("dlq.letters", 1, 1, config={"errors.deadletterqueue.group.enable": "true"})
        for future in workload.admin.create_topics([letters]).values():
            future.result()
        workload.configure_group(GROUP, errors_deadletterqueue_topic_name="dlq.letters")
        workload.produce("orders.eu-1", 20)
        workload.acknowledge(GROUP, "orders.eu-1", 5)
        with (
            workload.share_consumer(GROUP, "orders.eu-1", **{"share.acknowledgement.mode": "explicit"}) as member,
            ShareGroupAdmin(broker.config()) as admin,
        ):
            held = until(lambda: list(member.poll(0.5) or ()), what="records")
            for message in held[:3]:
                member.acknowledge(message, AcknowledgeType.REJECT)
            member.commit_sync()
            assert admin.describe_groups([GROUP])[0].members
            pid = broker.pid
            assert pid is not None
            asked = partial(ask, pid, RULES, tmp_path_factory.mktemp("classes"))
            yield until(lambda: _with_all(asked()), timeout_s=90, what="pruning and dead letters")


def _with_all(metrics: BrokerMetrics) -> BrokerMetrics | None:
    wanted = ("last-pruned-offset", "DeadLetterQueueRecordCount", "SharePartitionMetrics")
    return metrics if all(any(each in bean for bean in metrics.beans) for each in wanted) else None


def families(metrics: BrokerMetrics) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(metrics.text):
        for sample in family.samples:
            if sample.name.startswith("kafka"):
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_every_documented_metric_has_a_rule() -> None:
    """And every rule is of a documented metric, or of one that two orders of its keys lead to."""
    used = [rule_of(name) for name in DOCUMENTED]
    assert [name for name, rule in zip(DOCUMENTED, used, strict=True) if rule is None] == []
    unused = {rule["name"] for rule in rules()} - {rule["name"] for rule in used if rule is not None}
    assert unused == {"kafka_share_coordinator_event_queue_size"}


def test_what_the_broker_has_is_shown(shown: BrokerMetrics) -> None:
    """Counts, values and the percentiles; rates over minutes are Prometheus's own work. Each rule gives a series,
    except of what did not happen. A group with the separators of JMX in its name is a label's value (JMX keeps the
    backslash before its quotes), never part of a metric. Times are in seconds."""
    counted = re.compile(r"><>(Count|Value|Max|50thPercentile|num-partitions|(share-)?group-count)$")
    ours = re.compile(
        r"type=(Share\w+Metrics|ShareSessionCache|DelayedShareFetchMetrics)\b|delayedOperation=ShareFetch"
    )
    mine = [each for each in shown.beans if ours.search(each) and counted.search(each)]
    found = families(shown)
    assert len(mine) > 20
    assert [each for each in mine if rule_of(each) is None] == []
    assert {rule["name"] for rule in rules()} - found.keys() == NOT_HERE
    places = {tuple(sorted(labels.items())) for labels, _ in found["kafka_share_partition_in_flight_records"]}
    group = GROUP.replace('"', '\\"')
    assert places == {(("group", group), ("partition", "0"), ("topic", "orders.eu-1"))}
    assert {labels["group"] for labels, _ in found["kafka_share_group_acquire_max_seconds"]} == {group}
    by_type = {labels["type"]: value for labels, value in found["kafka_share_record_acknowledgements_total"]}
    assert (by_type["Accept"], by_type["Reject"]) == (5, 3)
    assert found["kafka_share_group_dead_letter_records_total"][0][1] == 3
    assert found["kafka_share_partition_in_flight_records"][0][1] == 12
    assert 0 < found["kafka_share_partition_load_max_seconds"][0][1] < 60
