"""What the tables name: the groups and topics that an observation asks for by name."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from jobs.replaying import replayed_here
from jobs.world import World, key_of, snapshot, topic_id

from acktrail.config import TablesConfig
from acktrail.export.export_run import known_names
from acktrail.format.columns.schemas.table_schemas import TOPICS
from acktrail.model.records import Tombstone
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.delta_sink import named

AT = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "tables")


def test_every_name_in_the_records_is_known_until_its_state_is_deleted(world: World) -> None:
    """Without memory all records are read; with it, what it has a state of and what newer files name: a deleted share
    partition is named no more, a new one is."""
    world.write(snapshot(key_of("a")), snapshot(key_of("b", topic=2)))
    world.observe("r1")
    first = known_names(world.tables)
    assert first.groups == {"a", "b"}
    assert first.topic_ids >= {topic_id(1), topic_id(2)}
    assert first.topics[topic_id(1)] == "orders"

    world.write(Tombstone(key=key_of("b", topic=2)))
    world.observe("r2")
    replayed_here(world.tables, "r2")
    world.write(snapshot(key_of("c")))
    world.observe("r3")
    assert known_names(world.tables).groups == {"a", "c"}


def test_nothing_is_known_of_tables_that_are_not_there(tmp_path: Path) -> None:
    """Before the first export no name is asked for."""
    found = known_names(Tables(TablesConfig(uri=str(tmp_path / "none"))))
    assert (found.groups, found.topic_ids) == (frozenset(), frozenset())


def test_a_hidden_topic_keeps_what_was_seen_of_it() -> None:
    """A topic that may not be described any more is not deleted, and its name and size stay."""
    row: dict[str, Any] = dict.fromkeys(TOPICS.names)
    seen = {**row, "topic_id": "a", "topic": "orders", "partition_count": 3, "is_internal": False, "status": "present"}
    hidden = [
        {**row, "topic_id": number, "status": "not_authorized", "last_seen_at": AT, "run_id": "r2"} for number in "ab"
    ]
    assert named([seen], hidden) == [
        {**seen, "status": "not_authorized", "last_seen_at": AT, "run_id": "r2"},
        hidden[1],
    ]
