"""The expansions of topics out of the ledger's tables: as narrow as they are known, and never less than there are."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.ordering import ExpansionFence
from acktrail.model.expansion.reset_order import FencedExpansion
from acktrail.tables.delta.store import Tables
from acktrail.tables.expansion_reader import LedgerExpansion, TopicFences, read_fences

NOW = dt.datetime.now(dt.UTC)
OWN = {"cluster_id": "c1", "topic_id": "t1", "topic": "orders"}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(TablesConfig(uri=str(tmp_path)))


def write(tables: Tables, name: str, *rows: dict[str, Any]) -> None:
    tables.append(name, pa.Table.from_pylist(list(rows), schema=TABLES[name]))


def event(old_count: int, new_count: int, sequence: int = 1, **changes: Any) -> dict[str, Any]:
    counts = {"old_count": old_count, "new_count": new_count, "sequence": sequence, "event_id": f"e{sequence}"}
    return {**OWN, **counts, "is_single": new_count == old_count + 1, "key_mapping": "murmur2", **changes}


def fence(partition: int, low: int | None, high: int | None, event_id: str = "e1", **changes: Any) -> dict[str, Any]:
    bounds = {"fence_low": low, "fence_high": high, "confidence": "bracketed"}
    return {**OWN, "event_id": event_id, "partition": partition, **bounds, **changes}


def look(count: int, ago: dt.timedelta = dt.timedelta(0), **changes: Any) -> dict[str, Any]:
    return {**OWN, "observed_at": NOW - ago, "partition": 0, "partition_count": count, **changes}


def found(tables: Tables, count: int) -> TopicFences:
    return read_fences(tables, "c1", {"t1": count})["t1"]


def test_expansions_come_oldest_first_with_the_fences_that_are_known(tables: Tables) -> None:
    """A fence that a key audit found is exact; one that is not settled has no high end; other clusters' and topics'
    rows are not read."""
    other = {"cluster_id": "c2"}
    write(tables, "partition_expansions", event(4, 5, 2), event(2, 4), event(2, 9, **other))
    exact = {"fence_exact": 12, "confidence": "exact"}
    unsure = {"fence_exact": 21, "confidence": "bracketed"}
    fences = [fence(0, 10, 20, **exact), fence(1, 11, 30, **unsure), fence(0, 40, None, "e2"), fence(0, 1, 2, **other)]
    write(tables, "expansion_fences", *fences)
    first = FencedExpansion(
        old_count=2,
        new_count=4,
        mapping=KeyMapping.MURMUR2,
        fences={0: ExpansionFence(low=12, high=12), 1: ExpansionFence(low=11, high=30)},
    )
    second = FencedExpansion(
        old_count=4, new_count=5, mapping=KeyMapping.MURMUR2, fences={0: ExpansionFence(low=40, high=None)}
    )
    assert found(tables, 5).expansions == (
        LedgerExpansion(event_id="e1", is_single=False, expansion=first),
        LedgerExpansion(event_id="e2", is_single=True, expansion=second),
    )


def test_what_is_not_known_has_a_reason(tables: Tables) -> None:
    """No audit yet; a topic that was never observed, unless it has a single partition and so was never expanded."""
    assert "expand audit" in (found(tables, 2).reason or "")
    write(tables, "partition_expansions", event(2, 4, topic_id="t2"))
    assert "never observed" in (found(tables, 2).reason or "")
    write(tables, "partition_observations", look(2, cluster_id="c2"), look(2, topic_id="t2"))
    assert "never observed" in (found(tables, 2).reason or "")
    assert found(tables, 1) == TopicFences()
    write(tables, "partition_observations", look(2))
    assert found(tables, 2) == TopicFences()


@pytest.mark.parametrize("ago", [dt.timedelta(0), dt.timedelta(days=40)], ids=["since", "long-before"])
def test_an_expansion_after_the_audit_is_one_without_fences(tables: Tables, ago: dt.timedelta) -> None:
    """Partitions that no audit saw: the fences are not known, and the reset is uncertain, not accepted."""
    write(tables, "partition_expansions", event(2, 4, topic_id="t2"))
    write(tables, "partition_observations", look(2, ago), look(4), look(4, partition=1))
    (newer,) = found(tables, 4).expansions
    assert (newer.event_id, newer.expansion.old_count, newer.expansion.new_count) == (None, 2, 4)
    assert newer.expansion.mapping is KeyMapping.NONE
    assert not newer.expansion.fences

    write(tables, "partition_expansions", event(2, 4))
    assert [each.event_id for each in found(tables, 4).expansions] == ["e1"]
    grown = found(tables, 6).expansions
    assert [(each.event_id, each.expansion.old_count) for each in grown] == [("e1", 2), (None, 4)]
    assert grown[-1].expansion.mapping is KeyMapping.MURMUR2, "the mapping is the topic's"
