"""``acktrail expand audit``, and the call behind it that a DAG makes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from acktrail.cli.common_options import AsJson, TablesOptions, TablesRoot
from acktrail.cli.progress import showing_activity
from acktrail.config import TablesConfig, key_mappings, ordered_groups, settle_time
from acktrail_jobs.commands.job_options import Master

if TYPE_CHECKING:
    from acktrail.expansions.audit_run import ExpansionSummary


def audit(
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Find every expansion that looks show, and judge what groups did across it, with PySpark.

    Replaces partition_expansions, expansion_fences, partition_dependencies, ordering_audits (a verdict for each group
    and partition that keys moved to) and start_audits (whether groups got the first records of partitions that were
    made), and opens and closes the findings about expansions (`acktrail findings`). Needs looks: `acktrail expand
    observe` takes one. The same looks again change nothing. Reads no cluster.

    Example: acktrail expand audit --tables /data/acktrail
    """
    with showing_activity():
        summary = audit_partitions(TablesConfig.from_environment(tables, tables_options), master)
    typer.echo(json.dumps(asdict(summary)) if as_json else _text(summary))


def audit_partitions(tables: TablesConfig, master: str | None = None) -> ExpansionSummary:
    """See ``acktrail.expansions.audit_run.audit_expansions``, ``executors_on`` and ``translated``; settle time, key
    mappings and ordered groups are those of the environment."""
    from acktrail.expansions.audit_run import audit_expansions
    from acktrail_jobs.commands.engine import executors_on, translated

    with translated():
        return audit_expansions(
            *(tables, executors_on(master)),
            settle=settle_time(),
            mapping_of=key_mappings().of,
            ordered=ordered_groups(),
        )


def _text(summary: ExpansionSummary) -> str:
    from acktrail.model.expansion.expansion_texts import counted
    from acktrail.plain_tables import printable, table

    looked_at = f"{counted(summary.expansions, 'expansion')} among {counted(summary.topics, 'topic')}"
    lines = [
        f"{looked_at}, {summary.settling:,} of them settling; {counted(summary.groups, 'pair')} of group and topic"
    ]
    if summary.carried:
        lines.append(f"older than the looks that are left, and as they were: {counted(summary.carried, 'expansion')}")
    if summary.verdicts:
        lines.append(table(("ORDER", "GROUPS AND PARTITIONS"), list(summary.verdicts.items())))
    if summary.starts:
        lines.append(table(("FIRST RECORDS", "GROUPS AND PARTITIONS"), list(summary.starts.items())))
    if summary.findings:
        lines.append(table(("OPEN FINDINGS", "COUNT"), list(summary.findings.items())))
    lines += [f"fewer partitions than before, which no broker does: {printable(topic)}" for topic in summary.fallen]
    return "\n".join(lines)
