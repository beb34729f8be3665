"""``acktrail decode``: records of the state topic, or those about share groups in the offsets topic, as JSON."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acktrail.cli.file_options import DialectName, Files, StatePartition, chosen_dialect, report_left_out
from acktrail.cli.progress import record_counter
from acktrail.cli.text.json_text import json_line

if TYPE_CHECKING:
    from acktrail.offline.read.read_report import ReadReport, SegmentDamage
    from acktrail.wire.raw_record import AddressedRecord, RawRecord


class Topic(StrEnum):
    """The topic of Kafka that the records come from."""

    STATE = "state"
    CONSUMER_OFFSETS = "consumer-offsets"


def decode(
    files: Files,
    dialect: DialectName = "auto",
    topic: Annotated[
        Topic,
        typer.Option(
            help="state: __share_group_state. consumer-offsets: the share-group records of __consumer_offsets (members,"
            " epochs, assignments, initialized share partitions); its other records are left out and counted."
        ),
    ] = Topic.STATE,
    state_partition: StatePartition = None,
) -> None:
    """Decode records of __share_group_state, one JSON object a record.

    A record that cannot be read is printed too, with decode_status and decode_error instead of its content; so is each
    damaged piece of a log segment, with its byte position. The numbers of records read, decoded and kept undecoded are
    on stderr.

    Example: acktrail decode state.jsonl.gz | jq 'select(.type == "tombstone")'
    """
    from acktrail.offline.read.copied_files import read_files
    from acktrail.offline.read.read_report import ReadReport
    from acktrail.offline.record_json import damage_json

    others = 0
    with record_counter("decoded", prints_meanwhile=True) as count:

        def show_damage(damage: SegmentDamage) -> None:
            count(readable=False)
            typer.echo(json_line(damage_json(damage)))

        reading = ReadReport(state_partition=state_partition, on_damage=show_damage)
        read, form = _group_records(dialect) if topic is Topic.CONSUMER_OFFSETS else _records(dialect, files, reading)
        for raw in read_files(files, reading):
            addressed = read(raw)
            if addressed is None:
                others += 1
                continue
            count(readable=addressed.record is not None)
            typer.echo(json_line(form(addressed)))
    if others:
        typer.echo(f"{others:,} records of offsets and other groups left out", err=True)
    report_left_out(reading)


_Read = Callable[["RawRecord"], "AddressedRecord[Any] | None"]
_Form = Callable[["AddressedRecord[Any]"], dict[str, object]]


def _records(dialect: str, files: Files, reading: ReadReport) -> tuple[_Read, _Form]:
    from acktrail.offline.record_json import record_json
    from acktrail.wire.raw_record import decode_with

    decoder = chosen_dialect(dialect, files, reading).decode
    return lambda raw: decode_with(decoder, raw), record_json


def _group_records(dialect: str) -> tuple[_Read, _Form]:
    from acktrail.errors import InputError
    from acktrail.offline.read.copied_files import AUTO
    from acktrail.offline.record_json import group_record_json
    from acktrail.wire.group_record import decode as decoder
    from acktrail.wire.group_record import is_about_others
    from acktrail.wire.raw_record import decode_with

    if dialect != AUTO:
        raise InputError(
            f"--dialect {dialect} is for the state topic", hint="leave it out for --topic consumer-offsets"
        )
    return lambda raw: None if is_about_others(raw.key) else decode_with(decoder, raw), group_record_json
