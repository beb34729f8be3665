"""``acktrail tables repair``: what is wrong with the tables, and what becomes of each damage."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from acktrail.cli.common_options import OfBoth
from acktrail.cli.progress import table_progress
from acktrail.errors import ConfigurationError
from acktrail.times import new_run_id
from acktrail_connect.commands.export import RunId

if TYPE_CHECKING:
    from acktrail.tables.records.continuity import LostOffsets
    from acktrail_connect.export.repair_run import RepairPreview

_ACTIONS: Final = {
    "remade": "the table is removed; the next `acktrail run reconcile` builds it again",
    "left_out": "it is left out of the table and kept beside it; its records are exported again where Kafka has them",
    "none": "restore it from the storage's own versions or a backup",
}


def repair(
    *,
    at: OfBoth,
    execute: Annotated[
        bool, typer.Option("--execute", help="Repair the tables. Without this option nothing is changed.")
    ] = False,
    run_id: RunId = None,
) -> None:
    """Show what is wrong with the tables; --execute repairs it.

    The command finds lost commits, missing and unreadable files, and records that are missing, stored twice or in no
    range. A repair exports records again that Kafka still has, and stores the others as a gap. If one run stored a
    replaced log twice, one copy is removed. Tables that are derived from the records are built again. The cluster is
    only read. If it cannot be reached, the command shows the state of the tables and ends with the exit code of that
    error. Exit code 3: something is wrong and nothing was repaired.

    Example: acktrail tables repair --bootstrap-server broker-1:9092 --tables /data/acktrail
    """
    target = at.needed
    from acktrail_connect.export import repair_run

    with table_progress() as progress:
        if execute:
            found = repair_run.repair(at.kafka, target, run_id=run_id or new_run_id(), progress=progress)
        else:
            found = repair_run.preview(lambda: at.kafka, target, progress)
    typer.echo(
        json.dumps(_repair_json(found, executed=execute)) if at.as_json else _repair_text(found, executed=execute)
    )
    if not execute and not found.report.is_sound:
        if not at.as_json:
            typer.echo("nothing was changed; to repair the tables: --execute", err=True)
        raise typer.Exit(ConfigurationError.exit_code)
    if found.unasked is not None:
        raise typer.Exit(found.unasked.exit_code)


def _repair_json(found: RepairPreview, *, executed: bool) -> dict[str, Any]:
    return {
        "executed": executed,
        "is_sound": found.report.is_sound,
        "damages": [asdict(each) for each in found.report.damages],
        "other_faults": found.report.other_faults(),
        "exported_again" if executed else "available": _stretches(found.available),
        "gone": _stretches(found.gone),
        "lost": _stretches(found.report.lost),
        "unasked": found.unasked and found.unasked.with_hint,
    }


def _stretches(lost: Iterable[LostOffsets] | None) -> list[dict[str, int]] | None:
    return None if lost is None else [asdict(each) for each in lost]


def _repair_text(found: RepairPreview, *, executed: bool) -> str:
    if found.report.is_sound:
        exported = "every exported record is there" if found.report.has_records else "no record was exported yet"
        sound = f"nothing is wrong: every table can be read, and {exported}"
        return sound if found.unasked is None else f"{sound}\nnot compared with Kafka: {found.unasked.with_hint}"
    files = [(each, _ACTIONS[each.mending]) for each in found.report.damages]
    lines = [f"{each.table}: {each.file} {each.cause}: {action}" for each, action in files]
    if found.unasked is not None:
        lines += [f"{each} ({each.records:,}): lost; Kafka was not asked for them" for each in found.report.lost or ()]
        return "\n".join([*lines, *found.report.other_faults(), f"not compared with Kafka: {found.unasked.with_hint}"])
    if found.available is None or found.gone is None:
        lines.append("lost records are known after the log is repaired")
        return "\n".join(lines)
    again = "exported again" if executed else "Kafka still has them"
    gone = "lost; recorded as a gap" if executed else "lost: Kafka does not have them any more"
    lines += [f"{each} ({each.records:,}): {again}" for each in found.available]
    lines += [f"{each} ({each.records:,}): {gone}" for each in found.gone]
    return "\n".join(lines + found.report.other_faults())
