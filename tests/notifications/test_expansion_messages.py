"""Messages about expansions: each topic that grew and each group in trouble once, with what is certain of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from samples.expansion_tables import CLUSTER, SampleExpansion, expansion_rows, write_rows
from samples.health_tables import HOSTILE

from acktrail.config import TablesConfig
from acktrail.notifications.expansion_messages import expansion_changes
from acktrail.notifications.notification import WELL, Notification
from acktrail.notifications.sending import send_changes
from acktrail.tables.delta.store import Tables

LOOK = "look-00018"
CALM = SampleExpansion()
BROKEN = replace(CALM, verdicts={"billing-workers": "violation", "others": "safe"})


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(TablesConfig(uri=str(tmp_path / "tables")))


def audited(tables: Tables, *samples: SampleExpansion) -> list[tuple[str, str, str]]:
    """Kind, state and title of what is sent after an audit of these expansions."""
    rows = expansion_rows(samples)
    write_rows(tables, rows)
    out: list[Notification] = []
    send_changes(tables, LOOK, out.append, expansion_changes)
    return [(message.kind.value, message.state, message.title) for message in out]


def test_each_topic_that_grew_and_each_group_in_trouble_is_said_once(tables: Tables) -> None:
    """An expansion that broke nothing is one message; then a group breaks order: one more, and no other."""
    assert audited(tables, CALM) == [
        ("expansion", "seen", "A topic has more partitions: orders, from 2 to 3 partitions")
    ]
    assert audited(tables, CALM) == []
    title = "Group billing-workers got records out of the order of their keys: orders, from 2 to 3 partitions"
    assert audited(tables, BROKEN) == [("key_order", "order_broken", title)]
    assert audited(tables, BROKEN) == []
    assert audited(tables, CALM) == [
        ("key_order", WELL, "Group billing-workers: no longer found to have got records out of order")
    ]
    assert {row["cluster_id"] for row in tables.rows("notifications")} == {CLUSTER}


def test_skipped_records_are_counted(tables: Tables) -> None:
    """A group that skipped records and broke order is one message with both; the text has the number."""
    found = audited(tables, replace(BROKEN, skipped={"billing-workers": 312}))

    assert [(kind, state) for kind, state, _ in found] == [
        ("key_order", "order_broken, records_skipped"),
        ("expansion", "seen"),
    ]
    (text,) = (row["text"] for row in tables.rows("notifications", {"kind": "key_order"}))
    assert "It skipped 312 records, most in partition 2." in text


def test_the_text_has_what_is_proven(tables: Tables) -> None:
    """The offsets that were left are those below the low fence, which were there before for certain."""
    audited(tables, BROKEN)
    (text,) = (row["text"] for row in tables.rows("notifications", {"kind": "key_order"}))
    worst = max(
        tables.rows("ordering_audits", {"verdict": "violation"}),
        key=lambda row: (row["fence_low"] - row["source_at"], -row["partition"]),
    )

    assert f"unfinished: {worst['fence_low'] - worst['source_at']:,} offsets were left" in text
    assert f"partition {worst['partition']} and 2 more partitions while" in text


def test_names_do_no_harm(tables: Tables) -> None:
    """A group and a topic with line ends, escapes and turned reading make plain text of one line."""
    audited(tables, replace(BROKEN, topic=HOSTILE, verdicts={HOSTILE: "violation"}))
    for row in tables.rows("notifications"):
        assert (row["title"] + row["text"]).isprintable()
