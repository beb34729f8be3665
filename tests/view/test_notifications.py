"""Messages to people: one for each change, none lost, none twice, names made harmless."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples.health_tables import HOSTILE, HealthTables

from acktrail.model.queue_status import STATUS_TABLE, QueueStatus, Urgency
from acktrail.view.notifications import (
    MOST_MESSAGES,
    WELL,
    Notification,
    NotificationKind,
    changed,
    limited,
    send_changes,
)

RULE = "batches_do_not_overlap"
IN_TROUBLE = [s for s, its in STATUS_TABLE.items() if its.urgency is not Urgency.NOTHING]


@pytest.fixture
def world(tmp_path: Path) -> HealthTables:
    """Tables without a run."""
    return HealthTables(tmp_path / "tables")


def sent(world: HealthTables, run_id: str) -> list[tuple[str, str, str]]:
    """Kind, subject and state of the messages that a run sends."""
    out: list[Notification] = []
    send_changes(world.tables, run_id, out.append)
    return [(message.kind.value, message.subject, message.state) for message in out]


def kept(world: HealthTables) -> list[dict[str, Any]]:
    """The rows of what was sent, in their order."""
    return sorted(world.tables.rows("notifications"), key=lambda row: row["number"])


def validated(world: HealthTables, run_id: str, *, breaks: tuple[str, ...] = (), severity: str = "critical") -> None:
    """Results of a validation, in which the rules `breaks` fail."""
    rows = [
        {"run_id": run_id, "suite": "state_records", "expectation": rule, "severity": severity, "success": ok}
        for rule, ok in [*((rule, False) for rule in breaks), ("another_rule", True)]
    ]
    world.tables.append("quality_results", [{**row, "evaluated_at": world.now} for row in rows])


def test_the_gate_is_said_when_its_rules_change(world: HealthTables) -> None:
    """Other critical rules, and none, are changes; the same ones and warnings are not, nor is a run without results."""
    for run_id, breaks, severity, said in [
        ("r1", (RULE,), "warning", False),
        ("r2", (RULE,), "critical", True),
        ("r3", (RULE,), "critical", False),
        ("r4", (RULE, "a_rule"), "critical", True),
        ("not validated", (), "", False),
        ("r5", (), "critical", True),
        ("r6", (), "critical", False),
    ]:
        if severity:
            validated(world, run_id, breaks=breaks, severity=severity)
        assert [kind for kind, _, _ in sent(world, run_id)] == ["gate"] * said, run_id
    assert [row["urgency"] for row in kept(world)] == ["act", "act", "nothing"]


def test_a_critical_finding_is_said_once_and_when_it_is_not_seen_again(world: HealthTables) -> None:
    """One message for a rule and a group, however many subjects, which it names; lesser findings send none."""
    own = {
        "rule": RULE,
        "severity": "critical",
        "group_id": "g",
        "topic_id": "Jx0nqVdIQm2c7dP0m8fK5A",
        "topic": "orders",
    }
    seen = [{**own, "partition": n, "subject": f"g:{own['topic_id']}:{n}"} for n in range(8)]
    lesser = {"rule": "state_log_pruned", "severity": "warning", "subject": "state partition 1"}
    for run_id, found, states in [("r1", seen, ["open"]), ("r2", seen, []), ("r3", [], [WELL]), ("r4", seen, ["open"])]:
        world.reconciled([], [*found, lesser], run_id=run_id, minutes=60 - int(run_id[1]))
        assert [(kind, state) for kind, _, state in sent(world, run_id)] == [("critical_finding", s) for s in states]
    text = kept(world)[0]["text"]
    assert "orders:4 and 3 more" in text
    assert own["topic_id"] not in text


def test_an_older_run_says_nothing_of_findings_and_statuses(world: HealthTables) -> None:
    """The tables have those of the newest run alone: a run that is repeated later does not call its findings gone."""
    world.reconciled([world.queue("g", "stuck")], [{"rule": RULE, "severity": "critical"}], run_id="r1", minutes=9)
    assert len(sent(world, "r1")) == 2
    world.reconciled([world.queue("g", "ok")], [], run_id="r2", minutes=8)
    assert sent(world, "r1") == []


def test_what_could_not_be_sent_is_sent_by_the_next_try(world: HealthTables) -> None:
    """A notifier fails at the second message: the first is kept, another try sends the others, each once."""
    world.reconciled([world.queue(group, "stuck") for group in "abc"], run_id="r1")
    out: list[str] = []

    def broken(message: Notification) -> None:
        if len(out) == 1:
            raise OSError("no way out")
        out.append(message.subject)

    with pytest.raises(OSError, match="no way out"):
        send_changes(world.tables, "r1", broken)
    assert [subject for _, subject, _ in sent(world, "r1")] == ["b", "c"]
    assert out == ["a"]
    assert sent(world, "r1") == []
    assert [row["number"] for row in kept(world)] == [0, 1, 2]


def test_names_are_harmless_and_links_lead_to_the_name_itself(world: HealthTables) -> None:
    """A group id with control characters and markup is one printable line; the link's parameter is the id."""
    world.reconciled([world.queue(HOSTILE, "stuck", topic=HOSTILE)], run_id="r1")
    (message,) = changed({}, world.tables, "r1")
    assert message.subject == HOSTILE
    assert (message.title + message.text).isprintable()
    assert message.query == (("id", HOSTILE),)
    assert message.address("https://acktrail.example/x/").startswith("https://acktrail.example/x/group?id=g%27+OR+1")


@given(st.integers(0, 3 * MOST_MESSAGES))
def test_more_changes_than_messages_are_counted(count: int) -> None:
    """At most so many messages, and every change is either a message or counted in the last one."""
    said = {"state": QueueStatus.STUCK, "urgency": Urgency.ACT, "title": "t", "text": "it is so"}
    about = [Notification(kind=NotificationKind.STATUS, subject=f"g{each}", **said) for each in range(count)]
    messages = limited(about)
    assert len(messages) <= MOST_MESSAGES
    (*own, last) = messages or (None,)
    if last is None or last.kind is not NotificationKind.MORE:
        assert messages == tuple(about)
    else:
        assert len(own) + int(last.state) == count
        assert last.title == f"and {count - len(own)} more changes"


@settings(max_examples=8, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abcd"), st.sampled_from([*QueueStatus]), max_size=4), max_size=5))
def test_what_people_were_sent_is_what_is_known_now(tmp_path_factory: Any, runs: list[dict[str, QueueStatus]]) -> None:
    """After any runs the newest message of each group has its newest status that is known, or none was needed."""
    world = HealthTables(tmp_path_factory.mktemp("law") / "tables")
    world.tables.begin()
    expected: dict[str, str] = {}
    count = 0
    for number, statuses in enumerate(runs):
        world.reconciled(
            [world.queue(group, status) for group, status in statuses.items()], run_id=f"r{number}", minutes=60 - number
        )
        messages = sent(world, f"r{number}")
        known = {group: status for group, status in statuses.items() if status is not QueueStatus.STATE_UNKNOWN}
        now = {group: status.value if status in IN_TROUBLE else WELL for group, status in known.items()}
        now |= dict.fromkeys(set(expected) - set(statuses), WELL)
        news = {group: state for group, state in now.items() if expected.get(group, WELL) != state}
        assert {subject: state for _, subject, state in messages} == news
        expected |= news
        count += len(news)
    assert len(kept(world)) == count
