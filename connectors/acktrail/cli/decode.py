"""``acktrail decode``: records of the state topic as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from acktrail.cli.json_lines import json_line
from acktrail.cli.offline_options import DialectName, Files, StatePartition, chosen_dialect, say_left_out
from acktrail.cli.progress import file_counter

if TYPE_CHECKING:
    from acktrail.offline.damage import Damage

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def decode(files: Files, dialect: DialectName = "auto", state_partition: StatePartition = None) -> None:
    """Decode records of __share_group_state, one JSON object a record.

    A record that cannot be read is printed too, with decode_status and decode_error instead of its content; so is each
    damaged piece of a log segment, with its byte position. How many were read, decoded and kept undecoded is said on
    stderr.

    Example: acktrail decode state.jsonl.gz | jq 'select(.type == "tombstone")'
    """
    from acktrail.offline.damage import Reading
    from acktrail.offline.files import read_files
    from acktrail.offline.json_forms import damage_json, record_json
    from acktrail.wire.raw_record import decode_by

    with file_counter("decoded") as count:

        def show_damage(damage: Damage) -> None:
            count(readable=False)
            typer.echo(json_line(damage_json(damage)))

        reading = Reading(state_partition=state_partition, on_damage=show_damage)
        decoder = chosen_dialect(dialect, files, reading).decode
        for raw in read_files(files, reading):
            addressed = decode_by(decoder, raw)
            count(readable=addressed.record is not None)
            typer.echo(json_line(record_json(addressed)))
    say_left_out(reading)
