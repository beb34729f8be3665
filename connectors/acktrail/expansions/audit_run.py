"""The audit: read observations and positions, find expansions, judge every group, replace what was found before."""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.expansion.fence_columns import LogValues
from acktrail.columnar.expansion.look_columns import FoundExpansion, LookColumns, find_expansions, numbered
from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig
from acktrail.connect.activity import doing
from acktrail.errors import ConfigurationError, ForeignCluster
from acktrail.executors import Executors, OpenExecutors
from acktrail.expansions.asked_expansions import asked_expansions
from acktrail.expansions.audit_findings import findings_of_audit, write_findings
from acktrail.expansions.audit_rows import NumberedExpansions, StartRows, ordering_rows
from acktrail.expansions.audited_groups import plan_audit
from acktrail.expansions.expansion_rows import by_topic, dependency_rows, expansion_rows, fence_rows
from acktrail.expansions.expired_fences import with_expiry
from acktrail.expansions.found_expansions import (
    EXPANSIONS,
    FENCES,
    FencedTopicExpansion,
    MappingOf,
    fenced,
    stored_expansions,
    with_stored,
)
from acktrail.expansions.initial_starts import initial_starts
from acktrail.expansions.recorded_work import with_recorded_work, with_shown_open
from acktrail.expansions.table_shares import (
    AUDIT_GROUPS,
    OBSERVATIONS,
    POSITIONS,
    READ_GROUPS,
    READ_LOGS,
    READ_LOOKS,
    WantedLooks,
    file_shares,
    files_within,
    read_audits,
    read_groups,
    read_logs,
    read_looks,
)
from acktrail.model.expansion.expansion_texts import counted
from acktrail.model.expansion.partition_ledger import ExpansionStatus
from acktrail.tables.cluster_check import create_for
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot

STEP: Final = "expansions/step"
"""The app id whose number is the newest observation that was read, in microseconds."""
_US: Final = dt.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpansionSummary:
    """What an audit found: `run_id` is the newest observation; verdicts with how many groups and destinations have
    each; `fallen`: topics with fewer partitions than before. `carried`: expansions that only the tables have.
    `findings`: open ones by rule."""

    run_id: str
    cluster_id: str
    topics: int
    expansions: int
    settling: int
    carried: int
    groups: int
    verdicts: dict[str, int]
    starts: dict[str, int]
    fallen: tuple[str, ...]
    findings: dict[str, int]


def audit_expansions(
    tables: TablesConfig,
    open_executors: OpenExecutors,
    *,
    settle: dt.timedelta,
    mapping_of: MappingOf,
    ordered: Container[str] = (),
) -> ExpansionSummary:
    """Find every expansion that ``partition_observations`` shows, judge every group in ``group_positions`` across it,
    replace the five tables about expansions, and open and close their ``findings``.

    `settle`: how long producers may use the old count after an expansion was first seen; `ordered`: the groups that
    rely on the order of keys. A stopped audit leaves tables of two runs, and the next one replaces all of them:
    ``partition_expansions`` is written after the others, ``findings`` last.

    Raises:
        ConfigurationError: nothing was observed, or the tables cannot be read or written.
        ForeignCluster: the observations are of several clusters, or the tables are another one's.
        ConcurrentCommit: another audit is writing.
    """
    stored = Tables(tables)
    observations, positions = stored.snapshot(OBSERVATIONS), stored.snapshot(POSITIONS)
    if observations is None:
        raise ConfigurationError(
            f"no observations of partitions in the tables at {stored.root}", hint="run `acktrail expand observe` first"
        )
    with open_executors("") as executors:
        run = _Run(stored, executors, observations, positions, mapping_of, ordered)
        return run.audit(settle // _US)


class _Run:
    def __init__(
        self,
        stored: Tables,
        executors: Executors,
        observations: TableSnapshot,
        positions: TableSnapshot | None,
        mapping_of: MappingOf,
        ordered: Container[str],
    ) -> None:
        self._stored, self._executors, self._mapping_of, self._ordered = stored, executors, mapping_of, ordered
        self._observations, self._positions = observations, positions

    def audit(self, settle_us: int) -> ExpansionSummary:
        """All of it."""
        stored = self._stored
        done = stored.transaction_version(EXPANSIONS, STEP)
        looks, cluster_id = self._looks()
        found, fell = find_expansions(looks, settle_us)
        expansions, carried = self._with_fences(cluster_id, looks, found)
        newest = int(np.argmax(looks.at))
        run_id = looks.runs[int(looks.run[newest])].as_py()
        ordering, starts, groups = self._groups(cluster_id, run_id, looks, expansions)
        ordering = with_shown_open(stored, ordering, expansions)
        written = {
            FENCES: fence_rows(cluster_id, expansions),
            "partition_dependencies": pa.concat_tables(
                [
                    TABLES["partition_dependencies"].empty_table(),
                    *dependency_rows(cluster_id, expansions, self._mapping_of),
                ]
            ),
            "ordering_audits": ordering,
            "start_audits": starts,
            EXPANSIONS: expansion_rows(cluster_id, run_id, expansions, self._mapping_of),
        }
        doing(f"writing {counted(len(expansions), 'expansion')} and {counted(ordering.num_rows, 'verdict')}")
        for name in written:
            create_for(stored, name, cluster_id)
        number = max(int(looks.at[newest]), done or 0)
        for name, rows in written.items():
            expected = {STEP: done} if name == EXPANSIONS else None
            stored.replace(name, rows, transactions={STEP: number}, expected=expected)
        broken = findings_of_audit(looks, fell, expansions, (ordering, starts), self._ordered)
        findings = write_findings(stored, cluster_id, broken, number)
        return ExpansionSummary(
            run_id=run_id,
            cluster_id=cluster_id,
            topics=len(looks.topic_ids),
            expansions=len(expansions),
            settling=sum(each.status is ExpansionStatus.SETTLING for each in expansions),
            carried=carried,
            groups=groups,
            verdicts=_counts(ordering["verdict"]),
            starts=_counts(starts["verdict"]),
            fallen=tuple(sorted({looks.topic_names[int(looks.topic[look])] for look in fell.tolist()})),
            findings=findings,
        )

    def _looks(self) -> tuple[LookColumns, str]:
        doing("reading partition counts")
        shares = file_shares(self._observations.files(), self._executors.count)
        work = partial(read_looks, self._stored.config)
        rows = self._executors.run(READ_LOOKS, shares, work)["looks"]
        cluster_id = self._cluster(rows["cluster_id"])
        return LookColumns.of(rows), cluster_id

    def _cluster(self, column: pa.ChunkedArray, expected: str | None = None) -> str:
        """The one cluster of all rows."""
        _, found = numbered(column)
        names = {*found.to_pylist(), *([] if expected is None else [expected])} - {""}
        if not names:
            raise ConfigurationError(
                f"no topic was described in the tables at {self._stored.root}", hint="run `acktrail expand observe`"
            )
        if len(names) > 1:
            raise ForeignCluster(
                f"observations in the tables at {self._stored.root} are of {len(names)} clusters",
                hint="observe each cluster into tables of its own",
                data={"root": self._stored.root, "clusters": sorted(names)},
            )
        return str(names.pop())

    def _with_fences(
        self, cluster_id: str, looks: LookColumns, found: Sequence[FoundExpansion]
    ) -> tuple[list[FencedTopicExpansion], int]:
        known = fenced(cluster_id, looks, found, self._logs, asked_expansions(self._stored))
        return with_stored(known, stored_expansions(self._stored), looks)

    def _logs(self, wanted: WantedLooks) -> pa.Table:
        if not len(wanted.number):
            return READ_LOGS.kinds["logs"].empty_table()
        doing(f"reading log ends of {counted(len(wanted.number), 'look')}")
        files = files_within(self._observations, np.unique(wanted.at))
        work = partial(read_logs, self._stored.config, wanted)
        return self._executors.run(READ_LOGS, file_shares(files, self._executors.count), work)["logs"]

    def _groups(
        self, cluster_id: str, run_id: str, looks: LookColumns, expansions: Sequence[FencedTopicExpansion]
    ) -> tuple[pa.Table, pa.Table, int]:
        """Rows of ``ordering_audits`` and ``start_audits``, and how many groups."""
        if self._positions is None or not expansions:
            return TABLES["ordering_audits"].empty_table(), TABLES["start_audits"].empty_table(), 0
        expansions = with_expiry(expansions, looks, self._logs)
        doing("reading groups")
        config, files = self._stored.config, self._positions.files()
        shares = file_shares(files, self._executors.count)
        topic_ids = sorted({each.topic_id for each in expansions})
        found = self._executors.run(READ_GROUPS, shares, partial(read_groups, config, topic_ids))
        self._cluster(found["groups"]["cluster_id"], cluster_id)
        oldest = {topic_id: own[0].last_seen_old_at for topic_id, own in by_topic(expansions)}
        plan = with_recorded_work(self._stored, plan_audit(expansions, self._mapping_of, looks, found), oldest)
        doing(f"judging {counted(len(plan.groups), 'group')} of {counted(len(plan.topics), 'topic')}")
        paths = tuple(sorted(file.path for file in files))
        audits = self._executors.run(
            AUDIT_GROUPS, list(plan.shares(self._executors.count)), partial(read_audits, config, paths)
        )
        own = NumberedExpansions(plan, expansions)
        starts = StartRows(own, looks, audits["starts"])
        values = LogValues(self._logs(starts.wanted()))
        initial = initial_starts(self._stored, starts.share_partitions())
        ordering = ordering_rows(cluster_id, run_id, own, audits["ordering"])
        return ordering, starts.rows(cluster_id, run_id, values, initial), len(plan.groups)


def _counts(values: Any) -> dict[str, int]:
    found = {row["values"]: row["counts"] for row in pc.value_counts(values).to_pylist()}
    return dict(sorted(found.items()))
