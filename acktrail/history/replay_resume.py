"""From one reconciliation to the next: what a replay continues from, why it may not, and what it saves.

Here, too: a replay to any past moment.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import ConcurrentCommit, ConfigurationError
from acktrail.format.columns.share_partition_keys import grouped
from acktrail.history.observed_run import (
    QUARANTINE_COLUMNS,
    QUARANTINED,
    Coverage,
    Observation,
    count_quarantined,
    coverage_of,
)
from acktrail.history.partition_replay import Replay
from acktrail.history.saved_states import (
    REPLAY,
    SavedStates,
    all_used,
    continued,
    files_to_read,
    read_saved,
    save_files,
    source_of,
)
from acktrail.tables.delta.store import Tables
from acktrail.tables.records.export_ranges import read_ranges
from acktrail.tables.records.record_files import RECORDS, NewRecords, RecordFiles, extremes, records_version

_REPEATED: Final = ("group_id", "topic_id", "record_type", "decode_status")
"""Columns whose texts are read once for a file, and as numbers for its rows."""
_NOTHING_SAVED: Final = SavedStates(table=REPLAY)
_QUARANTINED: Final = ("quarantined", "quarantined_offset", "unattributed_offset")
"""Fields of a ``Coverage``, and of the column `exported`."""
_FOR_EVER: Final = dt.datetime.max.replace(tzinfo=dt.UTC)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LATEST_MS: Final = 253_402_300_799_999


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStart:
    """What executors continue from: the `saved` replay, and the files of ``state_records`` that may have later records,
    oldest first (`paths`; None: all that it has)."""

    saved: SavedStates = _NOTHING_SAVED
    paths: tuple[str, ...] | None = None

    def records_of(self, coverage: Coverage) -> int:
        """About how many records there are to replay of a state partition."""
        return coverage.records_from(self.saved.positions.get(coverage.state_partition, 0))

    def rows(self, coverages: Mapping[int, Coverage]) -> int:
        """About how many rows the replay reads: new records, and saved share partitions."""
        return self.saved.share_partitions + sum(map(self.records_of, coverages.values()))


class ReplayResume:
    """The saved replay that one reconciliation finds, and its coverage.

    What is saved are states after all records before a position of each state partition, also records that came with a
    later observation. They are usable as long as nothing was added before these positions, and nothing taken away. The
    files of ``state_records`` show that (``record_files``); its version does not: an export brings records of later
    observations long before these are reconciled.
    """

    def __init__(self, tables: Tables, observation: Observation) -> None:
        self._tables, self._observation = tables, observation
        self._saved = continued(tables, read_saved(tables, REPLAY))
        coverages = coverage_of(tables, observation)
        self._ends = {number: coverage.end_offset or 0 for number, coverage in coverages.items()}
        self._records = tables.snapshot(RECORDS)  # after the ranges: it has all records that they name
        self._files = None if self._records is None else RecordFiles(tables, self._records)
        new = NewRecords(paths=frozenset(), changed=self._saved.unusable or "there are no records")
        if self._records is not None and self._files is not None:
            new = files_to_read(self._saved, self._records, self._files)
        self._unusable, self._paths = new.changed, new.paths
        self._is_older = not self._unusable and any(
            position > self._ends.get(number, 0) for number, position in self._saved.positions.items()
        )
        later = f"run {self._saved.run_id!r} saved states of later records"
        self.full_replay_reason = later if self._is_older else self._unusable
        """Why all records are replayed; None where they are not."""
        self.run_id = None if self.full_replay_reason else self._saved.run_id
        """The run whose saved replay is continued."""
        self.coverages = self._with_quarantined(coverages)

    @property
    def covered_version(self) -> str | None:
        """The version of ``state_records`` all of whose records are replayed; None where some lie beyond the
        observation."""
        if self._records is None or self._is_older or self._beyond():
            return None
        return records_version(self._records)

    def start(self) -> ReplayStart:
        """What the replay continues from."""
        if self._files is None:
            return ReplayStart(paths=())
        if self.full_replay_reason:
            return ReplayStart(paths=self._files.oldest_first(self._files.paths))
        return ReplayStart(saved=self._saved, paths=self._files.oldest_first(self._paths))

    @property
    def is_further(self) -> bool:
        """The replay goes further than the saved one: what it leaves is saved."""
        is_new = self._unusable is not None or self._ends != dict(self._saved.positions)
        return self._records is not None and not self._is_older and is_new

    def save(self, files: pa.Table, counts: Mapping[int, int]) -> None:
        """Save what the replay left, if it is further: `files` (``WRITTEN_FILES``) with `counts` rows of each state
        partition."""
        if self._records is None or self._files is None or not self.is_further:
            return
        saved = SavedStates(
            table=REPLAY,
            step=self._saved.step,
            positions=self._ends,
            run_id=self._observation.run_id,
            source=source_of(self._records, REPLAY),
            used=all_used(self._files, self._beyond(), self._ends),
            exported={n: {name: getattr(c, name) for name in _QUARANTINED} for n, c in self.coverages.items()},
        )
        cluster_id, step = self._observation.cluster_id or "", (self._saved.step or 0) + 1
        with contextlib.suppress(ConcurrentCommit):  # another reconciliation saved its own: as good as this one
            save_files(self._tables, saved, files, counts, cluster_id=cluster_id, step=step)

    def _beyond(self) -> list[str]:
        """The files with records after the end of the observation."""
        return [] if self._files is None else self._files.beyond(self._paths, self._ends)

    def _with_quarantined(self, coverages: Mapping[int, Coverage]) -> dict[int, Coverage]:
        """`coverages` with the records that could not be decoded: the saved ones, and those in new files; or all."""
        saved, paths = self.start().saved, self.start().paths or ()
        known = {
            number: replace(coverage, **(saved.exported.get(number) or {})) for number, coverage in coverages.items()
        }
        new = self._tables.file_batches(
            RECORDS, paths, columns=QUARANTINE_COLUMNS, where=QUARANTINED, dictionaries=("group_id",)
        )
        return count_quarantined(known, new, saved.positions)


def replay_of(
    tables: Tables,
    observation: Observation,
    start: ReplayStart,
    coverages: Sequence[Coverage],
    only: pc.Expression | None = None,
) -> Replay:
    """The replay of the state partitions of `coverages` in this process; `only`: of the records where this holds."""
    numbers = [coverage.state_partition for coverage in coverages]
    positions = {number: start.saved.positions[number] for number in numbers if number in start.saved.positions}
    snapshot = tables.snapshot(RECORDS) if start.paths is None else None
    paths = start.paths or (() if snapshot is None else RecordFiles(tables, snapshot).reaching({}))

    def read(columns: Sequence[str], where: pc.Expression) -> Iterable[pa.RecordBatch]:
        own = {"sparing": True, "groups": where, "dictionaries": _REPEATED}
        return tables.file_batches(RECORDS, paths, columns=columns, where=only, **own)

    return Replay(read, observation, coverages, start.saved.rows(tables, numbers), positions)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAtTime:
    """What each state partition held at `at_ms` (None: at the end of the export), as far as it was exported.

    A state partition is cut before its first record with a later time, as Kafka's own lookup of an offset by time does.
    `began_later`: state partitions whose export began after the moment, and not with their first record: share
    partitions that had a state then may be missing. `exported_at`: the newest commit of the exporter; what was written
    after it is not known.
    """

    at_ms: int | None
    observation: Observation
    coverages: Mapping[int, Coverage]
    began_later: tuple[int, ...] = ()
    exported_at: dt.datetime | None = None


def topic_at_time(tables: Tables, at_ms: int | None = None) -> TopicAtTime:
    """What the tables hold of the state topic as of `at_ms`, ms since the epoch, inclusive; None: all of it. Raises
    ConfigurationError (nothing was exported)."""
    snapshot = tables.snapshot("state_records")
    if snapshot is None:
        raise ConfigurationError(f"no records in the tables at {tables.root}", hint="run `acktrail run export` first")
    observed_at = _FOR_EVER if at_ms is None else _EPOCH + dt.timedelta(milliseconds=min(at_ms, _LATEST_MS))
    observation = Observation(cluster_id=None, run_id="", after_began_at=_FOR_EVER, observed_at=observed_at)
    exports = read_ranges(tables).filter(pc.field("first_offset").is_valid())
    begun = grouped(exports, ["state_partition"], first_offset="min", exported_at="min").to_pylist()
    cuts = {} if at_ms is None else _cuts(tables, at_ms)
    coverages = {number: _before(found, cuts.get(number)) for number, found in coverage_of(tables, observation).items()}
    later = (each["state_partition"] for each in begun if each["first_offset"] and each["exported_at"] > observed_at)
    return TopicAtTime(
        at_ms=at_ms,
        observation=observation,
        coverages=count_quarantined(coverages, snapshot.batches(columns=QUARANTINE_COLUMNS, where=QUARANTINED)),
        began_later=tuple(sorted(later)),
        exported_at=pc.max(exports["exported_at"]).as_py(),
    )


def states_of_topic(tables: Tables, moment: TopicAtTime, group_id: str | None = None) -> pa.Table:
    """Rows of ``REPLAYED``: every share partition (of a group) that had a state, or may have had one, at `moment`."""
    only = None if group_id is None else pc.field("group_id") == group_id
    return replay_of(tables, moment.observation, ReplayStart(), tuple(moment.coverages.values()), only).states()


def _before(coverage: Coverage, cut: int | None) -> Coverage:
    """`coverage` up to the first record after the moment. The records of a gap there may lie on either side."""
    if cut is None or coverage.end_offset is None:
        return coverage
    gaps = tuple(gap for gap in coverage.gaps if gap.first_offset < cut)
    return replace(coverage, end_offset=min(cut, coverage.end_offset), gaps=gaps)


def _cuts(tables: Tables, at_ms: int) -> dict[int, int]:
    """The offset of each state partition's first record after `at_ms`. Files without such records are left unread."""
    snapshot = tables.snapshot("state_records")
    assert snapshot is not None
    cuts: dict[int, int] = {}
    later = pc.field("timestamp_ms") > at_ms
    for batch in snapshot.batches(columns=["state_partition", "offset"], where=later):
        for number, offset in extremes(pa.Table.from_batches([batch]), "offset", "min").items():
            cuts[number] = min(offset, cuts.get(number, offset))
    return cuts
