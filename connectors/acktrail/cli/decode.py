"""``acktrail decode``: records of the state topic as JSON."""

from __future__ import annotations

import typer

from acktrail.cli.json_lines import json_line
from acktrail.cli.offline_options import DialectName, Files
from acktrail.cli.progress import file_counter

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def decode(files: Files, dialect: DialectName = "auto") -> None:
    """Decode records of __share_group_state, one JSON object a record.

    A record that cannot be read is printed too, with decode_status and decode_error instead of its content.
    How many were read, decoded and kept undecoded is said on stderr.

    Example: acktrail decode state.jsonl.gz | jq 'select(.type == "tombstone")'
    """
    from acktrail.offline.dialects import choose_dialect
    from acktrail.offline.files import read_files, sample_of
    from acktrail.offline.json_forms import record_json
    from acktrail.wire.raw_record import decode_by

    decoder = choose_dialect(dialect, lambda: sample_of(files)).decode
    with file_counter("decoded") as count:
        for raw in read_files(files):
            addressed = decode_by(decoder, raw)
            count(readable=addressed.record is not None)
            typer.echo(json_line(record_json(addressed)))
