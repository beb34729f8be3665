"""``acktrail dashboard``: serve the tables as web pages, report on a run, write and verify its evidence."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from acktrail.cli.common_options import OfTables, TablesOptions, TablesRoot, command_group, echo_rows, spread
from acktrail.config import TablesConfig, reports_folder, setting
from acktrail.errors import InputError
from acktrail.text_tables import printable, table

if TYPE_CHECKING:
    from acktrail_dashboard.evidence import PackVerdict

_TOKEN: Final = "ACKTRAIL_DASHBOARD_TOKEN"  # noqa: S105  # the name of a variable
_KEEP_ALL: Final = 1_000_000_000
evidence = command_group(
    "Evidence of a run: which data was read, and which rules held. An evidence pack has the hashes of all table "
    "files that the run used."
)


def serve(
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    host: str = typer.Option(
        "127.0.0.1", help="Address to listen on. An address that other machines can reach requires a token."
    ),
    port: int = typer.Option(8085, help="Port to listen on. 0 means any free port.", min=0, max=65_535),
    token_file: Path | None = typer.Option(
        None, help="File with the token that readers must have. [ACKTRAIL_DASHBOARD_TOKEN holds the token]"
    ),
    allow_host: list[str] = typer.Option(  # typer's way to say it
        [], help="Host name by which readers reach the dashboard behind a proxy. May be repeated."
    ),
    tls_certificate: Path | None = typer.Option(None, help="PEM file with the certificate chain, for https."),
    tls_key: Path | None = typer.Option(None, help="PEM file with its private key."),
    behind_tls_proxy: bool = typer.Option(
        False,
        "--behind-tls-proxy",
        help="Listen without TLS on an address that other machines can reach: a proxy in front of the dashboard "
        "provides TLS.",
    ),
) -> None:
    """Show the tables as web pages, until Ctrl-C or SIGTERM. The pages show statuses, groups, share partitions, and the
    history of a record.

    The dashboard only reads. On a loopback address it needs no login. On another address it requires a token, in a file
    that only its owner may read, and TLS.

    Example: acktrail dashboard serve --tables ./tables
    """
    from acktrail.activity import stop_on_signals
    from acktrail.serving.http_server import Tls
    from acktrail_dashboard.web.application import dashboard_server

    if (tls_certificate is None) != (tls_key is None):
        raise InputError("--tls-certificate and --tls-key go together", hint="give both")
    tls = Tls(certificate=tls_certificate, private_key=tls_key, is_of_proxy=behind_tls_proxy)
    found = TablesConfig.from_environment(tables, tables_options)
    server = dashboard_server(found, host=host, port=port, token_file=token_file, hosts=tuple(allow_host), tls=tls)
    typer.echo(f"dashboard: {server.url}/", err=True)
    with stop_on_signals():  # uvicorn sends itself the signal again after it has ended in order
        server.run()


def health(
    port: int = typer.Option(8085, help="Port that the dashboard listens on.", min=1, max=65_535),
    host: str = typer.Option("127.0.0.1", help="Address that it listens on."),
    token_file: Path | None = typer.Option(
        None, help="File with the token that readers must have. [ACKTRAIL_DASHBOARD_TOKEN holds the token]"
    ),
    tls_certificate: Path | None = typer.Option(
        None, help="PEM file with the dashboard's certificate, if it uses TLS."
    ),
) -> None:
    """Check the health of a running dashboard on this machine. It requests the first page, and is made for health
    checks of containers.

    Exit code 4: the dashboard does not answer, or cannot read the tables.

    Example: acktrail dashboard health --port 8085
    """
    from acktrail.serving.health_check import OwnServer
    from acktrail.serving.tokens import token_in

    token = token_in(token_file, "the token of the dashboard").value if token_file else setting(_TOKEN)
    authorization = f"Bearer {token}" if token else ""
    OwnServer(host=host, port=port, certificate=tls_certificate, authorization=authorization).ask("/")
    typer.echo("the dashboard answers")


def report(
    run_id: str | None = typer.Option(None, help="The reconcile run. Default: the one observed last."),
    out: Path | None = typer.Option(None, help="Also write the HTML report to this file."),
    *,
    at: OfTables,
) -> None:
    """Show the results of a reconcile run as a report. It has share partitions, lag, archived records, verdicts and
    findings.

    --out writes the report as one HTML file that needs no network, script or server. An unknown number is shown as
    unknown, with its reason; in JSON it is null.

    Example: acktrail dashboard report --tables ./tables --out report.html
    """
    config = at.needed
    from acktrail.atomic_files import write_whole
    from acktrail.view.run_summary import summarize, summary_json
    from acktrail_dashboard.report import read_run, render_html, render_text

    rows, chosen = read_run(config, run_id)
    found = summarize(rows, chosen)
    typer.echo(summary_json(found) if at.as_json else render_text(found))
    if out is not None:
        html = render_html(rows, chosen, written_at=datetime.now(UTC))
        typer.echo(f"report: {write_whole(html, out)}", err=True)


@evidence.command()
@spread
def write(
    run_id: str | None = typer.Argument(
        None, metavar="[RUN]", help="The reconcile run. Default: the one observed last."
    ),
    out: Path | None = typer.Option(None, help="Folder for the pack. Default: ACKTRAIL_REPORTS, else this folder."),
    *,
    at: OfTables,
) -> None:
    """Write the evidence pack of a run, a JSON file.

    Store the printed hash outside of the tables. A pack with another hash was changed or replaced.

    Example: acktrail dashboard evidence write --out evidence
    """
    config = at.needed
    from acktrail_dashboard.evidence import write_evidence

    folder = out or reports_folder() or Path()
    file, pack = write_evidence(config, run_id, folder, kept=_KEEP_ALL)
    files = sum(len(of["files"]) for of in pack["tables"])
    wrote = {"pack": str(file), "run_id": pack["facts"]["head"]["run_id"], "sha256": pack["sha256"], "files": files}
    text = f"evidence of run {printable(str(wrote['run_id']))}: {printable(str(file))}\nSHA-256 {wrote['sha256']}"
    typer.echo(json.dumps(wrote) if at.as_json else f"{text}, {files} files of {len(pack['tables'])} tables")


@evidence.command()
@spread
def verify(
    place: Path = typer.Argument(..., metavar="FILE-OR-FOLDER", help="A pack (.json), or a folder of packs."),
    *,
    at: OfTables,
) -> None:
    """Compare packs with the tables. The command checks the hash of each pack and of every table file, and computes the
    results again.

    Exit code 6: something differs, so a pack or a table was changed. Exit code 7: nothing differs, but some files
    cannot be compared because maintenance removed them. Each is named, with what the log shows about it.

    Example: acktrail dashboard evidence verify evidence
    """
    config = at.needed
    from acktrail_dashboard.evidence import FileFate, packs_in, verify_pack

    found = [verify_pack(config, file) for file in packs_in(place)]
    if at.as_json:
        echo_rows({"fate": of.fate, **asdict(of)} for of in found)
    else:
        typer.echo("\n".join(map(_text, found)))
    fates = {of.fate for of in found}
    if FileFate.DIFFERENT in fates:
        raise typer.Exit(6)
    if FileFate.UNKNOWN in fates:
        raise typer.Exit(7)


def _text(verdict: PackVerdict) -> str:
    words = {"same": "verified", "different": "REFUSED", "unknown": "verified in part"}
    counts = ", ".join(f"{count} {fate}" for fate, count in sorted(verdict.files.items())) or "none compared"
    head = f"{words[verdict.fate]}: run {printable(verdict.run_id)}, SHA-256 {verdict.sha256}; files: {counts}"
    rows = [(of.part, of.fate.value, of.table, of.reason, of.file or "") for of in verdict.named]
    return f"{head}\n{table(('PART', 'RESULT', 'TABLE', 'WHY', 'FILE'), rows)}" if rows else head
