"""Replay of copied records: by the rules of their dialect, or, where files are in the order of their log, all share
partitions at once in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acktrail.branches import loaded
from acktrail.errors import MissingDependency
from acktrail.format.wire.dialects.dialect import Dialect, DialectReplay, JsonForm, Replay
from acktrail.model.records import RecordAt
from acktrail.model.replay import Policy
from acktrail.model.replay import replay as replay_as_a_broker
from acktrail.offline.read.copied_files import raw_batches
from acktrail.offline.read.log_segment import ReadReport
from acktrail.offline.record_json import state_json

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedReplay:
    """One JSON object (``state_json``) a share partition, ordered by its key; numbers of readable and other records."""

    states: tuple[dict[str, object], ...]
    readable: int
    unreadable: int


def has_numpy() -> bool:
    """Whether numpy and pyarrow are installed."""
    return find_spec("pyarrow") is not None and find_spec("numpy") is not None


def replay_sorted(files: Iterable[Path], reading: ReadReport) -> SortedReplay | None:
    """The states after the records of `files`, in the layout of Kafka 4.1 and later; equal to ``model.replay``. None
    where this needs ``model.replay``: the records of a state partition do not ascend from file to file, an address
    comes twice, or a share partition is in two state partitions. Raises as ``read_file``."""
    import pyarrow as pa

    from acktrail.format.columns.decoding.decode_records import count_readable
    from acktrail.replay.raw_log import RawLogReplay
    from acktrail.replay.state_columns import states_of

    replay, reached = RawLogReplay(), dict[int, int]()
    readable = records = 0
    for file in files:
        for batch in raw_batches(file, reading):
            if not _continues(batch, reached):
                return None
            records += batch.num_rows
            readable += count_readable(pa.Table.from_batches([batch]))
            replay.add(batch)
    table = replay.finish()
    states = {state.key: state for state in states_of(table)}
    if len(states) != table.num_rows:
        return None
    forms = tuple(state_json(states[key]) for key in sorted(states))
    return SortedReplay(states=forms, readable=readable, unreadable=records - readable)


def _continues(batch: pa.RecordBatch, reached: dict[int, int]) -> bool:
    """Whether every offset of `batch` lies above those before it in its state partition, and above `reached`, which
    gets the highest ones."""
    import numpy as np

    from acktrail.format.columns.binary_column import ascending

    partition, offset = (np.asarray(batch.column(name), np.int64) for name in ("partition", "offset"))
    rows = ascending(partition)
    partition, offset = partition[rows], offset[rows]
    starts = np.flatnonzero(np.diff(partition, prepend=-2))  # no state partition is -2
    ends = np.append(starts[1:], len(rows))[: len(starts)] - 1
    rises = np.diff(offset) > 0
    rises[starts[1:] - 1] = True
    for place, end in zip(starts.tolist(), ends.tolist(), strict=True):
        state_partition = int(partition[place])
        if offset[place] <= reached.get(state_partition, -1):
            return False
        reached[state_partition] = int(offset[end])
    return bool(rises.all())


def replay_records(
    dialect: Dialect[Any], records: Iterable[RecordAt[Any]], policy: Policy, *, audited: bool
) -> DialectReplay:
    """The states after `records` of `dialect`, which come in log order within a partition, ordered by their keys.

    A dialect with rules of its own follows these. `audited`: also a broker's replay reports each rule that a record
    breaks. Raises MissingDependency: no branch knows these rules.
    """
    if dialect.replay is not None:
        found = dialect.replay(records, policy)
    elif audited or policy is Policy.STRICT:
        found = _strict_replay()(records, policy)
    else:
        states = replay_as_a_broker(record_at.record for record_at in records)
        found = DialectReplay(states=[*map(state_json, states.values())])
    return replace(found, states=sorted(found.states, key=_key))


def _strict_replay() -> Replay:
    rules: Replay | None = next(loaded("strict_replay"), None)
    if rules is None:
        raise MissingDependency(
            "--policy strict and --findings: no installed branch of acktrail knows the rules of the founding documents"
        )
    return rules


def _key(form: JsonForm) -> tuple[object, ...]:
    return form["group"], form["topic_id"] or "", form["partition"]
