"""``acktrail groups metrics``: what a scraper gets while brokers answer, and while they do not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from drivers.own_process import finished, free_port
from prometheus_client.parser import text_string_to_metric_families
from servers.workload import Workload, until
from view.alert_cases import RULES

from acktrail.config import KafkaConfig, environment
from acktrail.view.live_metrics import LiveMetrics
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

ACKTRAIL: Final = Path(sys.executable).with_name("acktrail")
UP: Final = "kafka_share_group_exporter_up"


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Labels and values of the series, by name."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@contextmanager
def served(*options: str) -> Iterator[str]:
    """The address of a running command."""
    command = [ACKTRAIL, "groups", "metrics", "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            yield next(line.split()[-1] for line in lines if line.startswith("metrics at "))
        finally:
            process.terminate()
    assert process.returncode == 0


def scraped(address: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return samples(answer.read().decode())


@pytest.mark.broker
def test_a_group_is_served_with_the_numbers_that_describe_shows(broker: EmbeddedBroker, workload: Workload) -> None:
    """Lag by group, topic and partition, members, state, start offset, bounds of the age: by the command once, and at
    its address."""
    group, topic = f"g{uuid4()}", f"t{uuid4()}"
    workload.create_topic(topic)
    workload.produce(topic, 5)
    workload.acknowledge(group, topic, 2)
    place = ("--bootstrap-server", broker.bootstrap_servers)
    once = finished(ACKTRAIL, "groups", "metrics", *place)
    assert once.returncode == 0, once.stderr
    with served(*place) as address:
        at_address = until(lambda: (seen := scraped(address)).get("kafka_share_group_lag") and seen, what="a group")
    for found in (samples(once.stdout), at_address):
        own = {
            name: [(labels, value) for labels, value in rows if labels.get("group") == group]
            for name, rows in found.items()
        }
        where = {"group": group, "topic": topic, "partition": "0"}
        assert own["kafka_share_group_lag"] == [(where, 3)]
        assert own["kafka_share_group_lag_sum"] == [({"group": group}, 3)]
        assert [labels for labels, _ in own["kafka_share_group_start_offset"]] == [where]
        assert {labels["bound"] for labels, _ in own["kafka_share_group_oldest_unfinished_age_seconds"]} == {
            "at_least",
            "at_most",
        }
        assert own["kafka_share_group_members"] == [({"group": group}, 0)]
        assert [labels["state"] for labels, value in own["kafka_share_group_state"] if value] == ["Empty"]
        assert found[UP] == [({}, 1)]


def test_while_no_broker_answers_no_group_has_a_series() -> None:
    """``up`` says so; nothing that was seen before is served as new."""
    notices: list[str] = []
    metrics = LiveMetrics(
        KafkaConfig(bootstrap_servers=f"127.0.0.1:{free_port()}", request_timeout_ms=1_000), 30, notices.append
    )
    metrics.look()
    metrics.look()
    names = {family.name: [sample.value for sample in family.samples] for family in metrics.collect()}
    assert names == {"acktrail_build_info": [1], UP: [0]}
    assert len(notices) == 1


@pytest.mark.broker
def test_what_was_seen_long_ago_is_not_served(broker: EmbeddedBroker) -> None:
    """A look that hangs makes no old number look new."""
    with LiveMetrics(broker.config(), every_s=0.0) as metrics:
        metrics.look()
        assert {family.name for family in metrics.collect()} == {"acktrail_build_info", UP}


@pytest.mark.broker
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed (Debian: prometheus)")
def test_prometheus_scrapes_it_with_all_alert_rules(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """The target is up, its series are there, and every rule is healthy, by Prometheus' own pages."""
    with served("--bootstrap-server", broker.bootstrap_servers) as address:
        target = address.removeprefix("http://").removesuffix("/metrics")
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "acktrail-groups", "static_configs": [{"targets": [target]}]}],
        }
        (tmp_path / "prometheus.yml").write_text(json.dumps(config))  # YAML, too
        with prometheus(tmp_path) as server:
            until(lambda: asked(server, "query", query=UP)["result"], what="a scrape")
            (scrape,) = asked(server, "targets")["activeTargets"]
            assert (scrape["health"], scrape["lastError"]) == ("up", "")
            rules = until(lambda: evaluated(server), what="the rules to be evaluated")
            assert {rule["health"] for rule in rules} == {"ok"}
            assert len(rules) == RULES.read_text("utf-8").count("alert: ")


def evaluated(server: str) -> list[dict[str, Any]]:
    """All rules, once none is new."""
    rules = [rule for group in asked(server, "rules")["groups"] for rule in group["rules"]]
    return [] if any(rule["health"] == "unknown" for rule in rules) else rules


def asked(server: str, what: str, **query: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{server}/api/v1/{what}?{urlencode(query)}", timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)["data"]
    return found


@contextmanager
def prometheus(folder: Path) -> Iterator[str]:
    """A server of its own, with ``prometheus.yml`` in `folder`."""
    address = f"127.0.0.1:{free_port()}"
    files = (f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}")
    with subprocess.Popen(
        ["prometheus", *files, f"--web.listen-address={address}"], stderr=subprocess.DEVNULL
    ) as server:
        try:
            until(partial(is_ready, f"http://{address}/-/ready"), what="Prometheus")
            yield f"http://{address}"
        finally:
            server.terminate()


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=60):
            return True
    except OSError:
        return False
