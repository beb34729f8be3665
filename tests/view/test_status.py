"""``acktrail status``: one screen that shows the worst first, and an exit code that a script can rely on. ``acktrail
findings``: what is open, by names, with the record that shows it. One run is said alike on the command line, in the
report, on the web, on a terminal and in messages."""

from __future__ import annotations

import datetime as dt
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from html import unescape
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pyarrow as pa
import pytest
from drivers.command_line import Done, loaded, run
from drivers.own_process import finished
from samples.health_tables import CLUSTER, HOSTILE, HealthTables
from servers.web_server import web_server

from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.queue_status import STATUS_TABLE, QueueStatus, Urgency
from acktrail.tables.open_findings import newest_audits
from acktrail.text_tables import printable, shortened
from acktrail.view.cluster_health import ClusterHealth
from acktrail.view.notifications import changed
from acktrail.view.queue_rows import worst_first
from acktrail.view.run_summary import summarize, trouble
from acktrail_dashboard.report import read_run, render_html, render_text
from acktrail_dashboard.web.application import create_app

BROKEN = {"rule": "live_ahead", "severity": "error", "group_id": "billing", "topic_id": "T-1", "partition": 4}
WHOLE = {"rule": "export_complete", "severity": "critical", "subject": "state partition 3, offsets 0 to 9"}


@pytest.fixture
def health(tmp_path: Path) -> HealthTables:
    found = HealthTables(tmp_path / "tables")
    found.exported(1)
    return found


def status(health: HealthTables, capsys: pytest.CaptureFixture[str], *arguments: str) -> Done:
    return run(capsys, "status", *arguments, "--tables", health.config.uri)


def as_json(health: HealthTables, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    (found,) = status(health, capsys, "--json", *arguments).rows
    return found


def test_the_worst_is_on_top(health: HealthTables, capsys: pytest.CaptureFixture[str]) -> None:
    """Freshness and completeness, then groups by their worst share partition, then the share partitions in trouble with
    the reason; quiet ones are only counted."""
    health.exported(30, reason="pruned", lost=1_200)
    quiet = [health.queue("fine", "ok", partition=n) for n in range(3)]
    slow = health.queue("slow", "lagging", unfinished_records=7_000, minutes=120)
    worst = [
        health.queue("billing", "stuck", unfinished_records=12, minutes=180),
        health.queue("billing", "ok", partition=7, unfinished_records=None),
    ]
    health.reconciled([*quiet, slow, *worst], [{"rule": "past_log_end", "severity": "error"}])
    health.changed(180, "billing", "ok", "stuck")
    health.changed(60 * 30, "billing", "idle", "ok")

    done = status(health, capsys)

    lines = done.stdout.splitlines()
    assert done.code == 6
    assert lines[0].startswith("billing stuck since ")
    assert lines[0].endswith(" UTC, and 1 other group in trouble.")
    assert lines[1] == "cluster   cluster-1"
    assert "not complete: 1 gap(s) pruned (1,200 offsets, the newest 30 min ago)" in lines[2]
    assert lines[4] == "findings  1 error"
    assert lines[5].endswith("3 group(s), 1 stuck, 1 lagging, 1 ok; 6 share partition(s)")
    assert lines[6] == "changes   1 in 24 h, the newest 3 h ago: billing orders 0 from ok to stuck"
    tables = done.stdout.split("\n\n")
    assert [line.split()[0] for line in tables[1].splitlines()] == ["GROUP", "billing", "slow", "fine"]
    assert tables[1].splitlines()[1].split()[1:] == ["stuck", "3", "h", "ago", "1", "of", "2", ">=12"]
    assert [line.split()[0] for line in tables[2].splitlines()] == ["GROUP", "billing", "slow"]
    assert tables[2].splitlines()[1].endswith(f"it is stuck. What to do: {STATUS_TABLE[QueueStatus.STUCK].advice}.")
    assert lines[-1] == "act on: 1 share partition(s) stuck: `acktrail groups describe billing`"
    billing, slow, _ = as_json(health, capsys)["groups"]
    assert (billing["unfinished_records"], billing["known_unfinished_records"]) == (None, 12)
    assert slow["unfinished_records"] == slow["known_unfinished_records"] == 7_000


def test_the_exit_code_is_the_urgency_of_the_worst_status(health: HealthTables) -> None:
    """There is something to act on where a status asks for action, and not of the others."""
    for status, row in STATUS_TABLE.items():
        rows = [{"group_id": group, "status": each} for group, each in (("g", status.value), ("h", "ok"))]
        table = pa.Table.from_pylist(rows, schema=TABLES["queue_statuses"])
        found = ClusterHealth(queues=worst_first(table)).to_act_on(health.now, dt.timedelta(hours=1))
        assert bool(found) == (row.urgency is Urgency.ACT), status


def test_what_is_not_known_is_something_to_act_on(health: HealthTables, capsys: pytest.CaptureFixture[str]) -> None:
    """No reconciliation, an old export, statuses that cannot be read: never 0, and the reason is there."""
    fresh = status(health, capsys)
    assert (fresh.code, "nothing was reconciled yet" in fresh.stdout) == (6, True)
    health.reconciled([health.queue("g", "ok")], minutes=200)
    assert "the statuses ended 3 h 20 min ago" in status(health, capsys).stdout
    assert status(health, capsys, "--stale-after", "1d").code == 0
    shutil.rmtree(Path(health.config.uri) / "queue_statuses" / "_delta_log")
    (Path(health.config.uri) / "queue_statuses" / "_delta_log").mkdir()
    (Path(health.config.uri) / "queue_statuses" / "_delta_log" / f"{0:020d}.json").write_text("no JSON")
    gone = as_json(health, capsys, "--stale-after", "1d")
    assert gone["statuses"] is None
    assert gone["unknown"]["queues"] in gone["act_on"]
    assert gone["verdicts"] == {"match": 1}


def test_a_pipe_has_no_width(health: HealthTables) -> None:
    """Where no terminal shows it, each row is one line, however long its reason."""
    reason = "the start offset does not move " * 20
    health.reconciled([{**health.queue("g", "stuck"), "reason": reason}])
    command = [str(Path(sys.executable).with_name("acktrail")), "status", "--tables", health.config.uri]
    assert reason.strip() in finished(*command, env={**os.environ, "COLUMNS": "80"}).stdout


def test_a_critical_finding_is_something_to_act_on(health: HealthTables, capsys: pytest.CaptureFixture[str]) -> None:
    """While it is open: the run after that does not see it."""
    health.reconciled([health.queue("g", "ok")], [{"rule": "export_complete", "severity": "critical"}], run_id="run-1")
    assert as_json(health, capsys)["act_on"] == ["1 critical finding(s): `acktrail findings --severity critical`"]
    health.reconciled([health.queue("g", "ok")], run_id="run-2")
    with patch("acktrail.tables.open_findings.newest_audits", wraps=newest_audits) as asked:
        assert as_json(health, capsys)["act_on"] == []
    assert asked.call_count == 1, "which findings are open is read once"


def test_groups_are_chosen_by_pattern(health: HealthTables, capsys: pytest.CaptureFixture[str]) -> None:
    """What is to be acted on is then of those groups alone."""
    seen = {"rule": "missing_state", "severity": "critical"}
    rows = [health.queue("fraud-1", "ok"), health.queue("fraud-2", "lagging"), health.queue("billing", "stuck")]
    health.reconciled(rows, [{**seen, "group_id": "billing"}])
    chosen = as_json(health, capsys, "--group", "fraud-*")
    assert [each["group_id"] for each in chosen["groups"]] == ["fraud-2", "fraud-1"]
    assert (chosen["act_on"], chosen["findings"], len(chosen["in_trouble"])) == ([], [], 1)
    assert len(as_json(health, capsys, "--group", "fraud-*", "--group", "billing")["groups"]) == 3


def test_a_screen_is_not_longer_than_the_terminal(health: HealthTables, capsys: pytest.CaptureFixture[str]) -> None:
    """Of many groups the worst are shown, and how many more there are."""
    health.reconciled([health.queue(f"g{n:03}", "stuck", unfinished_records=n) for n in range(200)])
    lines = status(health, capsys).stdout.splitlines()
    assert len(lines) <= 60
    assert lines[8].startswith("g199")
    for what in ("group(s)", "share partition(s) in trouble"):
        (left_out,) = [int(line.split()[1]) for line in lines if line.endswith(f"more {what}; --json has all")]
        assert 170 < left_out < 190


def watched(health: HealthTables, out: int, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "acktrail.cli.main", "status", "--watch", "--every", "1s", *arguments]
    size = {"COLUMNS": "100", "LINES": "30"}
    return subprocess.Popen(
        [*command, "--tables", health.config.uri], stdout=out, stderr=subprocess.PIPE, env=os.environ | size
    )


def read_to_the_end(terminal: int) -> None:
    """Until nothing has it open for writing."""
    with suppress(OSError):
        while os.read(terminal, 65_536):
            pass


def read_until(descriptor: int, is_there: Callable[[str], bool]) -> str:
    seen = ""
    while not is_there(seen):
        read = os.read(descriptor, 65_536)
        assert read, f"the other side ended after {seen!r}"
        seen += read.decode()
    return seen


def test_watching(health: HealthTables) -> None:
    """A terminal is drawn again, a pipe gets a line each time; both see what a run writes meanwhile, and end by
    Ctrl-C."""
    health.reconciled([health.queue("g", "ok")])
    controller, terminal = pty.openpty()
    reader, writer = os.pipe()
    watchers = [watched(health, terminal), watched(health, writer)]
    os.close(writer)
    try:
        drawn = read_until(controller, lambda seen: "nothing to act on" in seen)
        read_until(reader, lambda seen: "groups: 1 ok; nothing to act on\n" in seen)
        health.reconciled([health.queue("g", "stuck")], run_id="run-3")
        drawn += read_until(controller, lambda seen: "act on: 1 share partition(s) stuck" in seen)
        read_until(reader, lambda seen: "groups: 1 stuck; 1 share partition(s) stuck: `acktrail" in seen)
        assert drawn.count("\x1b[H\x1b[2J") >= 2
    finally:
        os.close(terminal)
        reading = threading.Thread(target=read_to_the_end, args=(controller,))  # a terminal takes a few pictures only
        reading.start()
        for watcher in watchers:
            watcher.send_signal(signal.SIGINT)
        ends = [watcher.communicate(timeout=60) and watcher.returncode for watcher in watchers]
        reading.join()
        for descriptor in (controller, reader):
            os.close(descriptor)
    assert ends == [130, 130]


def test_it_starts_without_heavy_packages(health: HealthTables) -> None:
    """Neither pandas nor Spark nor a Kafka client: it is asked again and again."""
    health.reconciled([health.queue("g", "ok")])
    (code,), modules = loaded(f"status --tables {health.config.uri}")
    assert (code, modules & {"pandas", "pyspark", "great_expectations", "kafka", "rich.table"}) == (0, set())


@pytest.fixture
def broken(tmp_path: Path) -> HealthTables:
    """Two open findings, and one that only an earlier run saw."""
    broken = HealthTables(tmp_path / "tables")
    topic = {"cluster_id": CLUSTER, "topic_id": "T-1", "topic": "orders", "last_seen_at": broken.now}
    broken.tables.append("topics", [topic])
    healed = {"rule": "unknown", "severity": "warning", "group_id": "fraud"}
    broken.reconciled(findings=[{**healed, "subject": "healed"}], run_id="run-1", minutes=500)
    shown = {"evidence_state_partition": 3, "evidence_offset": 17, "first_seen_at": broken.ago(180), "times_seen": 4}
    broken.reconciled(findings=[{**BROKEN, **shown}, WHOLE])
    return broken


def listed(broken: HealthTables, capsys: pytest.CaptureFixture[str], *arguments: str) -> Done:
    return run(capsys, "findings", *arguments, "--tables", broken.config.uri)


def rules(broken: HealthTables, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    return [row["rule"] for row in listed(broken, capsys, "--json", *arguments).rows]


def test_open_findings_have_names_and_evidence(broken: HealthTables, capsys: pytest.CaptureFixture[str]) -> None:
    """The worst first; the topic by its name, though the finding has only the id; a subject that is no share partition
    as its text."""
    done = listed(broken, capsys)
    head, first, second = done.stdout.splitlines()
    assert done.code == 0
    assert " ".join(head.split()) == "SEVERITY RULE GROUP TOPIC PARTITION SINCE SEEN EVIDENCE DETAIL"
    assert first.endswith("-         state partition 3, offsets 0 to 9: it is so")
    assert " ".join(second.split()) == "error live_ahead billing orders 4 3 h ago 4 3:17 it is so"
    seen = [{**WHOLE, "subject": subject, "first_seen_at": broken.ago(m)} for subject, m in (("a", 9), ("b", 3))]
    broken.reconciled(findings=[BROKEN, *seen], run_id="run-3")
    newest_first = [row["subject"] for row in listed(broken, capsys, "--json").rows]
    assert newest_first == ["b", "a", "0"]


def test_findings_are_chosen(broken: HealthTables, capsys: pytest.CaptureFixture[str]) -> None:
    """By severity and worse, by rule and group in shell style, by when they were first seen."""
    assert rules(broken, capsys) == ["export_complete", "live_ahead"]
    assert rules(broken, capsys, "--severity", "critical") == ["export_complete"]
    assert rules(broken, capsys, "--severity", "info") == ["export_complete", "live_ahead"]
    assert rules(broken, capsys, "--rule", "live*") == ["live_ahead"]
    assert rules(broken, capsys, "--group", "b*") == ["live_ahead"]
    assert rules(broken, capsys, "--since", "1h") == ["export_complete"]
    assert rules(broken, capsys, "--since", "4h") == ["export_complete", "live_ahead"]
    assert rules(broken, capsys, "--all") == ["export_complete", "live_ahead", "unknown"]
    assert "(warning)" in listed(broken, capsys, "--all").stdout
    assert "no severity 'bad'" in listed(broken, capsys, "--severity", "bad").complaint(2)
    assert listed(broken, capsys, "--rule", "past_log_end").stdout == "no finding\n"


def words(html: str) -> str:
    """HTML as a person reads it."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", re.sub(r"</?(?:bdi|span|wbr)[^>]*>", "", html))).split())


@pytest.mark.parametrize("group", ["fraud", HOSTILE], ids=["plain", "hostile"])
def test_one_run_is_said_alike_everywhere(group: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The headline; why a share partition is in trouble and what to do; a finding's detail and where it was seen. Names
    and details are any text: shown as text on their line, in JSON as they are."""
    world = HealthTables(tmp_path / "tables")
    stuck = world.queue(group, "stuck", unfinished_records=7, minutes=90, topic=group)
    found = {"rule": "past_log_end", "severity": "critical", "group_id": group, "topic_id": "T", "partition": 0,
             "topic": group, "detail": f"the state ends at 9: {group}"}  # fmt: skip
    slow = [world.queue("slow", "lagging", partition=n) for n in (2, 3)]
    world.reconciled([stuck, world.queue("calm", "ok"), *slow], [found], run_id="r")
    rows = [{"group_id": each, "topic_id": "T", "topic": "orders", "partition": n, "verdict": "match", "run_id": "r"}
            for each, n in ((group, 0), ("calm", 1), ("slow", 2), ("slow", 3))]  # fmt: skip
    world.tables.append("reconciliations", [{**row, "observed_at": world.ago(5)} for row in rows])
    world.changed(3, group, "ok", "stuck")
    tables, run_id = read_run(world.config, "r")
    summary = summarize(tables, run_id)
    with web_server(create_app(world.config)) as url:
        web = words(httpx.get(url, timeout=60, trust_env=False).text)
    messages = [f"{each.title}. {each.text}" for each in changed({}, world.tables, "r")]
    said = {
        "status": run(capsys, "status", "--tables", world.config.uri).stdout,
        "findings": run(capsys, "findings", "--tables", world.config.uri).stdout,
        "report": words(render_html(tables, run_id, written_at=world.now)),
        "web": web,
        "terminal": render_text(summary),
        "messages": "\n".join(messages),
    }
    name = shortened(printable(group))
    since = f"{stuck['status_since']:%Y-%m-%d %H:%M} UTC"
    headline = f"{name} stuck since {since}, and 1 other group in trouble."
    assert trouble(summary) == (headline, "critical")
    why = f"it is stuck. What to do: {STATUS_TABLE[QueueStatus.STUCK].advice}."
    for sentence, places in (
        (headline, ("status", "report", "web", "terminal")),
        (why, ("status", "report", "web", "terminal", "messages")),
        ("1 stuck, 1 lagging, 1 ok", ("report", "web", "terminal")),
        ("it is lagging. What to do: ", ("status", "report", "web", "terminal", "messages")),
        ("lagging", ("status", "report", "web", "terminal", "messages")),
        (printable(found["detail"]), ("findings", "report", "web", "terminal", "messages")),
    ):
        assert [place for place in places if sentence not in said[place]] == [], sentence
    assert all(line.isprintable() and ".; " not in line for text in said.values() for line in text.splitlines())
    assert len(said["findings"].splitlines()) == 2
    assert as_json(world, capsys)["in_trouble"][0]["group_id"] == group
    (row,) = listed(world, capsys, "--json").rows
    assert (row["group_id"], row["detail"]) == (group, found["detail"])
