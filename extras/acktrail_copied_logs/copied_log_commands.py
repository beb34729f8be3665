"""``acktrail record decode``, ``record replay`` and ``tables import``: the records of copied logs as JSON, the state
after them, and the way into the tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from acktrail.cli.common_options import OfTables, json_line
from acktrail.cli.progress import RecordCounter, record_counter
from acktrail.errors import InputError
from acktrail.format.columns import arrow_without_pandas
from acktrail.model.records import RecordAt
from acktrail.model.share_partition import TopicId, topic_id_bytes
from acktrail.text_tables import printable
from acktrail.times import new_run_id
from acktrail_connect.commands.export import RunId
from acktrail_copied_logs.dialects import KAFKA_4_2, Dialect, DialectReplay, Policy

if TYPE_CHECKING:
    from acktrail.format.wire.raw_record import RawRecord
    from acktrail_copied_logs.import_run import ImportSummary
    from acktrail_copied_logs.log_segment import ReadReport, SegmentDamage
    from acktrail_copied_logs.replay_files import LogCut, LogPoint


_PARTITIONS_SHOWN: Final = 20

Files = Annotated[
    list[Path],
    typer.Argument(
        help="Record dumps (.jsonl), tables of records (.parquet, .arrow, .feather) or Kafka's log segments (.log), "
        "each also with .gz or .zst appended."
    ),
]
DialectName = Annotated[
    str,
    typer.Option(
        "--dialect",
        help="Byte layout of the records: 4.0, 4.1, 4.2 (also 4.3, 4.4), or the drafts i, ii, iii, iv, iv-json. "
        "auto: the released layout that fits a sample of each file.",
    ),
]
StatePartition = Annotated[
    int | None,
    typer.Option(
        "--state-partition",
        min=0,
        max=2**31 - 1,
        help="State partition of a log segment whose folder is not named TOPIC-PARTITION.",
    ),
]


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
    """Decode records of __share_group_state, one JSON object each.

    A record that cannot be decoded is printed with decode_status and decode_error instead of its content. A damaged
    piece of a log segment is printed with its byte position. The numbers of records read, decoded and not decoded go to
    stderr.

    Example: acktrail record decode state.jsonl.gz | jq 'select(.type == "tombstone")'
    """
    arrow_without_pandas.forgo_pandas()
    from acktrail.format.wire.raw_record import decode_with
    from acktrail_copied_logs import replay_files
    from acktrail_copied_logs.copied_files import AUTO, choose_dialect, read_files
    from acktrail_copied_logs.log_segment import ReadReport

    is_of_groups, others = topic is Topic.CONSUMER_OFFSETS, 0
    with record_counter("decoded", prints_meanwhile=True) as count:

        def show_damage(damage: SegmentDamage) -> None:
            count(readable=False)
            typer.echo(json_line(damage.form()))

        reading = ReadReport(state_partition=state_partition, on_damage=show_damage)
        decoder: Callable[[bytes | None, bytes | None], Any]
        form: Callable[[Any], dict[str, object]]
        if is_of_groups:
            from acktrail.format.wire import group_record

            decoder, form = group_record.decode, replay_files.group_record_json
            if dialect != AUTO:
                hint = "leave it out for --topic consumer-offsets"
                raise InputError(f"--dialect {dialect} is for the state topic", hint=hint)
        else:
            chosen = choose_dialect(dialect, files, reading)
            decoder, form = chosen.decode, partial(replay_files.record_json, dialect=chosen)
        for raw in read_files(files, reading):
            if is_of_groups and group_record.is_about_others(raw.key):
                others += 1
                continue
            addressed = decode_with(decoder, raw)
            count(readable=addressed.record is not None)
            typer.echo(json_line(form(addressed)))
    if others:
        typer.echo(f"{others:,} records of offsets and other groups left out", err=True)
    report_left_out(reading)


def replay(
    files: Files,
    dialect: DialectName = "auto",
    policy: Annotated[
        Policy,
        typer.Option(
            help="broker: the state that a running broker has. strict: the rules of the design documents. An update "
            "is applied only to the snapshot whose epoch it names; each update that is skipped is a finding."
        ),
    ] = Policy.BROKER,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            help="Replay up to and including this point: PARTITION:OFFSET,... by state partition (others left out), "
            "a time with time zone (2026-08-01T12:00:00Z), how long ago (1h), or epoch ms.",
        ),
    ] = None,
    findings: Annotated[
        Path | None, typer.Option("--findings", help="Write every finding to this file, one JSON object a line.")
    ] = None,
    state_partition: StatePartition = None,
) -> None:
    """Replay records of __share_group_state, as a broker would. The output has one JSON object for each share
    partition.

    Within a state partition, records are applied in the order of their offsets; the order of the files does not matter.
    A record that comes twice is applied once. Records that cannot be decoded are skipped and counted on stderr; stderr
    also has a line for each damaged piece of a log segment. state_epoch is -1 if there were only updates. start_offset
    is -1 if the share partition is not initialized.

    Example: acktrail record replay state.jsonl.gz --at 2026-08-01T12:00:00Z --policy strict --findings findings.jsonl
    """
    arrow_without_pandas.forgo_pandas()
    from acktrail_copied_logs.copied_files import choose_dialect
    from acktrail_copied_logs.log_segment import ReadReport
    from acktrail_copied_logs.replay_files import LogCut, parse_log_point

    point, cut = None if at is None else parse_log_point(at), LogCut()
    reading = ReadReport(state_partition=state_partition)
    is_plain = policy is Policy.BROKER and point is None and findings is None
    with record_counter("replayed") as count:
        chosen = choose_dialect(dialect, files, reading)
        result = _replay_sorted(files, chosen, reading, count) if is_plain else None
        replayed = result or _replay_in_order(
            files, chosen, reading, count, policy=policy, point=point, cut=cut, audited=findings is not None
        )
    report_left_out(reading)
    if point is not None:
        typer.echo(_included(cut), err=True)
    _report(replayed, findings)
    for state in replayed.states:
        typer.echo(json_line(state))


def _replay_sorted(
    files: list[Path], dialect: Dialect[Any], reading: ReadReport, count: RecordCounter
) -> DialectReplay | None:
    """The columnar replay, where the files are in the order of their log; None where they are not."""
    from acktrail_copied_logs.replay_files import replay_sorted

    if dialect is not KAFKA_4_2:
        return None
    damages: list[SegmentDamage] = []
    own = reading.quiet(damages.append)
    result = replay_sorted(files, own)
    if result is None:
        return None
    reading.add(own)
    for damage in damages:
        count(readable=False)
        report_damage(damage)
    replayed, readable, unreadable = result
    count(readable=True, records=readable)
    count(readable=False, records=unreadable)
    return replayed


def _replay_in_order(
    files: list[Path],
    dialect: Dialect[Any],
    reading: ReadReport,
    count: RecordCounter,
    *,
    policy: Policy,
    point: LogPoint | None,
    cut: LogCut,
    audited: bool,
) -> DialectReplay:
    """Record by record, sorted into the order of the log."""
    from acktrail.format.wire.raw_record import decode_with
    from acktrail_copied_logs.copied_files import in_log_order, read_files
    from acktrail_copied_logs.replay_files import replay_records, up_to

    def note_damage(damage: SegmentDamage) -> None:
        count(readable=False)
        report_damage(damage)

    def decoded(records: Iterable[RawRecord]) -> Iterator[RecordAt[Any]]:
        for raw in records:
            addressed = decode_with(dialect.decode, raw)
            count(readable=addressed.record is not None)
            if addressed.record is not None:
                yield RecordAt(partition=raw.state_partition, offset=raw.offset, record=addressed.record)

    reading.on_damage = note_damage
    records = in_log_order(read_files(files, reading))
    if point is not None:
        records = up_to(records, point, cut)
    return replay_records(dialect, decoded(records), policy, audited=audited)


def _included(cut: LogCut) -> str:
    """The records up to the point, in one line."""
    shown = [f"{partition}:{offset}" for partition, offset in sorted(cut.last_offsets.items())]
    more = f" and {len(shown) - _PARTITIONS_SHOWN} more" if len(shown) > _PARTITIONS_SHOWN else ""
    up_to = f"included up to and with {', '.join(shown[:_PARTITIONS_SHOWN])}{more}" if shown else "no record included"
    parts = [up_to, f"{cut.later:,} later records left out"]
    if cut.unnamed:
        names = ", ".join(map(str, sorted(cut.unnamed)[:_PARTITIONS_SHOWN]))
        parts.append(f"{sum(cut.unnamed.values()):,} of state partitions without an offset in --at ({names}) left out")
    return "; ".join(parts)


def _report(replayed: DialectReplay, file: Path | None) -> None:
    """Each difference on stderr, the number of the other findings, and all of them in `file`."""
    if file is not None:
        lines = [json_line(finding) + "\n" for finding in replayed.findings]
        try:
            file.write_text("".join(lines), encoding="utf-8")
        except OSError as error:
            raise InputError(f"{file}: {(error.strerror or 'cannot be written').lower()}") from error
    for found in replayed.differences:
        group, topic_id = str(found["group"]), found["topic_id"]
        subject = group if topic_id is None else f"{group}:{topic_id}:{found['partition']}"
        address = f"state partition {found['state_partition']}, offset {found['offset']}"
        detail = f"{printable(subject)}, {address}: {printable(str(found['detail']))}"
        typer.echo(f"finding: {found['rule']}: {detail}", err=True)
    others = len(replayed.findings) - len(replayed.differences)
    if others:
        where = "" if file is not None else ": --findings FILE writes them"
        typer.echo(f"{others:,} findings about records that were applied{where}", err=True)


def report_damage(damage: SegmentDamage) -> None:
    """Report a damaged piece of a segment in one line on stderr."""
    known = damage.first_offset is not None
    offsets = f"offsets {damage.first_offset} to {damage.last_offset}" if known else "offsets not known"
    typer.echo(
        f"{damage.status.value.replace('_', ' ')}: {printable(damage.file)}, byte {damage.position}, {offsets}: "
        f"{printable(damage.reason)}",
        err=True,
    )


def report_left_out(reading: ReadReport) -> None:
    """Report skipped records (control, aborted) and segments without a state partition on stderr."""
    if reading.control_records or reading.aborted_records:
        typer.echo(
            f"{reading.control_records:,} control records and {reading.aborted_records:,} records of aborted "
            "transactions left out",
            err=True,
        )
    for file in reading.nameless:
        typer.echo(f"{printable(file)}: state partition not known, shown as -1: name it by --state-partition", err=True)


def import_files(
    files: Files,
    cluster: Annotated[str, typer.Option("--cluster", help="Id of the cluster that wrote the records.")],
    *,
    at: OfTables,
    dialect: DialectName = "auto",
    state_partition: StatePartition = None,
    topic_id: Annotated[
        str | None,
        typer.Option(
            "--topic-id",
            help="Id of the state topic, if no partition.metadata next to a segment has it. Required for tables that "
            "an export wrote.",
        ),
    ] = None,
    allow_gaps: Annotated[
        bool,
        typer.Option(
            "--allow-gaps",
            help="If offsets are missing between the end of the tables and the first record, record them as lost.",
        ),
    ] = False,
    run_id: RunId = None,
) -> None:
    """Import copied records of __share_group_state, exactly once. The records are written into the tables.

    As with an export, records are appended in the order of the log. Records that are in the tables already are compared
    and skipped, so a file may be imported again. Each commit stores the names of the files, their SHA-256 and the
    dialect in export_ranges.

    Example: acktrail tables import __share_group_state-*/*.log --tables /data/copy --cluster 4L6g3nShT-eMCtK--X86sw
    """
    target = at.needed
    from acktrail_copied_logs import import_run
    from acktrail_copied_logs.log_segment import ReadReport

    reading = ReadReport(state_partition=state_partition, on_damage=report_damage)
    plan = import_run.ImportPlan(
        files=tuple(files),
        cluster_id=cluster,
        dialect=dialect,
        run_id=run_id or new_run_id(),
        topic_id=_checked(topic_id),
        allow_gaps=allow_gaps,
    )
    summary = import_run.import_files(plan, target, reading)
    report_left_out(reading)
    typer.echo(json.dumps(asdict(summary)) if at.as_json else _import_text(summary))


def _checked(topic_id: str | None) -> str | None:
    if topic_id is not None:
        try:
            topic_id_bytes(TopicId(topic_id))
        except ValueError as error:
            hint = "a topic id has 22 characters: letters, digits, - and _"
            raise InputError(f"--topic-id {topic_id!r} is not a topic id", hint=hint) from error
    return topic_id


def _import_text(summary: ImportSummary) -> str:
    topic = summary.state_topic_id or "not known"
    new, known = summary.records_new, summary.records_known
    lines = [
        f"run {summary.run_id}, cluster {printable(summary.cluster_id)}, state topic {topic}",
        f"dialect {summary.dialect}",
        f"{summary.files} files, {summary.records_in_files:,} records: {new:,} new, {known:,} known already",
        f"new records: {summary.records_decoded:,} decoded, {summary.records_quarantined:,} kept undecoded",
    ]
    lines += [f"{name}: {count:,} rows" for name, count in sorted(summary.rows.items())]
    lines += [
        f"gap: state partition {partition}, offsets {first} to {last} are in no file"
        for partition, first, last in summary.gaps
    ]
    return "\n".join(lines)
