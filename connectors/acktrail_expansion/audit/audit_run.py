"""The audit: find expansions in looks, judge every group across them, replace what was found before."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import TablesConfig
from acktrail.connect.activity import doing
from acktrail.errors import ConfigurationError, ForeignCluster
from acktrail.executors import Executors, OpenExecutors, balanced_shares
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.cluster_check import create_for
from acktrail.tables.delta.store import Tables
from acktrail_expansion.audit.found_expansions import (
    EXPANSIONS,
    FENCES,
    OBSERVATIONS,
    Row,
    TopicExpansion,
    asked_expansions,
    by_topic,
    check_log_starts,
    file_spans,
    find_expansions,
    read_logs,
    read_topics,
    stored_expansions,
    with_stored,
)
from acktrail_expansion.audit.group_verdicts import HISTORY, JUDGE, POSITIONS, Files, judge_topics
from acktrail_expansion.branch import STEP
from acktrail_expansion.quality.expansion_findings import write_findings
from acktrail_expansion.settings import key_mappings, settle_time
from acktrail_expansion.words import counted

VERDICTS: Final = "expansion_verdicts"
_PIECE: Final = 3_000_000
"""Rows of positions that are reduced at once, about."""
_US: Final = dt.timedelta(microseconds=1)
_KEYS: Final = itemgetter("event_id", "group_id", "partition", "source_partition", "source_offset")
"""What keys at risk are of."""
_Expansions = Mapping[str, Sequence[TopicExpansion]]
"""By topic id, oldest first."""


def audit_expansions(tables: TablesConfig, open_executors: OpenExecutors) -> dict[str, Any]:
    """Find every expansion that ``partition_observations`` shows, judge every group across it, replace the three tables
    about expansions, and open and close their ``findings``. Gives how many expansions there are, and how many verdicts
    and findings of each kind.

    A stopped audit leaves tables of two runs, and the next one replaces all of them: ``partition_expansions`` is
    written after the others, ``findings`` last. What keys showed is kept.

    Raises:
        ConfigurationError: nothing was observed, or the tables cannot be read or written.
        ForeignCluster: the looks are of several clusters, or the tables are another one's.
        ConcurrentCommit: another audit is writing.
    """
    stored = Tables(tables)
    observations = stored.snapshot(OBSERVATIONS)
    if observations is None:
        raise ConfigurationError(
            f"no looks at partitions in the tables at {stored.root}", hint="run `acktrail expand check TOPIC` first"
        )
    done = stored.transaction_version(EXPANSIONS, STEP)
    doing("reading partition counts")
    clusters, looks = read_topics(stored, observations)
    cluster_id = _one_cluster(stored, clusters)
    newest_us, run_id = max((int(own.at[-1]), own.newest_run) for own in looks.values())
    doing("reading log ends")
    read, asked, before = partial(read_logs, stored, observations), asked_expansions(stored), stored_expansions(stored)
    found = find_expansions(cluster_id, looks, read, settle_time() // _US, asked)
    expansions = by_topic(with_stored(found, before, looks), looks, run_id, key_mappings().of)
    doing("judging groups")
    with open_executors("") as executors:
        verdicts = _judged(stored, executors, expansions)
    check_log_starts(verdicts, expansions, looks, read)
    _write(stored, cluster_id, expansions, verdicts, {STEP: max(newest_us, done or 0)}, {STEP: done})
    return {
        "expansions": sum(map(len, expansions.values())),
        "verdicts": dict(sorted(Counter(row["verdict"] for row in verdicts).items())),
        "findings": write_findings(stored, cluster_id, newest_us),
    }


def _one_cluster(stored: Tables, names: set[str]) -> str:
    if not names:
        raise ConfigurationError(f"no topic was described in the tables at {stored.root}")
    if len(names) > 1:
        raise ForeignCluster(
            f"looks in the tables at {stored.root} are of {len(names)} clusters",
            hint="look at each cluster into tables of its own",
            data={"root": stored.root, "clusters": sorted(names)},
        )
    return next(iter(names))


def _judged(stored: Tables, executors: Executors, expansions: _Expansions) -> list[Row]:
    """Each executor judges some topics, and reads all files for the rows of them."""
    positions, history = stored.snapshot(POSITIONS), stored.snapshot(HISTORY)
    since = min((own[0].row["last_seen_old_at"] for own in expansions.values()), default=0)
    sizes = {file.path: file.rows or 1 for file in positions.files()} if positions else {}
    files = Files(
        positions=[*_pieces(file_spans(positions), sizes, since)] if positions else (),
        history=sorted(file.path for file in history.files()) if history else (),
    )
    topics = [(name, own) for name, own in expansions.items()]
    shares = balanced_shares(topics, lambda topic: sum(each.new_count for each in topic[1]), executors.count)
    rows = executors.run(JUDGE, shares, partial(judge_topics, stored.config, files))["verdicts"]["row"]
    return [json.loads(row) for row in rows.to_pylist()]


def _pieces(spans: Mapping[str, tuple[int, int]], sizes: Mapping[str, int], since: int) -> Iterator[list[str]]:
    """The paths of files that have looks since an instant, in pieces that follow each other in time: files that overlap
    are in one."""
    piece: list[str] = []
    end = -1
    for path, (first, last) in sorted(spans.items(), key=itemgetter(1)):
        if last < since:
            continue
        if first > end and sum(sizes[each] for each in piece) >= _PIECE:
            yield piece
            piece = []
        piece.append(path)
        end = max(end, last)
    yield piece


def _write(
    stored: Tables,
    cluster_id: str,
    expansions: _Expansions,
    verdicts: Sequence[Row],
    number: Mapping[str, int],
    expected: Mapping[str, int | None],
) -> None:
    """`number`: of this audit, `expected`: of the one before."""
    at_risk = stored.read(VERDICTS, where=pc.field("keys_at_risk").is_valid()).to_pylist()
    kept = {_KEYS(row): {name: row[name] for name in ("keys_at_risk", "keys")} for row in at_risk}
    every = [each for own in expansions.values() for each in own]
    doing(f"writing {counted(len(every), 'expansion')} and {counted(len(verdicts), 'verdict')}")
    written: dict[str, Iterable[Row]] = {
        FENCES: (fence for each in every for fence in each.fences),
        VERDICTS: (row | kept.get(_KEYS(row), {}) for row in verdicts),
        EXPANSIONS: (each.row for each in every),
    }
    for name in written:
        create_for(stored, name, cluster_id)
    for name, rows in written.items():
        whole = pa.Table.from_pylist([*rows], schema=TABLES[name])
        stored.replace(name, whole, transactions=number, expected=expected if name == EXPANSIONS else None)
