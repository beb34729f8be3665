"""Copied records as a source: one task a state partition, named as the exporter's, so that positions are shared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from acktrail.connect.contract import LogSpan, Origin, SourceBatch, TaskId, state_task_id
from acktrail.errors import ForeignCluster, InputError
from acktrail.offline.load_files import FILE

if TYPE_CHECKING:
    import pyarrow as pa


_ROWS_AT_ONCE: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where records go: a cluster's tables, of one incarnation of its state topic (None: not known).

    `decode` turns ``RAW_RECORDS`` into ``DECODED_RECORDS``. `stored` returns offset, key and value of the
    stored records of a state partition from one offset to another, both inclusive. `reached` are the positions of the
    tables before the import; records that begin after them are refused unless `allow_gaps`.
    """

    cluster_id: str
    topic_id: str | None
    decode: Callable[[pa.Table], pa.Table]
    stored: Callable[[int, int, int], pa.Table]
    reached: Mapping[int, int]
    allow_gaps: bool = False


class FileSource:
    """The records of some files (``load``), one task a state partition. See `connect.contract.Source`."""

    def __init__(self, records: pa.Table, origins: Sequence[Origin], destination: Destination) -> None:
        self._records = records
        self._origins = origins
        self._destination = destination
        self._tasks: list[FileTask] = []

    def tasks(self) -> Sequence[FileTask]:
        """One task for each state partition that has a record."""
        import pyarrow.compute as pc

        partitions = pc.unique(self._records["partition"]).to_pylist()
        self._tasks = [
            FileTask(
                self._records.filter(pc.field("partition") == partition), self._origins, self._destination, partition
            )
            for partition in partitions
        ]
        return tuple(self._tasks)

    @property
    def known(self) -> int:
        """How many of the records were in the tables already, with the same bytes."""
        return sum(task.known for task in self._tasks)

    def close(self) -> None:
        """Nothing is open."""


class FileTask:
    """The records of one state partition, in the order of their offsets. See `connect.contract.SourceTask`.

    A batch without rows reports a gap: offsets that are in no file.
    """

    def __init__(self, records: pa.Table, origins: Sequence[Origin], destination: Destination, partition: int) -> None:
        self._records = records
        self._origins = origins
        self._destination = destination
        self._partition = partition
        self._pieces: Iterator[SourceBatch] = iter(())
        self._is_finished = False
        self.known = 0

    @property
    def task_id(self) -> TaskId:
        return state_task_id(self._destination.cluster_id, self._destination.topic_id, self._partition)

    def start(self, position: int | None) -> None:
        """Begin at `position`; None: at the first record. Records before it must be in the tables already.

        Raises:
            ForeignCluster: the tables have another record at an address.
            InputError: records before `position` are not in the tables, or some between it and the first are missing.
        """
        import numpy as np

        offsets = np.asarray(self._records["offset"])
        self.known = 0 if position is None else int(np.searchsorted(offsets, position))
        if self.known:
            self._check_known(self._records.slice(0, self.known))
        new = self._records.slice(self.known)
        if new.num_rows and position is not None:
            self._check_gap(position, int(offsets[self.known]))
        self._pieces = self._batches(new, position)

    def poll(self, timeout_s: float) -> SourceBatch | None:  # noqa: ARG002  # part of the contract: files do not wait
        """The next records, or the gap before them."""
        batch = next(self._pieces, None)
        self._is_finished = batch is None
        return batch

    @property
    def is_finished(self) -> bool:
        return self._is_finished

    def close(self) -> None:
        """Nothing is open."""

    def _check_known(self, records: pa.Table) -> None:
        """Check that each of `records` is in the tables with the same bytes."""
        for start in range(0, records.num_rows, _ROWS_AT_ONCE):
            piece = records.slice(start, _ROWS_AT_ONCE)
            offsets = piece["offset"]
            there = self._destination.stored(self._partition, offsets[0].as_py(), offsets[-1].as_py())
            by_offset = dict(zip(there["offset"].to_pylist(), _pairs(there), strict=True))
            for offset, pair in zip(offsets.to_pylist(), _pairs(piece), strict=True):
                if offset not in by_offset:
                    raise self._too_late(offset)
                if by_offset[offset] != pair:
                    raise self._foreign(offset)

    def _check_gap(self, position: int, first: int) -> None:
        is_first = self._destination.reached.get(self._partition) == position
        if first > position and is_first and not self._destination.allow_gaps:
            raise InputError(
                f"offsets {position} to {first - 1} of state partition {self._partition} are in no file, "
                f"and the tables end before them",
                hint="import the files that have them first, or say --allow-gaps to record them as lost",
                data={"state_partition": self._partition, "first_offset": position, "last_offset": first - 1},
            )

    def _batches(self, records: pa.Table, position: int | None) -> Iterator[SourceBatch]:
        import numpy as np

        if not records.num_rows:
            return
        offsets, files = np.asarray(records["offset"]), np.asarray(records[FILE])
        breaks = np.flatnonzero((np.diff(offsets) != 1) | (np.diff(files) != 0)) + 1
        begins = [0, *breaks.tolist()]
        for begin, end in zip(begins, [*begins[1:], len(offsets)], strict=True):
            first = int(offsets[begin])
            origin = self._origins[int(files[begin])]
            if position is not None and first > position:
                yield self._gap(position, first, origin)
            for start in range(begin, end, _ROWS_AT_ONCE):
                yield self._batch(records.slice(start, min(_ROWS_AT_ONCE, end - start)), origin)
            position = int(offsets[end - 1]) + 1

    def _batch(self, records: pa.Table, origin: Origin) -> SourceBatch:
        import pyarrow.compute as pc

        rows = self._destination.decode(records.drop_columns([FILE]))
        decoded = pc.sum(pc.equal(rows["decode_status"], "decoded")).as_py() or 0
        first, last = records["offset"][0].as_py(), records["offset"][-1].as_py()
        span = LogSpan(
            topic_id=self._destination.topic_id,
            partition=self._partition,
            first_offset=first,
            last_offset=last,
            records=rows.num_rows,
            quarantined=rows.num_rows - decoded,
            log_start_offset=None,
            log_end_offset=None,
            origin=origin,
        )
        return SourceBatch(task=self.task_id, rows={"state_records": rows}, position=last + 1, span=span)

    def _gap(self, position: int, first: int, origin: Origin) -> SourceBatch:
        span = LogSpan(
            topic_id=self._destination.topic_id,
            partition=self._partition,
            first_offset=None,
            last_offset=None,
            records=0,
            quarantined=0,
            log_start_offset=None,
            log_end_offset=None,
            gap_first=position,
            gap_last=first - 1,
            origin=origin,
        )
        return SourceBatch(task=self.task_id, rows={}, position=first, span=span)

    def _too_late(self, offset: int) -> InputError:
        return InputError(
            f"state partition {self._partition}, offset {offset} lies before what the tables have, and is not in them",
            hint="tables grow in the order of the log: import older files first, or into another root",
            data={"state_partition": self._partition, "offset": offset},
        )

    def _foreign(self, offset: int) -> ForeignCluster:
        return ForeignCluster(
            f"state partition {self._partition}, offset {offset}: the tables have another record there than the file",
            hint="the file is of another cluster, or of another incarnation of the state topic: name another root",
            data={"state_partition": self._partition, "offset": offset},
        )


def _pairs(records: pa.Table) -> list[tuple[bytes | None, bytes | None]]:
    return list(zip(records["key"].to_pylist(), records["value"].to_pylist(), strict=True))
