"""``acktrail replay``: the state that a broker would hold after the records of a dump."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path

import typer

from acktrail.cli.progress import file_counter

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class Policy(StrEnum):
    """Which law of replay."""

    BROKER = "broker"


@app.command()
def replay(
    files: list[Path] = typer.Argument(help="Record dumps: .jsonl, .jsonl.gz, .jsonl.zst, in log order per partition."),
    policy: Policy = typer.Option(Policy.BROKER, help="broker: exactly what a running broker's replay gives."),
) -> None:
    """Replay records of __share_group_state, one JSON object a share partition.

    Records are applied in the order of their offsets within a state partition, whatever the order in the files; one
    that is there twice is applied once. Records that cannot be read are passed over and counted on stderr.
    state_epoch is -1 where only updates were seen; start_offset is -1 where the share partition is not initialized.
    """
    from acktrail.model.replay import replay as fold
    from acktrail.offline.dump import read_dumps
    from acktrail.offline.json_forms import state_json
    from acktrail.offline.log_order import in_log_order
    from acktrail.wire.raw_record import decode_raw

    del policy  # one policy so far
    with file_counter("replayed") as count:
        records = []
        for raw in in_log_order(read_dumps(files)):
            addressed = decode_raw(raw)
            count(readable=addressed.record is not None)
            if addressed.record is not None:
                records.append(addressed.record)
        states = fold(records)
    for key in sorted(states):
        typer.echo(json.dumps(state_json(states[key]), ensure_ascii=False, separators=(",", ":")))
