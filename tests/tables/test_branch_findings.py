"""Two audits that write findings at once: what lands is what one of them found, as if they had run one after the
other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from acktrail.config import TablesConfig
from acktrail.errors import ConcurrentCommit
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.rules.catalogue import RULE_BY_ID
from acktrail.tables.delta.store import Tables
from acktrail.tables.open_runs import audit_run_id, write_branch_findings

AUDIT, CLUSTER = "branch-audit", "c"
SEEN_US = 1_000_000


def found(*subjects: str) -> list[dict[str, Any]]:
    return [{"rule": "export_complete", "subject": each, "detail": "d", "topic": "t"} for each in subjects]


def write(config: TablesConfig, *subjects: str, seen_us: int = SEEN_US) -> dict[str, int]:
    return write_branch_findings(Tables(config), AUDIT, CLUSTER, found(*subjects), seen_us)


def opened(config: TablesConfig) -> dict[str, int]:
    """How often each open finding was seen, by subject."""
    tables = Tables(config)
    newest = audit_run_id(AUDIT, tables.transaction_version("findings", AUDIT) or 0)
    rows = tables.rows("findings", {"run_id": newest})
    assert len({row["subject"] for row in rows}) == len(rows)
    return {row["subject"]: row["times_seen"] for row in rows}


@pytest.fixture
def config(tmp_path: Path) -> TablesConfig:
    return TablesConfig(uri=str(tmp_path))


def in_between(monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> None:
    """Runs `other` once between what a write of findings reads and its commit."""
    waiting: Iterator[Callable[[], object]] = iter([other])
    upsert = Tables.upsert

    def interrupted(self: Tables, *arguments: Any, **options: Any) -> int:
        next(waiting, lambda: None)()
        return upsert(self, *arguments, **options)

    monkeypatch.setattr(Tables, "upsert", interrupted)


@pytest.mark.parametrize("theirs", [("a", "c"), ()])
def test_the_second_commit_fails(
    config: TablesConfig, monkeypatch: pytest.MonkeyPatch, theirs: tuple[str, ...]
) -> None:
    """What another audit wrote between reading and writing stays, also where it closed everything. Again, it lands."""
    write(config, "a")
    in_between(monkeypatch, lambda: write(config, *theirs, seen_us=SEEN_US + 1))
    with pytest.raises(ConcurrentCommit):
        write(config, "a", "b", seen_us=SEEN_US + 2)
    assert opened(config) == {each: 2 if each == "a" else 1 for each in theirs}
    assert write(config, "a", "b", seen_us=SEEN_US + 2) == {"export_complete": 2}
    assert opened(config) == {"a": 3 if theirs else 2, "b": 1}


def test_the_same_in_the_same_looks_changes_nothing(config: TablesConfig) -> None:
    """The same in later looks moves when it was seen last, and how often; what is not found any more is closed."""
    write(config, "a", "b")
    version = Tables(config).create("findings").version
    write(config, "a", "b")
    assert Tables(config).create("findings").version == version
    write(config, "b", seen_us=SEEN_US + 1)
    assert opened(config) == {"b": 2}
    rows = {row["subject"]: row for row in Tables(config).rows("findings")}
    assert rows["b"]["first_seen_at"] < rows["b"]["last_seen_at"] > rows["a"]["last_seen_at"]
    assert {row["severity"] for row in rows.values()} == {RULE_BY_ID["export_complete"].severity.value}


def test_a_reconciliation_in_between_is_no_conflict(config: TablesConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings of other runs are merged with those of an audit, whichever commits first."""
    row = {"rule": "unknown", "run_id": "run-7", "severity": "warning", "subject": "s", "cluster_id": CLUSTER}
    rows = pa.Table.from_pylist([row], TABLES["findings"])
    write(config, "a")
    in_between(monkeypatch, lambda: Tables(config).upsert("findings", rows))
    write(config, "b")
    assert opened(config) == {"b": 1}
    assert Tables(config).rows("findings", {"run_id": "run-7"})


@pytest.mark.parametrize("earlier", [("a", "b"), ()])
def test_later_looks_are_not_undone(config: TablesConfig, earlier: tuple[str, ...]) -> None:
    """An audit that read fewer looks and comes late changes nothing, also where the later one found nothing at all or
    what was known."""
    for later in ((), ("a",), ("a",)):
        seen_us = SEEN_US + 10
        write(config, *later, seen_us=seen_us)
        before = opened(config)
        with pytest.raises(ConcurrentCommit, match="later looks"):
            write(config, *earlier, seen_us=seen_us - 1)
        assert opened(config) == before
