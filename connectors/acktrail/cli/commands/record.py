"""``acktrail record``: the history of one record within a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from acktrail.cli.arrow_without_pandas import lean_history
from acktrail.cli.common_options import AsJson, TablesOptions, TablesRoot
from acktrail.cli.text.history_text import (
    completeness_fields,
    conclusion,
    interval_json,
    missing_without_row,
    position_text,
    status_text,
    unknown_json,
    unknown_text,
)
from acktrail.cli.text.json_text import json_line
from acktrail.plain_tables import printable, table
from acktrail.times import instant_text

if TYPE_CHECKING:
    from acktrail.model.offset_history.completeness import HistoryCompleteness
    from acktrail.tables.past.history_reader import RecordInstance


def record(
    group: Annotated[str, typer.Argument(help="Share group.")],
    topic: Annotated[str, typer.Argument(help="Topic, by name or by id.")],
    partition: Annotated[int, typer.Argument(help="Partition of the topic.", min=0)],
    offset: Annotated[int, typer.Argument(help="Offset of the record.", min=0, max=2**63 - 1)],
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show what became of one record within a share group: every change, with the state record that shows it.

    "Not known" lists what the state records do not show, and why. STATE RECORD is the partition and offset of a record
    of __share_group_state. Reads no cluster; answers from delivery_history (`acktrail history`).

    Example: acktrail record fraud-scoring payments 0 4711 --tables /data/acktrail
    """
    history = lean_history(tables, tables_options)
    instances = history.instances(group, topic, partition, offset)
    completeness = history.completeness(group, topic=topic, partition=partition)
    if not as_json:
        typer.echo("\n\n".join(_text(instance, group, partition, completeness) for instance in instances))
        return
    asked = {"group": group, "topic": topic, "partition": partition, "offset": offset}
    typer.echo(json_line({**asked, **completeness_fields(completeness), "lives": list(map(_json, instances))}))


def _json(instance: RecordInstance) -> dict[str, Any]:
    return {
        "topic": instance.topic.topic,
        "topic_id": instance.topic.topic_id,
        "topic_status": instance.topic.status,
        "state_partition": instance.state_partition,
        "conclusion": conclusion(instance.history),
        "intervals": [interval_json(interval) for interval in instance.history.intervals],
        "not_known": [unknown_json(period) for period in instance.history.unknown_periods],
    }


def _text(instance: RecordInstance, group: str, partition: int, completeness: HistoryCompleteness) -> str:
    topic, history = instance.topic, instance.history
    name = topic.topic_id if topic.topic is None else f"{topic.topic} ({topic.topic_id}, {topic.status})"
    head = f"group {printable(group)}, topic {printable(name)}, partition {partition}, offset {history.offset}"
    rows = [
        (
            None if interval.since is None else instant_text(interval.since.timestamp_ms),
            position_text(interval.since),
            None if interval.since is None else interval.since.cause.value,
            status_text(interval.status),
            interval.status.delivery_count,
            "" if interval.is_dated or interval.since is None else "at the latest",
        )
        for interval in history.intervals
    ]
    changes = table(("SINCE", "STATE RECORD", "CAUSE", "CONDITION", "DELIVERY COUNT", ""), rows)
    unknown = [
        *map(unknown_text, history.unknown_periods),
        *missing_without_row(completeness, instance.state_partition),
    ]
    lines = [head, conclusion(history), "", changes, "", "Not known:", *(f"  {line}" for line in unknown)]
    return "\n".join(lines)
