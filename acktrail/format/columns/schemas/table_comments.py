"""What a table and its columns mean, from ``tables.toml``, as comments that every engine shows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

import pyarrow as pa

from acktrail.format.columns.schemas.table_schemas import TABLE_TEXTS
from acktrail.text_parsing import parse_toml

_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]+\)")


GRAINS: Final = {
    "subject": "one row a subject",
    "newest_run": "the newest run replaces all rows",
    "every_run": "rows of every run",
    "added": "rows are only added",
}
"""What the rows of a table are, by the word that ``tables.toml`` has for it."""
STABILITY: Final = ("stable", "internal")
"""Whether a user may build on the columns: the changelog has every change of a stable table."""


class TableComments(NamedTuple):
    """The question that a table or view answers, whether it is stable, what its rows are; and the meaning of each
    column, with its unit."""

    question: str = ""
    stability: str = ""
    grain: str = ""
    columns: Mapping[str, str] = {}

    @property
    def description(self) -> str:
        """The comment of the table; empty for one that is not acktrail's own."""
        return f"{self.question} {self.stability}; {self.grain}" if self.question else ""


@cache
def _all_comments() -> Mapping[str, TableComments]:
    pages = (parse_toml(text) for _, text in TABLE_TEXTS)
    tables = (own for page in pages for own in (*page["tables"].items(), *page.get("views", {}).items()))
    return {
        name: TableComments(
            own["question"],
            own["stability"],
            GRAINS[own["rows"]],
            {each["name"]: _comment(each) for each in own["columns"]},
        )
        for name, own in tables
    }


def _comment(column: Mapping[str, str]) -> str:
    """Without the links of the page."""
    unit = f" ({column['unit']})" if "unit" in column else ""
    return _LINK.sub(r"\1", column["meaning"]) + unit


def comments_of(name: str) -> TableComments:
    """Return the comments of a table or view; empty for one that is not acktrail's own."""
    return _all_comments().get(name, TableComments())


def commented(name: str, columns: pa.Schema) -> pa.Schema:
    """Return `columns` with the comment of each in its metadata, where Delta keeps it.

    >>> commented("topics", pa.schema([pa.field("topic_id", pa.string())])).field(0).metadata[b"comment"]
    b"the topic's id"
    """
    own = comments_of(name).columns
    return pa.schema(
        [each.with_metadata({"comment": own[each.name]}) if each.name in own else each for each in columns]
    )
