"""Every table's columns as Arrow schemas, out of the document that describes them: docs/tables.md.

Offsets are Kafka offsets, both ends of a range inclusive unless the name says ``end`` (one past the last). Columns
that end in ``_ms`` are ms since the epoch as the broker wrote them; columns that end in ``_at`` are UTC instants of
acktrail's own clock. Null means not known (never -1).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from acktrail.branches import package_texts

STRING: Final = pa.string()
BINARY: Final = pa.binary()
BOOL: Final = pa.bool_()
INT8: Final = pa.int8()
INT16: Final = pa.int16()
INT32: Final = pa.int32()
INT64: Final = pa.int64()
INSTANT: Final = pa.timestamp("us", tz="UTC")
"""A UTC instant of acktrail's own clock."""
_FILE: Final = "tables.md"
_KINDS: Final = {str(kind): kind for kind in (STRING, BINARY, BOOL, INT8, INT16, INT32, INT64)} | {"instant": INSTANT}
_STRUCT: Final = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_GROUP: Final = re.compile(rf"((?:`\w+`(?:, )?)+): ((?:[\w ]|{_STRUCT})+)(?:; |$)")
"""Names of consecutive columns, and their type."""
RAW_RECORDS: Final = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)
"""Raw records of the state topic: the columns of the offline formats. `timestamp` in ms."""
POSITIONED_TABLES: Final = frozenset({"group_records", "dead_letter_records"})
"""Those whose rows any sink of rows with positions may write, in exactly these columns."""


def schema(*groups: tuple[Any, ...]) -> pa.Schema:
    """A schema of nullable columns; each group is a type and the names of consecutive columns of it.

    >>> schema((STRING, "group_id", "topic_id"), (INT32, "partition")).names
    ['group_id', 'topic_id', 'partition']
    """
    return pa.schema([pa.field(name, kind) for kind, *names in groups for name in names])


def with_dictionaries(columns: pa.Schema, names: Collection[str] | None = None) -> pa.Schema:
    """`columns` with the texts among `names` (None: all texts) as dictionaries: each text once, and a number in every
    row."""
    texts = pa.dictionary(pa.int32(), STRING)
    chosen = [own.name for own in columns if own.type == STRING and (names is None or own.name in names)]
    return pa.schema([own.with_type(texts) if own.name in chosen else own for own in columns])


def parse_tables(text: str) -> Mapping[str, pa.Schema]:
    """The schemas in a page with a section for each table, by table; all columns are nullable. A row of a section's
    table names columns and types, then says what they mean. Raises ValueError (such a cell cannot be read).

    >>> page = "## topics\\n| `topic_id`, `topic`: string; `sizes`: list of {`partition`: int32} | of Kafka |"
    >>> print(parse_tables(page)["topics"].to_string())
    topic_id: string
    topic: string
    sizes: list<item: struct<partition: int32>>
      child 0, item: struct<partition: int32>
          child 0, partition: int32
    """
    sections = (section.split("\n", 1) for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:])
    cells = {name: re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name, section in sections}
    return MappingProxyType(
        {name: pa.schema([f for cell in own for f in _fields(cell)]) for name, own in cells.items()}
    )


def _fields(text: str) -> list[pa.Field]:
    if _GROUP.sub("", text):
        raise ValueError(f"{_FILE}: not columns and their types: {text}")
    return [pa.field(name, _kind(kind)) for names, kind in _GROUP.findall(text) for name in re.findall(r"\w+", names)]


def _kind(text: str) -> pa.DataType:
    if text.startswith("list of "):
        return pa.list_(_kind(text.removeprefix("list of ")))
    if text.startswith("map of string to "):
        return pa.map_(STRING, _kind(text.removeprefix("map of string to ")))
    if text.startswith("{"):
        return pa.struct(_fields(text[1:-1]))
    if text not in _KINDS:
        raise ValueError(f"{_FILE}: no type {text!r}")
    return _KINDS[text]


def _document() -> str:
    """As an installed wheel carries it, or of a checkout."""
    carried = files(__package__).joinpath(_FILE)
    if carried.is_file():
        return carried.read_text(encoding="utf-8")
    return Path(__file__).parents[4].joinpath("docs", _FILE).read_text(encoding="utf-8")


TABLES: Final = MappingProxyType(
    {
        name: schema
        for text in (_document(), *(text for _, text in package_texts(_FILE)))
        for name, schema in parse_tables(text).items()
    }
)
"""Every table by its name, those of branches, too."""


STATE_RECORDS: Final = TABLES["state_records"]
EXPORT_RANGES: Final = TABLES["export_ranges"]
TOPICS: Final = TABLES["topics"]
GROUP_OBSERVATIONS: Final = TABLES["group_observations"]
OFFSET_OBSERVATIONS: Final = TABLES["offset_observations"]
SHARE_PARTITION_STATES: Final = TABLES["share_partition_states"]
DELIVERY_HISTORY: Final = TABLES["delivery_history"]
HELD_STATES: Final = TABLES["held_states"]
REPLAY_MEMORY: Final = TABLES["replay_memory"]
RECONCILIATIONS: Final = TABLES["reconciliations"]
FINDINGS: Final = TABLES["findings"]
QUALITY_RESULTS: Final = TABLES["quality_results"]
QUEUE_STATUSES: Final = TABLES["queue_statuses"]
GROUP_RECORDS: Final = TABLES["group_records"]
DEAD_LETTER_RECORDS: Final = TABLES["dead_letter_records"]

BATCHES: Final = STATE_RECORDS.field("batches").type
"""State batches in the order the record has them; `delivery_state` numbers are Kafka's."""
STATUS_WINDOW: Final = QUEUE_STATUSES.field("window").type
"""The newest observations of a share partition, oldest first: what its status is judged by."""
DELIVERY_COUNTS: Final = QUEUE_STATUSES.field("delivery_counts").type
"""How many records of a state have each delivery count, ascending."""

_NAMES: Final = REPLAY_MEMORY.names
_OF_STATE_PARTITIONS: Final = _NAMES[_NAMES.index("next_offset") : _NAMES.index("group_id")]


def saved_columns(table: pa.Schema) -> pa.Schema:
    """The columns of ``HELD_STATES`` or ``REPLAY_MEMORY`` that the records of a share partition decide."""
    return pa.schema([field for field in table if field.name not in ("cluster_id", *_OF_STATE_PARTITIONS)])
