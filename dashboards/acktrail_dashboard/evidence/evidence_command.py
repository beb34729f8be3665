"""``acktrail dashboard evidence``: write the evidence pack of a run, verify packs against the tables."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperGroup

from acktrail.cli.common_options import AsJson, TablesOptions, TablesRoot
from acktrail.cli.text.json_text import echo_rows
from acktrail.config import TablesConfig, reports_folder
from acktrail.plain_tables import printable, table

if TYPE_CHECKING:
    from acktrail_dashboard.evidence.verification import PackVerdict

_WRITE: Final = "write"
_KEEP_ALL: Final = 1_000_000_000


class WritesByDefault(TyperGroup):
    """``evidence RUN`` is ``evidence write RUN``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [_WRITE, *args]
        found: list[str] = super().parse_args(ctx, args)
        return found


app = typer.Typer(cls=WritesByDefault, rich_markup_mode=None, add_completion=False, no_args_is_help=True)


@app.callback()
def _about() -> None:
    """Evidence of a run: what was read, which rules held, and hashes of all files of the tables behind it.

    `acktrail dashboard evidence RUN` writes a pack, `acktrail dashboard evidence verify FILE-OR-FOLDER` compares it
    with the tables.
    """


@app.command(_WRITE)
def _write(
    run_id: str | None = typer.Argument(
        None, metavar="[RUN]", help="The reconcile run. Default: the one observed last."
    ),
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    out: Path | None = typer.Option(None, help="Folder for the pack. Default: ACKTRAIL_REPORTS, else this folder."),
    as_json: AsJson = False,
) -> None:
    """Write the evidence pack of a run: JSON for programs, and a page for people.

    Keep the printed hash elsewhere: a pack with another hash is another pack.

    Example: acktrail dashboard evidence --out evidence
    """
    from acktrail_dashboard.evidence.pack import write_evidence

    folder = out or reports_folder() or Path()
    config = TablesConfig.from_environment(tables, tables_options)
    file, pack = write_evidence(config, run_id, folder, kept=_KEEP_ALL)
    files = sum(len(of["log"]) + len(of["data"]) for of in pack["tables"])
    wrote = {"pack": str(file), "run_id": pack["facts"]["run_id"], "sha256": pack["sha256"], "files": files}
    text = f"evidence of run {printable(str(wrote['run_id']))}: {printable(str(file))}\nSHA-256 {wrote['sha256']}"
    typer.echo(json.dumps(wrote) if as_json else f"{text}, {files} files of {len(pack['tables'])} tables")


@app.command("verify")
def _verify(
    place: Path = typer.Argument(..., metavar="FILE-OR-FOLDER", help="A pack (.json), or a folder of packs."),
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    as_json: AsJson = False,
) -> None:
    """Compare packs with the tables: their own hash, every file of the tables, and what these give when read again.

    Exit code 6: something differs, so a pack or a table was changed. Exit code 7: nothing differs, and some of it
    cannot be compared any more, for a maintenance removed files; each is named with what the log shows.

    Example: acktrail dashboard evidence verify evidence
    """
    from acktrail_dashboard.evidence.file_hashes import FileFate
    from acktrail_dashboard.evidence.verification import packs_in, verify_pack

    config = TablesConfig.from_environment(tables, tables_options)
    found = [verify_pack(config, file) for file in packs_in(place)]
    if as_json:
        echo_rows({"fate": of.fate, **asdict(of)} for of in found)
    else:
        typer.echo("\n".join(map(_text, found)))
    fates = {of.fate for of in found}
    if FileFate.DIFFERENT in fates:
        raise typer.Exit(6)
    if FileFate.UNKNOWN in fates:
        raise typer.Exit(7)


def _text(verdict: PackVerdict) -> str:
    from acktrail_dashboard.evidence.verification import named

    words = {"same": "verified", "different": "REFUSED", "unknown": "verified in part"}
    counts = ", ".join(f"{count} {fate}" for fate, count in sorted(verdict.files.items())) or "none compared"
    head = f"{words[verdict.fate]}: run {printable(verdict.run_id)}, SHA-256 {verdict.sha256}; files: {counts}"
    parts = named(verdict.parts)
    if not parts:
        return head
    rows = [(of.part, of.fate.value, of.table, of.reason, of.file or "") for of in parts]
    return f"{head}\n{table(('PART', 'RESULT', 'TABLE', 'WHY', 'FILE'), rows)}"
