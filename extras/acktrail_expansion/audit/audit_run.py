"""The audit: find expansions in looks, judge every group across them, replace what was found before."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.activity import doing
from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.cluster_check import cluster_of, create_for
from acktrail.tables.delta.store import Tables
from acktrail.text_parsing import parse_json
from acktrail.view.wording import counted
from acktrail_expansion import EXPANSION, EXPANSIONS, FENCES, OBSERVATIONS, POSITIONS, STEP, VERDICTS
from acktrail_expansion.audit.found_expansions import (
    Logs,
    LookPlace,
    Row,
    TopicExpansion,
    TopicLooks,
    asked_expansions,
    by_topic,
    file_spans,
    find_expansions,
    read_logs,
    read_topics,
    stored_expansions,
    with_stored,
)
from acktrail_expansion.audit.group_verdicts import HISTORY, VERDICT_ROWS, judge_topics
from acktrail_expansion.ordering.order import NEVER_YET, NotProven, OrderVerdict
from acktrail_expansion.quality.expansion_findings import write_findings
from acktrail_expansion.settings import key_mappings, settle_time
from acktrail_jobs.frames import JobSession, collected_pieces
from acktrail_jobs.pieces import pieces_of

_PIECE: Final = 3_000_000
"""Rows of positions that are reduced at once, about."""
_PARTITIONS: Final = 1_000
"""Partitions of the topics that are judged together, about: each piece reads the positions of all."""
_US: Final = dt.timedelta(microseconds=1)
_KEYS: Final = itemgetter("event_id", "group_id", "partition", "source_partition", "source_offset")
"""What keys at risk are of."""
_Expansions = Mapping[str, Sequence[TopicExpansion]]
"""By topic id, oldest first."""


def audit_expansions(tables: TablesConfig, spark: JobSession) -> dict[str, Any]:
    """Find every expansion that ``partition_observations`` shows, judge every group across it, replace the three tables
    about expansions, and open and close their ``findings``. Gives how many expansions there are, and how many verdicts
    and findings of each kind.

    A stopped audit leaves tables of two runs, and the next one replaces all of them: ``partition_expansions`` is
    written after the others, ``findings`` last. What keys showed is kept.

    Raises:
        ConfigurationError: nothing was observed, or the tables cannot be read or written.
        ForeignCluster: the tables are another cluster's than the looks.
        ConcurrentCommit: another audit is writing.
    """
    stored = Tables(tables)
    # Before the looks are read: an audit that read them earlier than another one wrote comes too late.
    done, findings = (stored.transaction_version(*each) for each in ((EXPANSIONS, STEP), ("findings", EXPANSION.audit)))
    observations = stored.snapshot(OBSERVATIONS)
    if observations is None:
        raise ConfigurationError(
            f"no observation of partitions in the tables at {stored.root}",
            hint="run `acktrail expand check TOPIC` first",
        )
    doing("reading partition counts")
    looks, cluster_id = read_topics(stored, observations), cluster_of(observations)
    if not looks or cluster_id is None:
        raise ConfigurationError(f"no observation of topics in the tables at {stored.root}")
    newest_us, run_id = max((int(own.at[-1]), own.newest_run) for own in looks.values())
    doing("reading log ends")
    read, asked, before = partial(read_logs, stored, observations), asked_expansions(stored), stored_expansions(stored)
    found = find_expansions(cluster_id, looks, read, settle_time() // _US, asked)
    expansions = by_topic(with_stored(found, before, looks), looks, run_id, key_mappings())
    doing("judging groups")
    verdicts = _judged(stored, spark, expansions)
    _check_log_starts(verdicts, expansions, looks, read)
    _write(stored, cluster_id, expansions, verdicts, {STEP: newest_us}, {STEP: done})
    return {
        "expansions": sum(map(len, expansions.values())),
        "verdicts": dict(sorted(Counter(row["verdict"] for row in verdicts).items())),
        "findings": write_findings(stored, cluster_id, newest_us, findings),
    }


def _judged(stored: Tables, spark: JobSession, expansions: _Expansions) -> list[Row]:
    """Each executor judges some topics, and reads all files for the rows of them."""
    positions, history = stored.snapshot(POSITIONS), stored.snapshot(HISTORY)
    since = min((own[0].row["last_seen_old_at"] for own in expansions.values()), default=0)
    sizes = {file.path: file.rows or 1 for file in positions.files()} if positions else {}
    pieces = [*_pieces(file_spans(positions), sizes, since)] if positions else []
    paths = sorted(file.path for file in history.files()) if history else []
    topics = [(name, own) for name, own in expansions.items()]
    judging = partial(judge_topics, stored.config, pieces, paths)
    own = pieces_of(topics, lambda topic: sum(each.new_count for each in topic[1]), _PARTITIONS)
    rows = collected_pieces(spark, "judge groups", own, judging, VERDICT_ROWS)
    return [parse_json(row) for row in rows["row"].to_pylist()]


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


def _check_log_starts(
    rows: Sequence[Row],
    expansions: Mapping[str, Sequence[TopicExpansion]],
    looks: Mapping[str, TopicLooks],
    read: Callable[[Collection[LookPlace]], Mapping[LookPlace, Logs]],
) -> None:
    """Judge rows again where the retention took what was open, and say what groups skipped. `read` gives the logs of
    looks."""
    events = {each.row["event_id"]: each for own in expansions.values() for each in own}
    opened = [(row, _look(row, looks, "begun_at")) for row in rows if row["verdict"] == OrderVerdict.BROKEN]
    placed = [(row, _look(row, looks, "placed_at")) for row in rows if row.get("first_start_offset") is not None]
    logs = read({place for _, place in (*opened, *placed)})
    starts = {place: {n: log["log_start_offset"] or 0 for n, log in own.items()} for place, own in logs.items()}
    for row, place in opened:
        _expire(row, starts.get(place, {}), events[row["event_id"]].begins(row["partition"])[1] or 0)
    for row, place in placed:
        _skip(row, starts.get(place, {}), is_gapless=events[row["event_id"]].is_gapless)


def _look(row: Row, looks: Mapping[str, TopicLooks], instant: str) -> LookPlace:
    """The first look since then, or the newest: logs never begin at a lower offset than before."""
    if row["topic_id"] not in looks:
        return row["topic_id"], NEVER_YET
    at = looks[row["topic_id"]].at
    return row["topic_id"], int(at[min(int(np.searchsorted(at, row[instant] or 0)), len(at) - 1)])


def _expire(row: Row, starts: Mapping[int, int], begins: int) -> None:
    """Correct a verdict of broken order for records that retention had removed before the group began with the
    destination: they were not overtaken. A position also moves with the log start; then the group may have begun no
    record of the destination."""
    has_moved = row["evidence"] == "commits" and starts.get(row["partition"], 0) > begins
    start = starts.get(row["source_partition"], 0)
    if has_moved or start > row["last_open"]:
        row |= {"verdict": OrderVerdict.NOT_PROVEN, "reason": NotProven.EXPIRED, "evidence": None}
    elif start > row["source_offset"]:
        row |= {"source_offset": start, "open_records": None}


def _skip(row: Row, starts: Mapping[int, int], *, is_gapless: bool) -> None:
    """Note the records before the offset where a share group was placed first."""
    skipped = row["first_start_offset"] - starts.get(row["partition"], row["first_start_offset"])
    if skipped > 0:
        row["skipped_records"] = skipped if is_gapless else None
        if row["verdict"] != OrderVerdict.BROKEN:
            row |= {"verdict": OrderVerdict.SKIPPED, "reason": None, "evidence": "state_records"}
