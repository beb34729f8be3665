"""One run is said alike on the command line, in the report, on the web, on a terminal and in messages."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import httpx
import pytest
from drivers.command_line import run
from samples.health_tables import HOSTILE, HealthTables
from servers.web_server import web_server

from acktrail.model.queue_status import STATUS_TABLE, QueueStatus
from acktrail.plain_tables import printable, shortened
from acktrail.view.run_messages import changed
from acktrail.view.run_summary import summarize, trouble
from acktrail_dashboard.report import read_run, render_html, render_text
from acktrail_dashboard.web.application import create_app


def words(html: str) -> str:
    """HTML as a person reads it."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", re.sub(r"</?(?:bdi|span|wbr)[^>]*>", "", html))).split())


@pytest.mark.parametrize("group", ["fraud", HOSTILE], ids=["plain", "hostile"])
def test_one_run_is_said_alike_everywhere(group: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The headline; why a share partition is in trouble and what to do; a finding's detail and where it was seen."""
    world = HealthTables(tmp_path / "tables")
    stuck = world.queue(group, "stuck", unfinished_records=7, minutes=90)
    found = {"rule": "past_log_end", "severity": "critical", "group_id": group, "topic_id": "T", "partition": 0,
             "topic": "orders", "detail": "the state ends at 9, the log at 5"}  # fmt: skip
    slow = [world.queue("slow", "release_loop", partition=n) for n in (2, 3)]
    world.reconciled([stuck, world.queue("calm", "ok"), *slow], [found], run_id="r")
    rows = [{"group_id": each, "topic_id": "T", "topic": "orders", "partition": n, "verdict": "match", "run_id": "r"}
            for each, n in ((group, 0), ("calm", 1), ("slow", 2), ("slow", 3))]  # fmt: skip
    world.tables.append("reconciliations", [{**row, "observed_at": world.ago(5)} for row in rows])
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
    headline = (
        f"1 critical finding. By status alone: 1 of 3 groups needs action: {name} stuck since "
        f"{stuck['status_since']:%Y-%m-%d %H:%M} UTC. Another 1 group to look at."
    )
    assert trouble(summary) == (headline, "critical")
    why = f"it is stuck. What to do: {STATUS_TABLE[QueueStatus.STUCK].advice}."
    for sentence, places in (
        (headline, ("status", "report", "web", "terminal")),
        (why, ("status", "report", "web", "terminal", "messages")),
        ("1 stuck, 1 release loop, 1 ok", ("report", "web", "terminal")),
        ("it is release_loop. What to do: ", ("status", "report", "web", "terminal", "messages")),
        ("release loop", ("status", "report", "web", "terminal", "messages")),
        (found["detail"], ("findings", "report", "web", "terminal", "messages")),
    ):
        assert [place for place in places if sentence not in said[place]] == [], sentence
    assert all(line.isprintable() for text in said.values() for line in text.splitlines())
