"""What a page is, and one visit of it: its address, the range of time that it shows, and what it reads.

A table is read again only after a commit, and one that cannot be read is a note on the page, not an end.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from threading import RLock
from typing import Any, ClassVar, Final, TypeVar
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, ConfigurationError, InputError
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot, chosen_columns
from acktrail.tables.open_findings import OpenRuns
from acktrail.tables.open_findings import open_runs as newest_runs
from acktrail.times import duration_ms
from acktrail.view import queue_rows
from acktrail.view.finding_rows import topic_names

AnswerT = TypeVar("AnswerT")
_ANSWERS: Final = 128
"""Answers that are kept; a newer version of a table is another answer."""
_BYTES: Final = 128 << 20
"""The answers that are kept have at most this number of bytes."""
_LARGEST: Final = 2**63 - 1
_RANGES: Final = ("1h", "6h", "24h", "7d", "30d", "90d")
_USUAL: Final = "24h"
_LONGEST: Final = timedelta(days=370)
_HINT: Final = "give UTC times such as 2026-11-23T08:00, the earlier one first, at most 370 days apart"


class TableReader:
    """The tables of one root, for several threads one after the other, and the answers of their newest versions."""

    def __init__(self, config: TablesConfig) -> None:
        """Raises ConfigurationError: the root is none."""
        self.tables: Final = Tables(config)
        self.lock: Final = RLock()
        """Held by callers that use `tables` themselves."""
        self._answers: OrderedDict[tuple[object, ...], pa.Table] = OrderedDict()

    def answer(
        self, name: str, question: tuple[object, ...], answer: Callable[[TableSnapshot], pa.Table]
    ) -> pa.Table | None:
        """The answer of a table's newest version, kept until the next one; None: there is no table."""
        snapshot = self.tables.followed(name)
        if snapshot is None:
            return None
        asked = (name, *snapshot.newest_commit, *question)
        if asked not in self._answers:
            self._answers[asked] = answer(snapshot)
            sizes = sum(each.nbytes for each in self._answers.values())
            while len(self._answers) > 1 and (len(self._answers) > _ANSWERS or sizes > _BYTES):
                sizes -= self._answers.popitem(last=False)[1].nbytes
        self._answers.move_to_end(asked)
        return self._answers[asked]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """From `begin` (inclusive) to `end` (exclusive). `name` None: two instants that the reader chose."""

    begin: datetime
    end: datetime
    name: str | None

    @property
    def text(self) -> str:
        """In words."""
        if self.name is not None:
            return f"last {self.name}"
        return f"{self.begin:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M} UTC"

    @property
    def query(self) -> dict[str, str]:
        """As parameters of an address."""
        if self.name is not None:
            return {} if self.name == _USUAL else {"range": self.name}
        return {"from": f"{self.begin:%Y-%m-%dT%H:%M}", "to": f"{self.end:%Y-%m-%dT%H:%M}"}


def time_range(query: Mapping[str, str], now: datetime) -> TimeRange:
    """The range that an address names: ``range``, or ``from`` and ``to`` (default: now); 24 hours where it names none.

    Raises:
        InputError: it is none of the lengths, or the times are none.
    """
    begin, end = query.get("from", ""), query.get("to", "")
    if begin or end:
        return _between(_instant(begin or end), _instant(end) if begin and end else now)
    name = query.get("range") or _USUAL
    if name not in _RANGES:
        raise InputError(f"{name!r} is no range of time", hint=f"one of {', '.join(_RANGES)}")
    return TimeRange(begin=now - timedelta(milliseconds=duration_ms("range", name)), end=now, name=name)


def _between(begin: datetime, end: datetime) -> TimeRange:
    if not timedelta() < end - begin <= _LONGEST:
        raise InputError("the range of time is empty or too long", hint=_HINT)
    return TimeRange(begin=begin, end=end, name=None)


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text.strip())
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{text!r} is not a time", hint=_HINT) from error


@dataclass(kw_only=True)
class Visit:
    """One request for a page. `root` leads from the page to the dashboard's first page: all links are relative, for
    the dashboard may be mounted below a path. `problems` are tables that could not be read."""

    path: str
    root: str
    query: Mapping[str, str]
    now: datetime
    reader: TableReader
    problems: list[AcktrailError] = field(default_factory=list)
    range_names: ClassVar = _RANGES

    def read(self, table: str, *, columns: Sequence[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
        """Rows of a table's newest version that satisfy `where`, in no order; none where it does not exist, or cannot
        be read, which the page then reports."""
        named = None if columns is None else tuple(columns)
        question = ("read", named, str(where))
        return self._rows(table, named, question, lambda snapshot: snapshot.read(columns=named, where=where))

    def _rows(
        self,
        table: str,
        columns: Sequence[str] | None,
        question: tuple[object, ...],
        answer: Callable[[TableSnapshot], pa.Table],
    ) -> pa.Table:
        found = self.ask(table, lambda _: self.reader.answer(table, question, answer), None)
        return chosen_columns(table, columns).empty_table() if found is None else found

    def exists(self, table: str) -> bool:
        """Whether the table was ever created; True where that cannot be found out."""
        return self.ask(table, lambda tables: tables.followed(table) is not None, nothing=True)

    def ask(self, table: str, question: Callable[[Tables], AnswerT], nothing: AnswerT) -> AnswerT:
        """The answer of a reader of acktrail that needs the tables themselves; `nothing` where they cannot be read: the
        page then names `table` as a problem."""
        with self.reader.lock:
            try:
                return question(self.reader.tables)
            except (AcktrailError, pa.ArrowException, OSError) as error:
                self.problems.append(_problem(table, error))
                return nothing

    def within(self, column: str) -> pc.Expression:
        """That a column of instants lies within the range of time, which is widened to whole minutes: rows that were
        read are kept for the visits of a minute."""
        chosen, minute = self.time_range, timedelta(minutes=1)
        begin, end = (each.replace(second=0, microsecond=0) for each in (chosen.begin, chosen.end + minute))
        return (pc.field(column) >= pa.scalar(begin)) & (pc.field(column) < pa.scalar(end))

    def trend(self, group_id: str, topic_id: str | None = None, partition: int | None = None) -> pa.Table:
        """Rows of ``queue_trends`` within the range of time, ascending: of a group, or of one of its share
        partitions."""
        begin, end = (each.replace(second=0, microsecond=0) for each in (self.time_range.begin, self.time_range.end))
        place, until = (group_id, topic_id, partition), end + timedelta(minutes=1)
        return self._rows(
            "queue_trends",
            None,
            ("trend", place, begin, until),
            lambda trends: queue_rows.trend(trends, *place, since=begin, until=until),
        )

    def text(self, name: str) -> str:
        """A parameter of the address; empty where it is not there."""
        return self.query.get(name, "")

    def needed(self, *names: str) -> tuple[str, ...]:
        """Parameters of the address. Raises InputError: one is not there."""
        found = {name: self.text(name) for name in names}
        if missing := [name for name, text in found.items() if not text]:
            hint = "&".join(f"{name}={name.upper()}" for name in names)
            raise InputError(f"the address does not name the {' and '.join(missing)}", hint=f"{self.path}?{hint}")
        return tuple(found.values())

    def number(self, name: str) -> int | None:
        """A parameter of the address as a number from 0; None where it is not there. Raises InputError: it is none."""
        text = self.text(name).strip().replace(",", "").replace("_", "")
        if not text:
            return None
        if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > _LARGEST:
            raise InputError(f"{name} {self.text(name)!r} is no number", hint="digits alone, at most 2^63-1")
        return int(text)

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """A parameter that is one of `choices`; empty where it is not there. Raises InputError: it is another one."""
        text = self.text(name)
        if text and text not in choices:
            raise InputError(f"{name} {text!r} is not known", hint=f"one of {', '.join(choices)}")
        return text

    @cached_property
    def time_range(self) -> TimeRange:
        """The range of time that the address names. Raises InputError: it is none."""
        return time_range(self.query, self.now)

    @cached_property
    def open_runs(self) -> OpenRuns:
        """The runs whose findings are open."""
        return self.ask("reconcile_checks", newest_runs, OpenRuns(None, {}))

    @cached_property
    def topics(self) -> dict[str, str]:
        """Names of topics by their ids."""
        return topic_names(self.read("topics", columns=("topic_id", "topic")))

    def link(self, path: str, /, **query: object) -> str:
        """The address of a page with parameters; those that are None or empty are left out."""
        given = {name: str(value) for name, value in query.items() if value is not None and value != ""}
        return (self.root + path or "./") + ("?" + urlencode(given) if given else "")

    def here(self, /, **changes: object) -> str:
        """The address of this page with some parameters changed (None: left out)."""
        return self.link(self.path, **{**self.query, **changes})


def _problem(name: str, error: Exception) -> AcktrailError:
    """Why a table cannot be read, and what to do."""
    if isinstance(error, AcktrailError):
        return error
    if isinstance(error, pa.ArrowException):
        message = f"table {name} has columns or files that this release cannot read"
        return ConfigurationError(message, hint="it may be of a newer release: `acktrail doctor`")
    return ConfigurationError(f"table {name} cannot be read", hint="look at the storage of the tables")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebPage:
    """One page. `path` is one word without a slash (empty: the first page); names from a cluster are parameters, never
    part of a path. `menu`: its word in the navigation; None: not there. `context` gives what the template shows, and
    raises InputError or UnknownName about the parameters."""

    path: str
    title: str
    template: str
    context: Callable[[Visit], Mapping[str, Any]]
    menu: str | None = None
