"""The expansions of topics out of the tables: as narrow as they are known, and never less than there are."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from acktrail_expansion.law.key_mapping import KeyMapping
from acktrail_expansion.resets.fenced_expansions import fenced_expansions
from acktrail_expansion.resets.reset_order import FencedExpansion, TopicExpansions

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
    return {**OWN, "event_id": event_id, "partition": partition, "fence_low": low, "fence_high": high, **changes}


def look(count: int, ago: dt.timedelta = dt.timedelta(0), **changes: Any) -> dict[str, Any]:
    return {**OWN, "observed_at": NOW - ago, "partition": 0, "partition_count": count, **changes}


def found(tables: Tables, count: int) -> TopicExpansions:
    return fenced_expansions(tables, "c1", {"t1": count})["t1"]


def grown(old_count: int, new_count: int, **known: Any) -> FencedExpansion:
    is_single = new_count == old_count + 1
    return FencedExpansion(
        old_count=old_count,
        new_count=new_count,
        is_single=is_single,
        **{"mapping": KeyMapping.MURMUR2, **known},
    )


def test_expansions_come_oldest_first_with_the_fences_that_are_known(tables: Tables) -> None:
    """A fence that keys showed is exact; one that is not settled has no high end; other clusters' rows are not read."""
    other = {"cluster_id": "c2"}
    write(tables, "partition_expansions", event(4, 5, 2), event(2, 4), event(2, 9, **other))
    fences = [fence(0, 10, 20, fence_exact=12), fence(1, 11, 30), fence(0, 40, None, "e2"), fence(0, 1, 2, **other)]
    write(tables, "expansion_fences", *fences)
    first = grown(2, 4, fences={0: (12, 12), 1: (11, 30)})
    assert found(tables, 5).expansions == (first, grown(4, 5, fences={0: (40, None)}))


def test_what_is_not_known_has_a_reason(tables: Tables) -> None:
    """No audit yet; a topic that was never looked at, unless it has a single partition and so was never expanded."""
    assert "expand check" in (found(tables, 2).reason or "")
    write(tables, "partition_expansions", event(2, 4, topic_id="t2"))
    assert "never looked at" in (found(tables, 2).reason or "")
    write(tables, "partition_observations", look(2, cluster_id="c2"), look(2, topic_id="t2"))
    assert "never looked at" in (found(tables, 2).reason or "")
    assert found(tables, 1) == TopicExpansions()
    write(tables, "partition_observations", look(2))
    assert found(tables, 2) == TopicExpansions()


@pytest.mark.parametrize("ago", [dt.timedelta(0), dt.timedelta(days=40)], ids=["since", "long-before"])
def test_an_expansion_after_the_audit_is_one_without_fences(tables: Tables, ago: dt.timedelta) -> None:
    """Partitions that no audit saw: the fences are not known, and the reset is uncertain, not accepted."""
    write(tables, "partition_expansions", event(2, 4, topic_id="t2"))
    write(tables, "partition_observations", look(2, ago), look(4), look(4, partition=1))
    assert found(tables, 4).expansions == (grown(2, 4, mapping=KeyMapping.NONE),)

    write(tables, "partition_expansions", event(2, 4))
    assert found(tables, 4).expansions == (grown(2, 4),)
    assert found(tables, 6).expansions == (grown(2, 4), grown(4, 6)), "the mapping is the topic's"
