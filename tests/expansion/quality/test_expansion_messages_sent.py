"""Messages about expansions: each topic that grew and each group in trouble once, with what is proven of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from expansion.support.rows import CLUSTER, write_rows
from expansion.support.suite_rows import LOOKS, run_id, suite_rows
from samples.health_tables import HOSTILE

from acktrail.branches import loaded
from acktrail.config import TablesConfig
from acktrail.notifications.notification import WELL, Notification
from acktrail.notifications.sending import send_changes
from acktrail.tables.delta.store import Tables

GROWN = [
    ("expansion", "seen", f"A topic has more partitions: {topic}, from 2 to {count} partitions")
    for topic, count in (("orders", 3), ("pay", 4))
]


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(TablesConfig(uri=str(tmp_path / "tables")))


def sent(
    tables: Tables, groups: Mapping[str, str], *, topic: str = "orders", **verdict: Any
) -> list[tuple[str, str, str]]:
    """Kind, state and title of what goes out after an audit with these verdicts."""
    write_rows(tables, suite_rows(groups, topic, **verdict))
    out: list[Notification] = []
    (messages,) = loaded("messages")
    send_changes(tables, run_id(LOOKS - 1), out.append, messages)
    return [(str(message.kind), message.state, message.title) for message in out]


def test_each_topic_that_grew_and_each_group_in_trouble_is_said_once(tables: Tables) -> None:
    """Expansions that broke nothing are a message each; a group that breaks order is one more, and one when it is well
    again."""
    assert sorted(sent(tables, {"a": "safe"})) == GROWN
    assert sent(tables, {"a": "safe"}) == []
    broken = sent(tables, {"a": "broken", "b": "safe"})
    assert sorted(broken) == [
        ("key_order", "broken", f"Group a: order broken: {topic}, from 2 to {count} partitions")
        for topic, count in (("orders", 3), ("pay", 4))
    ]
    assert sent(tables, {"a": "broken", "b": "not_proven"}) == []
    well = ("key_order", WELL, "Group a: no longer in trouble after an expansion")
    assert sent(tables, {"a": "safe"}) == [well, well]
    assert sent(tables, {"a": "safe"}) == []
    assert {row["cluster_id"] for row in tables.rows("notifications")} == {CLUSTER}


def test_the_text_has_what_is_proven(tables: Tables) -> None:
    """The worst partition in words, how many there are, and what to do."""
    assert {state for kind, state, _ in sent(tables, {"a": "skipped"}, skipped_records=312) if kind == "key_order"} == {
        "skipped"
    }
    texts = {row["text"] for row in tables.rows("notifications", {"kind": "key_order"})}
    assert all("never got 312 records before it" in text and "acktrail reset plan" in text for text in texts)
    assert sum("It is so in 2 partitions." in text for text in texts) == 1
    sent(tables, {"a": "broken"})
    (text,) = {
        row["text"] for row in tables.rows("notifications", {"state": "broken"}) if "2 partitions" in row["text"]
    }
    assert "Partition 2 was begun while 58 records of partition 0 below offset 4,800 were open" in text
    assert {(state, title.split(": ")[1]) for _, state, title in sent(tables, {"a": "broken"}, skipped_records=5)} == {
        ("broken, skipped", "order broken, first records skipped")
    }


def test_names_do_no_harm(tables: Tables) -> None:
    """A group and a topic with line ends, escapes and turned reading make plain text of one line."""
    assert len(sent(tables, {HOSTILE: "broken"}, topic=HOSTILE)) == 4
    for row in tables.rows("notifications"):
        assert (row["title"] + row["text"]).isprintable()
