"""``acktrail expand show``: what the newest audit found of topics that gained partitions."""

from __future__ import annotations

import fnmatch
from typing import Annotated

import typer

from acktrail.cli.arrow_without_pandas import row_tables
from acktrail.cli.common_options import AsJson, TablesOptions, TablesRoot
from acktrail.cli.text import audited_expansion_text
from acktrail.cli.text.json_text import json_line
from acktrail.errors import UnknownName


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

    It reads what the newest `acktrail expand audit` wrote. The JSON form has one object for each expansion. The exit
    code is 0 also when order was broken: `acktrail validate --expansions` is the one for scripts.

    Example: acktrail expand show --topic 'orders*'
    """
    config = row_tables(tables, tables_options)
    from acktrail.tables.audited_expansions import read_details, read_expansions
    from acktrail.tables.delta.store import Tables

    store = Tables(config)
    lines = [each for each in read_expansions(store) if not topic or _is_one_of(each.row["topic"], topic)]
    if event is None:
        output = [json_line(audited_expansion_text.expansion_json(each)) for each in lines] if as_json else []
        typer.echo("\n".join(output) if as_json else audited_expansion_text.expansions_text(lines))
        if not store.exists("partition_expansions"):
            typer.echo("no topic was audited yet: run acktrail expand audit", err=True)
        return
    line = next((each for each in lines if each.row["event_id"] == event), None)
    if line is None:
        raise UnknownName("expansion", event)
    found = read_details(store, line)
    typer.echo(
        json_line(audited_expansion_text.details_json(found)) if as_json else audited_expansion_text.details_text(found)
    )


def _is_one_of(topic: str | None, patterns: list[str]) -> bool:
    return topic is not None and any(fnmatch.fnmatchcase(topic, pattern) for pattern in patterns)
