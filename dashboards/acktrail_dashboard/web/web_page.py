"""What a page is, and one visit of it: its address, the range of time that it shows, and what it read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, ClassVar, Final, TypeVar
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import InputError
from acktrail.tables.delta.store import Tables
from acktrail.tables.open_runs import OpenRuns
from acktrail.tables.open_runs import open_runs as newest_runs
from acktrail.times import duration_ms
from acktrail.view.finding_rows import topic_names
from acktrail_dashboard.web.table_reader import TableProblem, TableReader

AnswerT = TypeVar("AnswerT")
_LARGEST: Final = 2**63 - 1
_RANGES: Final = ("1h", "6h", "24h", "7d", "30d", "90d")
_USUAL: Final = "24h"
_LONGEST: Final = timedelta(days=370)
_HINT: Final = "give UTC times such as 2026-11-23T08:00, the earlier one first, at most 370 days apart"


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
        raise InputError(f"{text!r} is no time", hint=_HINT) from error


@dataclass(kw_only=True)
class Visit:
    """One request for a page. `root` leads from the page to the dashboard's first page: all links are relative, for
    the dashboard may be mounted below a path. `problems` are tables that could not be read."""

    path: str
    root: str
    query: Mapping[str, str]
    now: datetime
    reader: TableReader
    problems: list[TableProblem] = field(default_factory=list)
    range_names: ClassVar = _RANGES

    def read(self, table: str, *, columns: Sequence[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
        """Rows of a table's newest version that satisfy `where`, in no order; none where it does not exist, or cannot
        be read, which the page then reports."""
        return self.reader.read(table, self.problems, columns=columns, where=where)

    def exists(self, table: str) -> bool:
        """Whether the table was ever created; True where that cannot be found out."""
        return self.reader.exists(table, self.problems)

    def ask(self, table: str, question: Callable[[Tables], AnswerT], nothing: AnswerT) -> AnswerT:
        """The answer of a reader of acktrail that needs the tables themselves; `nothing` where they cannot be read: the
        page then names `table` as a problem."""
        return self.reader.ask(table, self.problems, question, nothing)

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
        return self.reader.trend(self.problems, (group_id, topic_id, partition), begin, end + timedelta(minutes=1))

    def text(self, name: str) -> str:
        """A parameter of the address; empty where it is not there."""
        return self.query.get(name, "")

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

    def link(self, path: str, **query: object) -> str:
        """The address of a page with parameters; those that are None or empty are left out."""
        given = {name: str(value) for name, value in query.items() if value is not None and value != ""}
        return (self.root + path or "./") + ("?" + urlencode(given) if given else "")

    def here(self, **changes: object) -> str:
        """The address of this page with some parameters changed (None: left out)."""
        return self.link(self.path, **{**self.query, **changes})


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
