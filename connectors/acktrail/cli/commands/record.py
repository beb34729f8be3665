"""``acktrail record``: one record's fate within a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from acktrail.cli.common_options import AsJson, TablesOptions, TablesRoot
from acktrail.config import TablesConfig

if TYPE_CHECKING:
    from acktrail.model.offset_history.completeness import HistoryCompleteness
    from acktrail.tables.past.history_reader import RecordInstance

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_LAST_OFFSET: Final = 2**63 - 1


@app.command()
def record(
    group: Annotated[str, typer.Argument(help="Share group.")],
    topic: Annotated[str, typer.Argument(help="Topic, by name or by id.")],
    partition: Annotated[int, typer.Argument(help="Partition of the topic.", min=0)],
    offset: Annotated[int, typer.Argument(help="Offset of the record.", min=0, max=_LAST_OFFSET)],
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Tell what became of one record within a share group: every change, with the state record that shows it.

    What is not known is said too, and why. STATE RECORD is the partition and offset of a record of
    __share_group_state. Reads no cluster; answers from delivery_history (`acktrail history`).

    Example: acktrail record fraud-scoring payments 0 4711 --tables /data/acktrail
    """
    from acktrail.cli.arrow_without_pandas import forgo_pandas
    from acktrail.cli.text.json_lines import json_line

    forgo_pandas()
    from acktrail.tables.delta.store import Tables
    from acktrail.tables.past.history_reader import HistoryReader

    reader = HistoryReader(Tables(TablesConfig.from_environment(tables, tables_options)))
    instances = reader.instances(group, topic, partition, offset)
    completeness = reader.completeness(group, topic=topic, partition=partition)
    if as_json:
        from acktrail.cli.text.completeness_text import completeness_json

        asked = {"group": group, "topic": topic, "partition": partition, "offset": offset}
        known = {"is_current": reader.is_current, "completeness": completeness_json(completeness)}
        typer.echo(json_line({**asked, **known, "lives": [_json(instance) for instance in instances]}))
        return
    typer.echo("\n\n".join(_text(instance, group, partition, completeness) for instance in instances))


def _json(instance: RecordInstance) -> dict[str, Any]:
    from acktrail.cli.text.history_text import blank_json, conclusion, interval_json

    return {
        "topic": instance.topic.topic,
        "topic_id": instance.topic.topic_id,
        "topic_status": instance.topic.status,
        "state_partition": instance.state_partition,
        "conclusion": conclusion(instance.history),
        "intervals": [interval_json(found) for found in instance.history.intervals],
        "not_known": [blank_json(blank) for blank in instance.history.unknown_periods],
    }


def _text(instance: RecordInstance, group: str, partition: int, completeness: HistoryCompleteness) -> str:
    from acktrail.cli.text.completeness_text import elsewhere
    from acktrail.cli.text.history_text import blank_text, conclusion, condition_text, place
    from acktrail.plain_tables import printable, table
    from acktrail.times import instant_text

    topic = instance.topic
    named = topic.topic_id if topic.topic is None else f"{topic.topic} ({topic.topic_id}, {topic.status})"
    head = (
        f"group {printable(group)}, topic {printable(named)}, partition {partition}, offset {instance.history.offset}"
    )
    rows = [
        (
            None if found.since is None else instant_text(found.since.timestamp_ms),
            place(found.since),
            None if found.since is None else found.since.cause.value,
            condition_text(found.status),
            found.status.delivery_count,
            "" if found.is_dated or found.since is None else "at the latest",
        )
        for found in instance.history.intervals
    ]
    lines = [*map(blank_text, instance.history.unknown_periods), *elsewhere(completeness, instance.state_partition)]
    blanks = [f"  {line}" for line in lines]
    changes = table(("SINCE", "STATE RECORD", "CAUSE", "CONDITION", "DELIVERY COUNT", ""), rows)
    return "\n".join([head, conclusion(instance.history), "", changes, "", "Not known:", *blanks])
