"""``acktrail expand show``: what the newest check found of topics that gained partitions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from acktrail.cli.arrow_without_pandas import lean_tables
from acktrail.cli.common_options import AsJson, TablesOptions, TablesRoot
from acktrail.cli.text.json_text import echo_rows
from acktrail.errors import UnknownName
from acktrail.plain_tables import printable, table
from acktrail.times import utc_text

if TYPE_CHECKING:
    from acktrail.tables.delta.store import Tables

_Row = Mapping[str, Any]
_SHOWN: Final = 40
_MOST: Final = 1_000_000
_COLUMNS: Final = ("TOPIC", "FROM", "TO", "SEEN", "STATUS", "GROUPS AND PARTITIONS", "SKIPPED", "EVENT")
_FENCE_COLUMNS: Final = ("PARTITION", "LOW", "HIGH", "EXACT", "NOTE")


def show(
    event: Annotated[
        str | None, typer.Argument(help="The id of an expansion: show all about it. Default: list them.")
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="Only topics that match, shell style. May be repeated.")
    ] = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """List the expansions of topics, the worst first, or show one with what proves each verdict on the order of keys.

    It reads what the newest `acktrail expand check`, or the DAG acktrail_partitions, wrote. The JSON form has one
    object for each expansion. The exit code is 0 also when order was broken: `acktrail validate` is for scripts.

    Example: acktrail expand show --topic 'orders*'
    """
    config = lean_tables(tables, tables_options)
    from acktrail.tables.delta.store import Tables
    from acktrail_expansion.pages.shown_expansions import expansions, why_none

    store = Tables(config)
    found = [row for row in expansions(store.read, event_id=event or "") if _is_wanted(row["topic"], topic)]
    if event is not None and not found:
        raise UnknownName("expansion", event)
    if as_json and event is not None:
        echo_rows(expansion_form(store, row) for row in found)
    elif as_json:
        echo_rows(map(_plain, found))
    elif event is not None:
        typer.echo("\n".join(expansion_lines(store, found[0])))
    else:
        typer.echo(table(_COLUMNS, map(_line, found)) if found else why_none(store))


def _is_wanted(topic: str | None, patterns: list[str] | None) -> bool:
    return not patterns or any(fnmatchcase(topic or "", pattern) for pattern in patterns)


def _line(row: _Row) -> tuple[object, ...]:
    from acktrail_expansion.pages.shown_expansions import counts_text

    what = (row["topic"], row["old_count"], row["new_count"], utc_text(row["first_seen_new_at"]), row["status"])
    return *what, counts_text(row["verdict_counts"]) or row["label"], row["skipped_records"], row["event_id"]


def expansion_form(store: Tables, row: _Row) -> dict[str, Any]:
    """One expansion with all of its verdicts and fences, for JSON."""
    from acktrail_expansion.pages.shown_expansions import fences_of, verdicts_of

    rows, _ = verdicts_of(store.read, row["event_id"], size=_MOST)
    fences = fences_of(store.read, row["event_id"])
    return {**_plain(row), "verdicts": [*map(_plain, rows)], "fences": [*map(_plain, fences)]}


def expansion_lines(store: Tables, row: _Row) -> Iterator[str]:
    """One expansion, line by line: what is proven of each group, what is not seen, the fences, what is not certain."""
    from acktrail_expansion.pages.shown_expansions import doubts, fences_of, verdicts_of

    seen = f"seen between {utc_text(row['last_seen_old_at'])} and {utc_text(row['first_seen_new_at'])}"
    counts = f"{row['old_count']} to {row['new_count']} partitions, {row['status']}"
    yield printable(f"{row['topic']}: {counts}; {seen}; event {row['event_id']}")
    rows, count = verdicts_of(store.read, row["event_id"], size=_SHOWN)
    for each in rows:
        said = " ".join(filter(None, (each["sentence"], each["advice"], each["not_seen"])))
        yield printable(f"{each['label']}: {each['group_type']} group {each['group_id']}: {said}")
    yield f"and {count - _SHOWN:,} more: --json has all" if count > _SHOWN else ""
    fences = fences_of(store.read, row["event_id"])
    shown = ("partition", "fence_low", "fence_high", "fence_exact", "note")
    yield table(_FENCE_COLUMNS, (tuple(each[name] for name in shown) for each in fences[:_SHOWN]))
    yield from (f"not certain: {text}" for text in doubts(row, fences))


def _plain(row: _Row) -> dict[str, Any]:
    return {name: utc_text(value) if isinstance(value, dt.datetime) else value for name, value in row.items()}
