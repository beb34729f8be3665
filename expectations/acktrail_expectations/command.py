"""``acktrail run validate``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acktrail.cli.common_options import AsJson, TablesOptions, TablesRoot
from acktrail.cli.progress import showing_activity
from acktrail.config import TablesConfig
from acktrail.text_tables import printable, table

if TYPE_CHECKING:
    from acktrail_expectations.rule_results import ValidationSummary


app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("validate")
def _validate(
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    run_id: Annotated[str | None, typer.Option("--run-id", help="The run to validate. Default: the newest.")] = None,
    every_record: Annotated[
        bool, typer.Option("--all", help="Validate every state record, including those that an earlier run validated.")
    ] = False,
    data_docs: Annotated[
        Path | None,
        typer.Option("--data-docs", metavar="FOLDER", help="Also write Great Expectations' Data Docs there."),
    ] = None,
    suites: Annotated[
        Path | None,
        typer.Option("--export-suites", metavar="FOLDER", help="Only write the suites and their rows there."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the tables of one run with Great Expectations. The results are stored in quality_results.

    The run must have been reconciled. Each state record and export range is validated once, by the first run after its
    export; --all validates all of them again and compares every record with its raw bytes. A run that has results is
    not validated again until its data grows; the command shows the stored results. A rule that finds nothing to compare
    is not evaluated: it neither holds nor fails. Large numbers of state records are validated on the Spark master in
    ACKTRAIL_SPARK_MASTER. Exit code 6: a critical expectation failed.

    --data-docs validates all records again for its pages. The pages need no network; they show counts, not values.

    --export-suites stores no results. It writes each suite as JSON, in the format of Great Expectations, and the rows
    that the suite checks as Parquet, for pandas or Spark.

    Example: acktrail run validate --json | jq '.results[] | select(.state != "holds")'
    """
    from acktrail.tables.delta.store import Tables
    from acktrail.view.cluster_health import no_share_group
    from acktrail_expectations.gate import pass_gate, validate_run
    from acktrail_expectations.known_runs import choose_run
    from acktrail_expectations.rule_results import headline
    from acktrail_jobs.engine import jobs_on

    config = TablesConfig.from_environment(tables, tables_options)
    store = Tables(config)
    chosen = choose_run(store, run_id)
    if suites is not None:
        from acktrail_expectations.data_context import export_suites, open_run

        typer.echo("\n".join(printable(str(path)) for path in export_suites(suites, open_run(config, chosen))))
        return
    with showing_activity(), jobs_on(None, chosen) as spark:
        summary = validate_run(store, chosen, spark, every_record=every_record)
        if data_docs is not None:
            from acktrail_expectations.data_context import open_run

            index = open_run(config, summary.run_id).build_data_docs(data_docs)
            typer.echo(f"Data Docs: {printable(str(index))}", err=True)
    nothing = no_share_group(store, summary.run_id)
    if nothing is not None and not as_json:
        typer.echo(printable(f"run {summary.run_id}: {nothing}; {headline(summary)}"))
    else:
        typer.echo((_json if as_json else _text)(summary))
    sys.stdout.flush()
    pass_gate(summary)


def _json(summary: ValidationSummary) -> str:
    from acktrail_expectations.rule_results import critical_among

    return json.dumps(
        {
            "cluster_id": summary.cluster_id,
            "run_id": summary.run_id,
            "recorded": summary.recorded,
            "passed": not summary.critical_failures,
            "not_evaluated": len(summary.not_evaluated),
            "critical_not_evaluated": len(critical_among(summary.not_evaluated)),
            "results": [result.row for result in summary.results],
        },
        ensure_ascii=False,
    )


def _text(summary: ValidationSummary) -> str:
    from acktrail_expectations.rule_results import headline, unevaluated_lines

    headers = ("SUITE", "EXPECTATION", "SEVERITY", "RESULT", "COMPARED", "UNEXPECTED", "OBSERVED")
    rows = [
        (
            *(result.suite, result.expectation, result.severity.value, result.state.value.replace("_", " ")),
            *(result.element_count, result.unexpected_count, result.error or result.reason or result.observed_value),
        )
        for result in summary.results
    ]
    total = f"run {printable(summary.run_id)}: {headline(summary)}"
    return "\n".join([table(headers, rows), "", *map(printable, unevaluated_lines(summary)), total])
