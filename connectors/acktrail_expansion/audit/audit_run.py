"""The audit: find expansions in looks, judge every group across them, replace what was found before."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig
from acktrail.connect.activity import doing
from acktrail.errors import ConfigurationError, ForeignCluster
from acktrail.executors import Executors, OpenExecutors
from acktrail.tables.cluster_check import create_for
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail_expansion.audit.asked_expansions import asked_expansions
from acktrail_expansion.audit.found_expansions import (
    EXPANSIONS,
    FENCES,
    MappingOf,
    TopicExpansion,
    as_expansions,
    find_expansions,
    stored_expansions,
    with_stored,
)
from acktrail_expansion.audit.position_marks import POSITIONS, READ_MARKS, Lanes, gathered, read_marks
from acktrail_expansion.audit.share_evidence import ByTopic, share_evidence
from acktrail_expansion.audit.topic_looks import OBSERVATIONS, file_spans, read_logs, read_topics
from acktrail_expansion.audit.verdict_rows import GroupMarks, check_log_starts, lanes_of, verdict_rows
from acktrail_expansion.branch import STEP
from acktrail_expansion.quality.expansion_findings import write_findings
from acktrail_expansion.settings import key_mappings, ordered_groups, settle_time
from acktrail_expansion.words import counted

VERDICTS: Final = "expansion_verdicts"
_PIECE: Final = 1_500_000
"""Rows of positions that are reduced at once, about."""
_US: Final = dt.timedelta(microseconds=1)
_KEYS: Final = itemgetter("event_id", "group_id", "partition", "source_partition", "source_offset")
"""What keys at risk are of."""
_Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpansionSummary:
    """What an audit found: `run_id` is the newest look; `verdicts`: how many groups and destinations have each;
    `carried`: expansions that only the tables have; `findings`: open ones by rule."""

    run_id: str
    topics: int
    expansions: int
    carried: int
    verdicts: dict[str, int]
    findings: dict[str, int]


def audit_expansions(
    tables: TablesConfig,
    open_executors: OpenExecutors,
    *,
    settle: dt.timedelta | None = None,
    mapping_of: MappingOf | None = None,
    ordered: Container[str] | None = None,
) -> ExpansionSummary:
    """Find every expansion that ``partition_observations`` shows, judge every group across it, replace the three tables
    about expansions, and open and close their ``findings``.

    Settle time, key mappings and ordered groups are those of the environment unless they are given. A stopped audit
    leaves tables of two runs, and the next one replaces all of them: ``partition_expansions`` is written after the
    others, ``findings`` last. What keys showed is kept.

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
    settle_us = (settle_time() if settle is None else settle) // _US
    with open_executors("") as executors:
        run = _Run(stored, executors, observations, settle_us, mapping_of or key_mappings().of)
        return run.audit(ordered_groups() if ordered is None else ordered)


class _Run:
    def __init__(
        self, stored: Tables, executors: Executors, observations: TableSnapshot, settle_us: int, mapping_of: MappingOf
    ) -> None:
        self._stored, self._executors, self._settle_us, self._mapping_of = stored, executors, settle_us, mapping_of
        self._observations, self._read_logs = observations, partial(read_logs, stored, observations)

    def audit(self, ordered: Container[str]) -> ExpansionSummary:
        """All of it."""
        stored, done = self._stored, self._stored.transaction_version(EXPANSIONS, STEP)
        doing("reading partition counts")
        clusters, looks = read_topics(stored, self._observations)
        cluster_id = self._one_cluster(clusters)
        newest_us, run_id = max((int(own.at[-1]), own.newest_run) for own in looks.values())
        asked, before = asked_expansions(stored), stored_expansions(stored)
        doing("reading log ends")
        found = find_expansions(cluster_id, looks, self._read_logs, self._settle_us, asked)
        topics = {*found, *(row["topic_id"] for row, _ in before.values())} & looks.keys()
        places = {topic_id: (topic_id, int(looks[topic_id].at[-1])) for topic_id in topics}
        logs = self._read_logs(set(places.values()))
        newest = {topic_id: logs.get(place, {}) for topic_id, place in places.items()}
        rows = with_stored(cluster_id, looks, found, newest, before)
        expansions = as_expansions(rows, looks, run_id, self._mapping_of)
        by_topic = {name: list(own) for name, own in groupby(expansions, key=lambda each: each.row["topic_id"])}
        verdicts = self._verdicts(by_topic)
        check_log_starts(verdicts, by_topic, looks, newest, self._read_logs)
        self._write(expansions, verdicts, (cluster_id, max(newest_us, done or 0), done))
        fallen = {topic_id: (own.topic, own.fall) for topic_id, own in looks.items() if own.fall}
        return ExpansionSummary(
            run_id=run_id,
            topics=len(looks),
            expansions=len(expansions),
            carried=len(expansions) - sum(map(len, found.values())),
            verdicts=dict(sorted(Counter(row["verdict"] for row in verdicts).items())),
            findings=write_findings(stored, cluster_id, newest_us, ordered=ordered, fallen=fallen),
        )

    def _one_cluster(self, names: set[str]) -> str:
        if not names:
            raise ConfigurationError(f"no topic was described in the tables at {self._stored.root}")
        if len(names) > 1:
            raise ForeignCluster(
                f"looks in the tables at {self._stored.root} are of {len(names)} clusters",
                hint="look at each cluster into tables of its own",
                data={"root": self._stored.root, "clusters": sorted(names)},
            )
        return next(iter(names))

    def _verdicts(self, expansions: ByTopic) -> list[_Row]:
        lanes = lanes_of(expansions)
        doing("reading positions of groups")
        marks = self._marks(lanes) if expansions else {}
        doing("reading state records")
        evidence = share_evidence(self._stored, self._executors, expansions)
        return list(verdict_rows(expansions, lanes, marks, evidence))

    def _marks(self, lanes: Lanes) -> dict[tuple[str, str], GroupMarks]:
        positions = self._stored.snapshot(POSITIONS)
        if positions is None:
            return {}
        sizes = {file.path: file.rows or 1 for file in positions.files()}
        pieces = list(_pieces(file_spans(positions), sizes, int(lanes.since.min(initial=0))))
        each = max(1, -(-len(pieces) // (self._executors.count * 4)))
        shares = [(number, pieces[first : first + each]) for number, first in enumerate(range(0, len(pieces), each))]
        rows = self._executors.run(READ_MARKS, shares, partial(read_marks, self._stored.config, lanes))["marks"]
        return dict(gathered(rows, lanes))

    def _write(
        self, expansions: Sequence[TopicExpansion], verdicts: Sequence[_Row], seen: tuple[str, int, int | None]
    ) -> None:
        """`seen`: the cluster, the newest look, and the one that was the newest in the audit before."""
        cluster_id, number, done = seen
        at_risk = self._stored.read(VERDICTS, where=pc.field("keys_at_risk").is_valid()).to_pylist()
        kept = {_KEYS(row): row for row in at_risk}
        for row in verdicts:
            own = kept.get(_KEYS(row), {})
            row |= {name: own.get(name) for name in ("keys_at_risk", "keys")}
        doing(f"writing {counted(len(expansions), 'expansion')} and {counted(len(verdicts), 'verdict')}")
        written: dict[str, Iterable[_Row]] = {
            FENCES: (fence for each in expansions for fence in each.fences),
            VERDICTS: verdicts,
            EXPANSIONS: (each.row for each in expansions),
        }
        for name in written:
            create_for(self._stored, name, cluster_id)
        for name, rows in written.items():
            expected = {STEP: done} if name == EXPANSIONS else None
            self._stored.replace(name, _table(name, rows), transactions={STEP: number}, expected=expected)


def _table(name: str, rows: Iterable[_Row]) -> pa.Table:
    schema = TABLES[name]
    return pa.Table.from_pylist([{column: row.get(column) for column in schema.names} for row in rows], schema=schema)


def _pieces(spans: dict[str, tuple[int, int]], sizes: dict[str, int], since: int) -> Iterator[tuple[str, ...]]:
    """The paths of files that have looks since an instant, in pieces that follow each other in time: files that overlap
    are in one."""
    piece: list[str] = []
    rows, end = 0, -1
    for path, (first, last) in sorted(spans.items(), key=lambda item: item[1]):
        if last < since:
            continue
        if rows >= _PIECE and first > end:
            yield tuple(piece)
            piece, rows = [], 0
        piece.append(path)
        rows, end = rows + sizes[path], max(end, last)
    if piece:
        yield tuple(piece)
