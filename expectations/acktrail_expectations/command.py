"""``acktrail validate``, and the gate as the DAG calls it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from acktrail.cli.options import AsJson, TablesOptions, TablesRoot
from acktrail.cli.progress import showing_activity
from acktrail.cli.tabular import printable, table
from acktrail.config import TablesConfig

if TYPE_CHECKING:
    from acktrail_expectations.results import QualityResult, ValidationSummary

__all__ = ["app", "validate"]

app = typer.Typer(rich_markup_mode=None, add_completion=False)


def validate(tables: TablesConfig, run_id: str) -> ValidationSummary:
    """The gate for one run: see ``gate.validate``.

    Raises:
        QualityGateFailed: a critical expectation failed; the results are recorded by then.
    """
    from acktrail_expectations.gate import validate as gate

    return gate(tables, run_id)


@app.command("validate")
def _validate(
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    run_id: Annotated[str | None, typer.Option("--run-id", help="Which run. Default: the newest one.")] = None,
    every_record: Annotated[
        bool, typer.Option("--all", help="Validate every state record, also those that an earlier run validated.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the tables of one run with Great Expectations and record the results in quality_results.

    State records and export ranges are validated once, by the first run after them; --all does it again. A run that has
    results keeps them and shows them. Exit code 6: a critical expectation failed.

    Example: acktrail validate --json | jq '.results[] | select(.success | not)'
    """
    from acktrail.tables.store import Tables
    from acktrail_expectations.gate import examine, pass_gate
    from acktrail_expectations.runs import named_run

    store = Tables(TablesConfig.from_environment(tables, tables_options))
    with showing_activity():
        summary = examine(store, named_run(store, run_id), every_record=every_record)
    typer.echo(_json(summary) if as_json else _text(summary))
    sys.stdout.flush()
    pass_gate(summary)


def _json(summary: ValidationSummary) -> str:
    return json.dumps(
        {
            "cluster_id": summary.cluster_id,
            "run_id": summary.run_id,
            "recorded": summary.recorded,
            "passed": not summary.critical_failures,
            "results": [
                {
                    "suite": result.suite,
                    "expectation": result.expectation,
                    "severity": result.severity.value,
                    "success": result.success,
                    "element_count": result.element_count,
                    "unexpected_count": result.unexpected_count,
                    "observed_value": result.observed_value,
                    "error": result.error,
                }
                for result in summary.results
            ],
        },
        ensure_ascii=False,
    )


def _text(summary: ValidationSummary) -> str:
    headers = ("SUITE", "EXPECTATION", "SEVERITY", "RESULT", "COMPARED", "UNEXPECTED", "OBSERVED")
    held = len(summary.results) - len(summary.failed)
    total = f"run {printable(summary.run_id)}: {held} of {len(summary.results)} expectations hold"
    return "\n".join([table(headers, [_row(result) for result in summary.results]), "", total])


def _row(result: QualityResult) -> tuple[object, ...]:
    verdict = "holds" if result.success else "not evaluated" if result.error else "fails"
    observed = result.error or result.observed_value
    return (
        result.suite,
        result.expectation,
        result.severity.value,
        verdict,
        result.element_count,
        result.unexpected_count,
        observed,
    )
