"""``acktrail tables views``: the tables and views as DuckDB's statements."""

from __future__ import annotations

import typer

from acktrail.cli.common_options import OfTables, TablesOptions, TablesRoot


def views(tables: TablesRoot = None, tables_options: TablesOptions = None) -> None:
    """Print SQL that makes tables and views for people in DuckDB.

    Every query reads the newest version of the tables. `record_fates` shows what became of records, `group_lag` how far
    each group is behind. Tables in a bucket need a secret of DuckDB's: the text has no credentials. The command reads
    the logs of the tables and changes nothing.

    Example: acktrail tables views --tables /data/acktrail > acktrail.sql
    """
    config = OfTables(tables, tables_options).needed
    from acktrail.format.columns.schemas.table_schemas import TABLES
    from acktrail.tables.delta.store import Tables
    from acktrail.tables.sql.views import duckdb_script

    own = Tables(config)
    own.ensure_there()
    typer.echo(duckdb_script(own.root, [name for name in TABLES if own.exists(name)]), nl=False)
