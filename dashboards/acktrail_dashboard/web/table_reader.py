"""Reads tables for pages: each again only after a commit, and a table that cannot be read is a note, not an end."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from threading import RLock
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot, chosen_columns
from acktrail.view.health import status_reader

AnswerT = TypeVar("AnswerT")
_ANSWERS: Final = 128
"""Answers that are kept; a newer version of a table is another answer."""
_BYTES: Final = 128 << 20
"""The answers that are kept have at most this number of bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProblem:
    """A table that cannot be read, why, and what to do."""

    table: str
    message: str
    hint: str


class TableReader:
    """Reads the tables of one root, for several threads one after the other. Raises nothing about a table: its rows are
    none then, and the problem is in what the caller passes as `problems`."""

    def __init__(self, config: TablesConfig) -> None:
        """Raises ConfigurationError: the root is none."""
        self.tables: Final = Tables(config)
        self.lock: Final = RLock()
        """Held by callers that use `tables` themselves."""
        self._answers: OrderedDict[tuple[object, ...], pa.Table] = OrderedDict()

    def exists(self, name: str, problems: list[TableProblem]) -> bool:
        """Whether the table was ever created; True where that cannot be found out."""
        with self.lock:
            before = len(problems)
            return self._snapshot(name, problems) is not None or len(problems) > before

    def read(
        self,
        name: str,
        problems: list[TableProblem],
        *,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
    ) -> pa.Table:
        """Rows of a table's newest version that satisfy `where`, in no order."""
        named = None if columns is None else tuple(columns)

        def answer(snapshot: TableSnapshot) -> pa.Table:
            return snapshot.read(columns=named, where=where)

        found = self._asked(name, problems, ("read", named, str(where)), answer)
        return chosen_columns(name, columns).empty_table() if found is None else found

    def trend(
        self,
        problems: list[TableProblem],
        place: tuple[str, str | None, int | None],
        since: datetime,
        until: datetime,
    ) -> pa.Table:
        """``status_reader.trend`` of a group, or of a share partition (group, topic id, partition)."""

        def answer(_: TableSnapshot) -> pa.Table:
            return status_reader.trend(self.tables, *place, since=since, until=until)

        found = self._asked("queue_trends", problems, ("trend", place, since, until), answer)
        return chosen_columns("queue_trends", None).empty_table() if found is None else found

    def _asked(
        self,
        name: str,
        problems: list[TableProblem],
        question: tuple[object, ...],
        answer: Callable[[TableSnapshot], pa.Table],
    ) -> pa.Table | None:
        """The answer of the newest version, kept until the next one; None: there is no table, or it cannot be read."""
        with self.lock:
            snapshot = self._snapshot(name, problems)
            if snapshot is None:
                return None
            asked = (name, snapshot.table_id, snapshot.version, *question)
            if asked not in self._answers:
                try:
                    self._keep(asked, answer(snapshot))
                except (AcktrailError, pa.ArrowException, OSError) as error:
                    problems.append(_problem(name, error))
                    return None
            self._answers.move_to_end(asked)
            return self._answers[asked]

    def ask(
        self, name: str, problems: list[TableProblem], question: Callable[[Tables], AnswerT], nothing: AnswerT
    ) -> AnswerT:
        """The answer of a reader of acktrail that needs the tables themselves; `nothing` where one cannot be read, for
        which the problem names the table `name`."""
        with self.lock:
            try:
                return question(self.tables)
            except (AcktrailError, pa.ArrowException, OSError) as error:
                problems.append(_problem(name, error))
                return nothing

    def _snapshot(self, name: str, problems: list[TableProblem]) -> TableSnapshot | None:
        try:
            return self.tables.followed(name)
        except (AcktrailError, pa.ArrowException, OSError) as error:
            problems.append(_problem(name, error))
            return None

    def _keep(self, asked: tuple[object, ...], rows: pa.Table) -> None:
        self._answers[asked] = rows
        sizes = sum(each.nbytes for each in self._answers.values())
        while len(self._answers) > 1 and (len(self._answers) > _ANSWERS or sizes > _BYTES):
            sizes -= self._answers.popitem(last=False)[1].nbytes


def _problem(name: str, error: Exception) -> TableProblem:
    if isinstance(error, AcktrailError):
        return TableProblem(table=name, message=error.message, hint=error.hint)
    if isinstance(error, pa.ArrowException):
        message = f"table {name} has columns or files that this release cannot read"
        return TableProblem(table=name, message=message, hint="it may be of a newer release: `acktrail doctor`")
    return TableProblem(table=name, message=f"table {name} cannot be read", hint="look at the storage of the tables")
