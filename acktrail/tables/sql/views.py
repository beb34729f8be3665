"""Views over the tables, for people who ask with SQL: one portable text each, beside this module.

What they show is in ``tables.toml``, below ``views``. An engine gives each table under its own name, then the views in
the order of `VIEWS`. Nothing in a text comes from data. Two things differ between engines: how milliseconds become an
instant, and how a view is registered.

    register_views(spark, config)           # acktrail_jobs.views
    connection.execute(duckdb_script(root, there))
    polars_context(config)                  # beside this module
"""

from __future__ import annotations

import re
from collections.abc import Collection
from importlib.resources import files
from typing import Final, Literal

import pyarrow as pa

from acktrail.format.columns.schemas.table_comments import comments_of
from acktrail.format.columns.schemas.table_schemas import TABLES

Engine = Literal["spark", "duckdb", "polars"]

VIEWS: Final = ("delivery_states", "record_changes", "record_fates", "group_lag")
"""Views, each after those that it reads."""
_INSTANT: Final = re.compile(r"\binstant_of_ms\(([\w.]+)\)")
_INSTANTS: Final[dict[Engine, str]] = {
    "spark": r"timestamp_millis(\1)",
    "duckdb": r"make_timestamptz(\1 * 1000)",
    "polars": r"CAST(\1 * 1000 AS TIMESTAMP)",
}
_DUCKDB_TYPES: Final = {
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP WITH TIME ZONE",
}


def view_text(name: str, engine: Engine) -> str:
    """Return the query of a view, for an engine. Polars has no zone for the instants that it makes: they are UTC."""
    text = files(__package__).joinpath(f"{name}.sql").read_text("utf-8")
    return _INSTANT.sub(_INSTANTS[engine], text)


def duckdb_script(root: str, there: Collection[str]) -> str:
    """Return statements that give DuckDB each table and view by its name. `there`: the tables that exist below `root`;
    the others have no rows."""
    lines = [
        "-- Tables and views of acktrail. Every query reads the newest version of the tables.",
        "INSTALL delta;",
        "LOAD delta;",
        "SET TimeZone = 'UTC';",
        *(f"CREATE OR REPLACE VIEW {name} AS {_duckdb_table(root, name, there)};" for name in TABLES),
    ]
    for name in VIEWS:
        lines += ["", f"-- {comments_of(name).description}", f"CREATE OR REPLACE VIEW {name} AS"]
        lines.append(f"{view_text(name, 'duckdb').rstrip()};")
    return "\n".join([*lines, ""])


def _duckdb_table(root: str, name: str, there: Collection[str]) -> str:
    if name in there:
        place = f"{root}/{name}".replace("'", "''")
        return f"SELECT * FROM delta_scan('{place}')"  # noqa: S608  # the place is the caller's, and quoted
    columns = ", ".join(f'CAST(NULL AS {_duckdb_type(each.type)}) AS "{each.name}"' for each in TABLES[name])
    return f"SELECT {columns} WHERE false"


def _duckdb_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"{_duckdb_type(kind.value_type)}[]"
    if pa.types.is_map(kind):
        return f"MAP({_duckdb_type(kind.key_type)}, {_duckdb_type(kind.item_type)})"
    if pa.types.is_struct(kind):
        fields = ", ".join(f'"{each.name}" {_duckdb_type(each.type)}' for each in kind)
        return f"STRUCT({fields})"
    return _DUCKDB_TYPES[kind]
