"""What connectors and their tasks promise: the life cycle of Kafka Connect, for batches of rows.

A connector of acktrail is a *source* and a *sink*: between them lies no topic, the positions of the source commit with
the rows in the sink. The source connector is configured (``config_def``), splits its work into tasks, and a *source
task* gives batches of rows. The sink connector gives every source task a *sink task* of its own, which takes the
batches and commits them together with their positions.

Methods of one task are called by one thread at a time: the source's by a thread that reads ahead, the sink's by
another. ``start`` comes first; ``stop`` comes last, once, also after an error, but not when the process dies: what
must survive has to be in the positions.

Errors (``acktrail.errors``) say what the worker does: a RetryableError or OutcomeUnknown restarts the task from its
positions, with growing pauses, for as long as the configuration says; any other error fails the task at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from acktrail.errors import InputError
from acktrail.model.log_positions import Position, SourcePartition
from acktrail_connect.config_def import ConfigDef
from acktrail_connect.source_batches import Commit, LogEnds, LogMark, SourceBatch, StoredLogs

Config = Mapping[str, Any]
"""Parsed values by key: what ``ConfigDef.parse`` gives."""


CommittedPositions = Callable[[Sequence[SourcePartition]], Mapping[SourcePartition, Position]]
"""Looks up the committed positions of some source partitions; those without one are left out."""


def _no_position(_: SourcePartition) -> None:
    """A source that is run without a sink begins at its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTaskContext:
    """What a source task learns of its surroundings. `position` gives the position of a source partition as of the
    sink's last commit when the task started; None: it never committed. `committed` looks up positions in the sink's
    storage as they are now, also those of other connectors. `stored` are the logs as the sink has them, where it can
    compare them with Kafka's. `stop` is set when the worker wants an end: a long wait should look at it."""

    run_id: str = "run"
    position: Callable[[SourcePartition], Position | None] = _no_position
    committed: CommittedPositions = lambda _: {}
    stored: StoredLogs | None = None
    stop: Event = field(default_factory=Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """A number that a source shows in the worker's metrics, now. `labels` by name; texts of errors, ids of members and
    other unbounded values are no labels."""

    name: str
    about: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


class SourceTask(ABC):
    """One task of a source connector: reads one or more source partitions."""

    limits: str = ""
    """What keeps the task from seeing everything that it is for, for its status; empty: nothing is known to. Read by
    any thread."""

    @abstractmethod
    def start(self, context: SourceTaskContext) -> None:
        """Begin at the positions that `context` gives.

        Traps: ask for the positions here, not in the constructor; another writer may have moved them since. A position
        is the *next* thing to read, not the last one read.
        """

    @abstractmethod
    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        """The next batches; none when nothing came within about `timeout_s` seconds.

        Traps: never block much longer, or the task cannot be paused or stopped; a sleep is a block. Batches of one
        source partition come in the order of their positions, and a position stands *after* the rows of its batch.
        What is given here may be read again after a crash: it is safe only after ``commit`` names it. Rows with a
        position go to one table; a source partition has one table.
        """

    @abstractmethod
    def stop(self) -> None:
        """Close connections. May be called without ``start``, or after a failed one. Not guaranteed to be called."""

    def commit(self, positions: Mapping[SourcePartition, Position]) -> None:
        """The sink has committed up to `positions`: acknowledge to the origin what waits for it.

        Traps: called on the sink's thread. A crash may come between the sink's commit and this call: the origin must
        bear it that it never comes.
        """

    def gauges(self) -> Sequence[Gauge]:
        """What the worker's metrics show of the source. Called by any thread."""
        return ()

    @property
    def is_finished(self) -> bool:
        """A bounded task has given everything up to the end that it saw at start. A continuous one never has."""
        return False

    @property
    def partitions(self) -> tuple[int, int]:
        """How many source partitions are at their end, and how many there are: for progress."""
        return (0, 1)


class SinkTask(ABC):
    """One task of a sink connector: writes what one source task gives. One writer at a time for each source partition;
    a second one fails with ConcurrentCommit."""

    def start(self) -> None:
        """Check that the destination can be written, and complete what a crash interrupted."""

    @abstractmethod
    def position(self, source_partition: SourcePartition) -> Position | None:
        """The position of the last commit; None when there is none. Called for each source partition before its first
        batch with a position; a batch without one (observations) comes unannounced.

        Trap: it must come from where the rows are. A position that is stored apart from its rows is wrong after a
        crash between the two.
        """

    @abstractmethod
    def put(self, batch: SourceBatch) -> None:
        """Take a batch; it is safe only after the next flush. An idle batch (no rows, no gap, the position unmoved)
        leaves no trace.

        Raises RowsRefused when the rows can never be written; then nothing of the batch is taken, and the worker may
        put it again with its rows as dead letters.

        Trap: look at types and names here. In ``flush`` it is too late to keep one batch apart from another.
        """

    @property
    @abstractmethod
    def pending_rows(self) -> int:
        """Rows put since the last flush."""

    @abstractmethod
    def flush(self) -> Commit:
        """Commit everything put so far with its positions, or nothing.

        Raises ConcurrentCommit when another writer moved one of the positions: nothing of this flush landed.

        Traps: after an error nothing may be pending: the worker starts the source task again at the positions that
        landed. An answer that never came is OutcomeUnknown, never "failed": the worker looks at the positions first.
        """

    def stop(self) -> None:
        """Close connections. What was put and not flushed is dropped. Not guaranteed to be called."""

    @property
    def stored(self) -> StoredLogs | None:
        """What this sink has of the logs, where it can compare them with Kafka's."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTaskContext:
    """What a sink task is for: the connector's name, the cluster that its rows are of (None: of none), and the run.
    `reads_logs` as of the source; `dead_letter_table` gets what the sink or a transform refused, beside the table that
    a source partition has (None: refusals are not tolerated)."""

    connector: str
    run_id: str
    cluster_id: str | None = None
    reads_logs: bool = False
    dead_letter_table: str | None = None


class Configured(ABC):
    """A plug-in as a person configures it. `config_def` are the keys of its own; `description` is one sentence."""

    config_def: ClassVar[ConfigDef]
    description: ClassVar[str] = ""

    def __init__(self, config: Config) -> None:
        """Keep the parsed configuration. Traps: connect in ``start``, not here; a validation makes objects too."""
        self.config = config


class SourceConnector(Configured):
    """A source. `reads_logs`: its batches have spans, which count every record of a log."""

    reads_logs: ClassVar[bool] = False
    cluster_id: str | None = None
    """The cluster that the rows are of; None: no Kafka cluster. Known after ``start``."""

    def start(self) -> None:
        """Find out what there is to read. Raises what the worker shall do about it (see above)."""

    @abstractmethod
    def task_configs(self, most: int) -> Sequence[Config]:
        """The work as at least one and at most `most` parts, JSON each: REST shows them. They must not hold secrets."""

    @abstractmethod
    def task(self, config: Config) -> SourceTask:
        """A task for one of ``task_configs``; nothing is opened yet."""

    def stop(self) -> None:
        """Close what ``start`` opened. May be called without it."""

    def source_partitions(self) -> Sequence[SourcePartition]:
        """Those that are known after ``start``; a source that finds its parts as it goes gives none."""
        return ()

    def ends(self) -> Mapping[SourcePartition, LogEnds]:
        """Where each source partition that is a log begins and ends now, in the offsets of its origin: for the lag of
        the export. Called by any thread. Raises RetryableError and its like when that cannot be asked."""
        return {}

    def fields_of(self, source_partition: SourcePartition) -> Mapping[str, Any]:
        """A source partition as the object that REST shows. Trap: these must be the same tomorrow, or positions are
        lost."""
        return {"partition": str(source_partition)}

    def source_partition(self, fields: Mapping[str, Any]) -> SourcePartition:
        """The inverse of ``fields_of``. Raises InputError when `fields` are none."""
        found = fields.get("partition")
        if not isinstance(found, str):
            raise InputError("a source partition of this connector must be an object with the text 'partition'")
        return SourcePartition(found)

    def check_position(self, source_partition: SourcePartition, position: Position) -> None:
        """Whether reading can continue at `position`, when a person asks for it; raises InputError when it cannot. Of a
        log it is an offset of its origin, also where the sink's are shifted (``LogMark``)."""


class WorkLease(Protocol):
    """Keeps a second worker standing by. It only saves work: commits expect positions, so two workers never double."""

    def acquire(self) -> bool:
        """Take or renew it; False: another worker has it. Called every few seconds. Raises RetryableError when the
        storage cannot be asked."""

    def release(self) -> None:
        """Give it back, if it is held."""

    @property
    def holder(self) -> str:
        """Who had it when it was last looked at, for people; empty: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """The connector that a lease is for, the name of the worker that wants it, and how long it lasts unless it is
    renewed. `reads_logs` as of the connector's source."""

    connector: str
    owner: str
    ttl_s: float
    reads_logs: bool = False


class SinkConnector(Configured):
    """A sink. `takes_transformed_logs`: rows of a log may be left out or changed on the way; a sink that keeps logs
    whole refuses that."""

    takes_transformed_logs: ClassVar[bool] = True

    def start(self) -> None:
        """Check what can be checked before the first task. Raises what the worker shall do about it."""

    @abstractmethod
    def task(self, context: SinkTaskContext) -> SinkTask:
        """A sink task for one source task; nothing is opened yet."""

    def stop(self) -> None:
        """Close what ``start`` opened. May be called without it."""

    def lease(self, terms: LeaseTerms) -> WorkLease | None:  # noqa: ARG002  # for those that can
        """A lease in the sink's storage; None: this storage cannot keep workers apart, and each one runs the connector.
        Nothing is asked yet."""
        return None

    @abstractmethod
    def positions(
        self, connector: str, source_partitions: Sequence[SourcePartition]
    ) -> Mapping[SourcePartition, Position]:
        """The committed positions of `source_partitions`, and of others that `connector` is known to have committed.
        Called by any thread."""

    def log_marks(self, source_partitions: Sequence[SourcePartition]) -> Mapping[SourcePartition, LogMark]:  # noqa: ARG002  # for those that can
        """What is noted beside the positions of logs; those without a note are left out. Called by any thread."""
        return {}

    def alter_positions(self, connector: str, positions: Mapping[SourcePartition, Position | None]) -> None:
        """Set positions, None: remove one; all or none. The connector is stopped meanwhile.

        Raises InputError when that would lose or double rows that are committed here: one that cannot know refuses.
        """
        count = len(positions)
        raise InputError(
            f"the sink of {connector} cannot change {count} positions, because rows would be doubled or lost"
        )


class Transform(Configured):
    """Changes the rows of a batch. One object for one task; called by one thread."""

    @abstractmethod
    def apply(self, table: str, rows: pa.Table) -> tuple[str, pa.Table]:
        """The table that `rows` go to, and what becomes of them; rows may be left out.

        Traps: rows must keep the types of their columns, or the sink refuses them; the same rows must give the same
        result, or a restart changes what was committed.
        """
