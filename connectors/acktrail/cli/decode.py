"""``acktrail decode``: records of the state topic as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from acktrail.cli.progress import file_counter

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def decode(
    files: list[Path] = typer.Argument(help="Record dumps: .jsonl, .jsonl.gz, .jsonl.zst."),
) -> None:
    """Decode records of __share_group_state, one JSON object a record.

    A record that cannot be read is printed too, with decode_status and decode_error instead of its content.
    How many were read, decoded and kept undecoded is said on stderr.

    Example: acktrail decode state.jsonl.gz | jq 'select(.type == "tombstone")'
    """
    from acktrail.offline.dump import read_dumps
    from acktrail.offline.json_forms import record_json
    from acktrail.wire.raw_record import decode_raw

    with file_counter("decoded") as count:
        for raw in read_dumps(files):
            addressed = decode_raw(raw)
            count(readable=addressed.record is not None)
            typer.echo(json.dumps(record_json(addressed), ensure_ascii=False, separators=(",", ":")))
