"""What executors read of the observations: files in shares, and the pieces of work on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.expansion.fence_columns import LOG_ROWS, LOG_VALUES
from acktrail.columnar.expansion.look_columns import LOOK_ROWS, microseconds
from acktrail.columnar.expansion.ordering_columns import ORDERING_ROWS, START_ROWS, audit_topic
from acktrail.columnar.expansion.position_matrix import (
    POSITION_COLUMNS,
    POSITION_NAMES,
    SHARE,
    AuditedTopic,
    PositionMatrix,
    ReadingAxis,
)
from acktrail.columnar.schemas.schema_types import BOOL, INT64, STRING
from acktrail.config import TablesConfig
from acktrail.executors import JobStep, Results, balanced_shares
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import DataFile, TableSnapshot

OBSERVATIONS: Final = "partition_observations"
POSITIONS: Final = "group_positions"
GROUP_ROWS: Final = pa.schema(
    [
        *(pa.field(name, STRING) for name in ("cluster_id", "topic_id", "group_id", "group_type")),
        pa.field("newest", INT64),
    ]
)
"""A group that has rows about a topic, and its newest reading in microseconds."""
READING_ROWS: Final = pa.schema([pa.field("at", INT64), pa.field("run_id", STRING), pa.field("is_share", BOOL)])
"""One reading of all groups of a kind."""
_LOOK_NAMES: Final = ("cluster_id", "run_id", "topic_id", "topic", "consistency")
_GROUP_NAMES: Final = ("cluster_id", "run_id", *POSITION_NAMES)
_SHARES_EACH: Final = 4
"""Shares for each executor: one that is slow holds up the others for less."""
READ_LOOKS: Final = JobStep(name="read looks at partition counts", kinds={"looks": LOOK_ROWS})
READ_LOGS: Final = JobStep(name="read log ends at looks", kinds={"logs": LOG_ROWS})
READ_GROUPS: Final = JobStep(name="read groups", kinds={"groups": GROUP_ROWS, "readings": READING_ROWS})
_CUT_OFF: Final = 999
"""Microseconds that the statistics of a Delta table do not have."""
AUDIT_GROUPS: Final = JobStep(name="audit groups", kinds={"ordering": ORDERING_ROWS, "starts": START_ROWS})


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedLooks:
    """Looks whose logs are wanted: `number` is what results call each; by topic and instant in microseconds, all of
    shape (n,), ascending by both. `run` is a number of `runs`."""

    topic_ids: tuple[str, ...]
    runs: tuple[str, ...]
    number: Int64Array
    topic: Int64Array
    at: Int64Array
    run: Int64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicShare:
    """Topics whose groups one executor audits."""

    topics: tuple[AuditedTopic, ...]
    axes: tuple[ReadingAxis, ReadingAxis]


def file_shares(files: Iterable[DataFile], executors: int) -> list[tuple[str, ...]]:
    """All files, in shares of about equal rows."""
    shares = balanced_shares(
        sorted(files, key=lambda file: file.path), lambda file: file.rows or 1, executors * _SHARES_EACH
    )
    return [tuple(file.path for file in share) for share in shares]


def files_within(snapshot: TableSnapshot, instants: Int64Array) -> list[DataFile]:
    """The files that may have rows of one of `instants` (ascending, in microseconds), by the log's statistics, which
    cut instants off after the millisecond."""
    bounds = snapshot.statistics(("min.observed_at", "max.observed_at"))
    kept = []
    for file in snapshot.files():
        least, most = (_as_number(bounds[file.path][name]) for name in ("min.observed_at", "max.observed_at"))
        begin = 0 if least is None else np.searchsorted(instants, least)
        end = len(instants) if most is None else np.searchsorted(instants, most + _CUT_OFF, side="right")
        if begin < end:
            kept.append(file)
    return kept


def _as_number(instant: Any) -> int | None:
    return None if instant is None else int(pa.scalar(instant, pa.timestamp("us", tz="UTC")).value)


def read_looks(config: TablesConfig, paths: Sequence[str]) -> Results:
    """``looks``: rows of ``LOOK_ROWS`` in some files."""
    batches = Tables(config).file_batches(
        OBSERVATIONS, paths, columns=LOOK_ROWS.names, where=pc.field("partition") == 0, dictionaries=_LOOK_NAMES
    )
    for batch in batches:
        if batch.num_rows:
            yield "looks", pa.table(batch).cast(LOOK_ROWS)


def read_logs(config: TablesConfig, wanted: WantedLooks, paths: Sequence[str]) -> Results:
    """``logs``: rows of ``LOG_ROWS`` of the wanted looks in some files."""
    columns = ["topic_id", "run_id", "observed_at", "partition", *LOG_VALUES]
    topics, runs = ({name: number for number, name in enumerate(names)} for names in (wanted.topic_ids, wanted.runs))
    for batch in Tables(config).file_batches(OBSERVATIONS, paths, columns=columns, dictionaries=("topic_id", "run_id")):
        look = _look_of(batch, wanted, topics, runs)
        rows = np.flatnonzero((look >= 0) & batch["partition"].is_valid().to_numpy(zero_copy_only=False))
        if len(rows):
            found = batch.take(pa.array(rows))
            yield "logs", pa.table({"look": look[rows], **{n: found[n] for n in LOG_ROWS.names[1:]}}).cast(LOG_ROWS)


def _look_of(batch: pa.RecordBatch, wanted: WantedLooks, topics: dict[str, int], runs: dict[str, int]) -> Int64Array:
    """The wanted look that each row belongs to, -1 for none. Rows of one look mostly follow each other: each stretch of
    them is looked up once."""
    topic, run = _codes(batch["topic_id"], topics), _codes(batch["run_id"], runs)
    at = microseconds(batch["observed_at"])
    if not len(at):
        return at
    changes = (topic[1:] != topic[:-1]) | (at[1:] != at[:-1]) | (run[1:] != run[:-1])
    begins = np.concatenate([[0], 1 + np.flatnonzero(changes)])
    instants = np.unique(wanted.at)
    place = np.minimum(np.searchsorted(instants, at[begins]), len(instants) - 1)
    keys = wanted.topic * len(instants) + np.searchsorted(instants, wanted.at)
    own = np.where(instants[place] == at[begins], topic[begins] * len(instants) + place, -1)
    found = np.minimum(np.searchsorted(keys, own), len(keys) - 1)
    fits = (topic[begins] >= 0) & (keys[found] == own) & (wanted.run[found] == run[begins])
    lengths = np.diff(np.concatenate([begins, [len(at)]]))
    return np.repeat(np.where(fits, wanted.number[found], -1), lengths)


def read_groups(config: TablesConfig, topic_ids: Sequence[str], paths: Sequence[str]) -> Results:
    """``groups`` and ``readings``: rows of ``GROUP_ROWS`` about some topics and of ``READING_ROWS``, in some files."""
    topics = {name: number for number, name in enumerate(topic_ids)}
    names: dict[str, dict[str, int]] = {name: {} for name in ("cluster_id", "run_id", "group_id", "group_type")}
    groups, readings = [], []
    columns = [*_GROUP_NAMES, "observed_at"]
    for batch in Tables(config).file_batches(POSITIONS, paths, columns=columns, dictionaries=_GROUP_NAMES):
        own = {name: _growing_codes(batch[name], known) for name, known in names.items()}
        at, topic = microseconds(batch["observed_at"]), _codes(batch["topic_id"], topics)
        group = (own["group_id"] << 24 | topic) << 8 | own["group_type"] << 4 | own["cluster_id"]
        groups.append(_newest(group, at, topic >= 0))
        is_share = own["group_type"] == names["group_type"].get(SHARE, -1)
        readings.append(_newest(own["run_id"] << 1 | is_share, at, np.ones(len(at), np.bool_), each_instant=True))
    yield "groups", _group_rows(topic_ids, names, *_joined(groups))
    number, at = _joined(readings)
    runs = pa.array([*names["run_id"]], STRING).take(pa.array(number >> 1))
    yield "readings", pa.table({"at": at, "run_id": runs, "is_share": (number & 1).astype(np.bool_)}, READING_ROWS)


def _group_rows(
    topic_ids: Sequence[str], names: Mapping[str, Mapping[str, int]], packed: Int64Array, at: Int64Array
) -> pa.Table:
    packed, at = _newest(packed, at, np.ones(len(at), np.bool_))
    numbers = {
        "cluster_id": packed & 15,
        "topic_id": packed >> 8 & 0xFFFFFF,
        "group_id": packed >> 32,
        "group_type": packed >> 4 & 15,
    }
    known = {**names, "topic_id": topic_ids}
    columns = {name: pa.array([*known[name]], STRING).take(pa.array(own)) for name, own in numbers.items()}
    return pa.table({**columns, "newest": at}, GROUP_ROWS)


def _newest(
    keys: Int64Array, at: Int64Array, kept: BoolArray, *, each_instant: bool = False
) -> tuple[Int64Array, Int64Array]:
    """The keys of the rows that are `kept`, each once with its newest instant, or with each of its instants. Rows of
    one key mostly follow each other."""
    rows = np.flatnonzero(kept)
    keys, at = keys[rows], at[rows]
    if not len(rows):
        return keys, at
    ends = np.concatenate([np.flatnonzero((keys[1:] != keys[:-1]) | (at[1:] != at[:-1])), [len(rows) - 1]])
    order = np.lexsort((at[ends], keys[ends]))
    keys, at = keys[ends][order], at[ends][order]
    changes = (keys[1:] != keys[:-1]) | (each_instant & (at[1:] != at[:-1]))
    last = np.concatenate([np.flatnonzero(changes), [len(keys) - 1]])
    return keys[last], at[last]


def _joined(pieces: Sequence[tuple[Int64Array, Int64Array]]) -> tuple[Int64Array, Int64Array]:
    nothing = np.empty(0, np.int64)
    keys, at = ([nothing, *(piece[side] for piece in pieces)] for side in (0, 1))
    return np.concatenate(keys), np.concatenate(at)


def read_audits(config: TablesConfig, paths: Sequence[str], share: TopicShare) -> Results:
    """``ordering`` and ``starts`` of the groups of some topics."""
    matrix = PositionMatrix(share.topics, share.axes)
    for batch in Tables(config).file_batches(POSITIONS, paths, columns=POSITION_COLUMNS, dictionaries=POSITION_NAMES):
        matrix.take(batch)
    for topic, kind, positions in matrix.blocks():
        yield from audit_topic(topic, kind, positions, share.axes[kind].at)


def _growing_codes(column: pa.Array, known: dict[str, int]) -> Int64Array:
    """The number of each row's name, where one that is not known gets the next number. Null is the empty name."""
    encoded = column if isinstance(column, pa.DictionaryArray) else pc.dictionary_encode(column)
    for name in encoded.dictionary.to_pylist():
        known.setdefault(name, len(known))
    if encoded.null_count:
        return np.where(encoded.is_null(), known.setdefault("", len(known)), _codes(encoded, known))
    return _codes(encoded, known)


def _codes(column: pa.Array, known: Mapping[str, int]) -> Int64Array:
    """The number of each row's name; -1 for another one, and for none."""
    encoded = column if isinstance(column, pa.DictionaryArray) else pc.dictionary_encode(column)
    numbers = np.array([*(known.get(name, -1) for name in encoded.dictionary.to_pylist()), -1], np.int64)
    return numbers[np.asarray(encoded.indices.fill_null(-1).to_numpy(), np.int64)]
