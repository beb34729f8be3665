"""Every table's columns as Arrow schemas, out of ``tables.toml`` beside this module and of branches that have tables.

The file has columns in their order, with type, unit and meaning; tools/write_tables.py makes
docs/reference/tables.md from it.

Offsets are Kafka offsets, both ends of a range inclusive unless the name says ``end`` (one past the last). Columns
that end in ``_ms`` are ms since the epoch as the broker wrote them; columns that end in ``_at`` are UTC instants of
acktrail's own clock. Null means not known (never -1).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from acktrail.branches import package_texts
from acktrail.errors import ConfigurationError
from acktrail.text_parsing import parse_toml

STRING: Final = pa.string()
BINARY: Final = pa.binary()
BOOL: Final = pa.bool_()
INT8: Final = pa.int8()
INT16: Final = pa.int16()
INT32: Final = pa.int32()
INT64: Final = pa.int64()
INSTANT: Final = pa.timestamp("us", tz="UTC")
"""A UTC instant of acktrail's own clock."""
_FILE: Final = "tables.toml"
_KINDS: Final = {str(kind): kind for kind in (STRING, BINARY, BOOL, INT8, INT16, INT32, INT64)} | {"instant": INSTANT}
_OF_A_COLUMN: Final = frozenset({"name", "type", "meaning"})
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


def parse_tables(text: str, where: str) -> Mapping[str, pa.Schema]:
    """The schemas in a TOML file of tables, by table; all columns are nullable. `where` names the file in errors.

    A column has a `name`, a `type`, a `meaning` and, where it has one, a `unit`. A type is one of Arrow's, ``instant``,
    one of the file's own structs, or ``list of`` or ``map of string to`` such a type.

    Raises ConfigurationError: it is not TOML, or a column of the named table lacks something or has an unknown type.

    >>> text = '''
    ... [structs.size]
    ... fields = [{ name = "partition", type = "int32", meaning = "which" }]
    ... [tables.topics]
    ... columns = [{ name = "sizes", type = "list of size", meaning = "of its partitions" }]
    ... '''
    >>> print(parse_tables(text, "tables.toml")["topics"].to_string())
    sizes: list<item: struct<partition: int32>>
      child 0, item: struct<partition: int32>
          child 0, partition: int32
    """
    try:
        page, kinds = parse_toml(text), dict(_KINDS)
        for name, own in page.get("structs", {}).items():
            kinds[name] = pa.struct(_fields(own["fields"], kinds, f"struct {name}"))
        tables = {
            name: pa.schema(_fields(own["columns"], kinds, f"table {name}")) for name, own in page["tables"].items()
        }
    except (ValueError, KeyError) as error:
        raise ConfigurationError(f"{where}: {error}", hint="correct that file, or reinstall acktrail") from error
    return MappingProxyType(tables)


def _fields(columns: Sequence[Mapping[str, str]], kinds: Mapping[str, pa.DataType], where: str) -> list[pa.Field]:
    fields = []
    for column in columns:
        place = f"{where}, column {column.get('name')}"
        if column.keys() - {"unit"} != _OF_A_COLUMN:
            raise ValueError(f"{place}: not name, type and meaning, but {', '.join(column)}")
        fields.append(pa.field(column["name"], _kind(column["type"], kinds, place)))
    return fields


def _kind(text: str, kinds: Mapping[str, pa.DataType], place: str) -> pa.DataType:
    if text.startswith("list of "):
        return pa.list_(_kind(text.removeprefix("list of "), kinds, place))
    if text.startswith("map of string to "):
        return pa.map_(STRING, _kind(text.removeprefix("map of string to "), kinds, place))
    if text not in kinds:
        raise ValueError(f"{place}: no type {text!r}")
    return kinds[text]


_OWN: Final = ("acktrail/format/columns/schemas", files(__package__).joinpath(_FILE).read_text("utf-8"))
TABLE_TEXTS: Final = (_OWN, *((branch.package, text) for branch, text in package_texts(_FILE)))
TABLES: Final = MappingProxyType(
    {name: columns for folder, text in TABLE_TEXTS for name, columns in parse_tables(text, f"{folder}/{_FILE}").items()}
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
RECONCILIATIONS: Final = TABLES["reconciliations"]
FINDINGS: Final = TABLES["findings"]
QUALITY_RESULTS: Final = TABLES["quality_results"]
QUEUE_STATUSES: Final = TABLES["queue_statuses"]

BATCHES: Final = STATE_RECORDS.field("batches").type
"""State batches in the order the record has them; `delivery_state` numbers are Kafka's."""
STATUS_WINDOW: Final = QUEUE_STATUSES.field("window").type
"""The newest observations of a share partition, oldest first: what its status is judged by."""
DELIVERY_COUNTS: Final = QUEUE_STATUSES.field("delivery_counts").type
"""How many records of a state have each delivery count, ascending."""

_NAMES: Final = TABLES["replay_memory"].names
_OF_STATE_PARTITIONS: Final = _NAMES[_NAMES.index("next_offset") : _NAMES.index("group_id")]


def saved_columns(table: pa.Schema) -> pa.Schema:
    """The columns of ``HELD_STATES`` or ``REPLAY_MEMORY`` that the records of a share partition decide."""
    return pa.schema([field for field in table if field.name not in ("cluster_id", *_OF_STATE_PARTITIONS)])
