"""Tables and views for polars, which acktrail does not depend on: install it to use this module.

context = polars_context(TablesConfig(uri="/data/acktrail"))
context.execute("SELECT outcome, SUM(records) AS records FROM record_fates GROUP BY outcome", eager=True)
"""

from __future__ import annotations

from functools import partial

import polars as pl

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables
from acktrail.tables.sql.views import VIEWS, view_text

_INSTANTS = pl.selectors.datetime(time_zone=None)


def polars_context(config: TablesConfig) -> pl.SQLContext[pl.LazyFrame]:
    """Return a context with each table, at the version that it has now, and each view. A table that was never created
    has no rows. A query reads the files when it runs. Raises as ``Tables`` does."""
    tables = Tables(config)
    context = pl.SQLContext[pl.LazyFrame](eager=False)
    for name, schema in TABLES.items():
        found = tables.snapshot(name)
        rows = pl.from_arrow(schema.empty_table()) if found is None else pl.scan_pyarrow_dataset(found.dataset())
        context.register(name, rows)
    for name in VIEWS:
        rows = context.execute(view_text(name, "polars")).with_columns(_INSTANTS.dt.replace_time_zone("UTC"))
        # A plan of its own: inside that of a query, polars looks for parts that occur twice, and needs many seconds.
        context.register(name, pl.defer(partial(_collected, rows), schema=rows.collect_schema()))
    return context


def _collected(rows: pl.LazyFrame) -> pl.DataFrame:
    return rows.collect(optimizations=pl.QueryOptFlags(comm_subplan_elim=False))
