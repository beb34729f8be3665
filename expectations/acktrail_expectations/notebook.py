"""Great Expectations as its users know it: a context with data source, suites, validation definitions and a checkpoint
over the tables of a run. For notebooks, Data Docs and exported suites; the gate itself needs none of it.

Nothing is sent anywhere: analytics are off, and the context keeps all of it in memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pandas as pd

from acktrail.branches import loaded
from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from acktrail_expectations.gx import data_docs
from acktrail_expectations.gx.data_context import checkpoint_of, memory_context
from acktrail_expectations.gx.documented_suites import suite_json
from acktrail_expectations.gx.suite_check import RESULT_FORMAT, evaluate_nothing, result_of
from acktrail_expectations.inputs.known_runs import choose_run
from acktrail_expectations.inputs.run_data import RunData
from acktrail_expectations.reset_gate import RESET_PLAN_CHECKS, RESET_RESULT_CHECKS
from acktrail_expectations.results import QualityResult
from acktrail_expectations.suite_frames import SuiteFrame, record_frames, suite_frames, suites_of

CHECKPOINT: Final = "acktrail"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunChecks:
    """The suites of a run in a context of Great Expectations.

    `context`: data source ``acktrail`` with an asset a suite, the suites, their validation definitions, the checkpoint.
    `checkpoint`: validates all of them; needs no batch parameters. `suites`: the frames, whole. A suite without rows is
    in neither: nothing of it can be evaluated.
    """

    run_id: str
    context: Any
    checkpoint: Any
    suites: Mapping[str, SuiteFrame]

    def results(self) -> tuple[QualityResult, ...]:
        """The checkpoint's results as the gate has them: acktrail's severities, what was compared, what was not."""
        found = {r.suite_name: r for r in self.checkpoint.run().run_results.values()}
        results: list[QualityResult] = []
        for name, own in self.suites.items():
            if name not in found:
                results += (replace(r, reason=own.why_empty) for r in evaluate_nothing(name, own.checks))
                continue
            outcomes = {each.expectation_config.meta["rule"]: each for each in found[name].results}
            results += [result_of(name, c, outcomes.get(c.rule), own.frame, own.subject) for c in own.checks]
        return tuple(results)

    def build_data_docs(self, folder: Path) -> Path:
        """Validate all suites and write Data Docs of the results into `folder` (counts, no values; no network): the
        index.

        Raises:
            OutsideResource: a page would load something from the network, or could not be made.
        """
        filled = [(name, own.checks, own.frame) for name, own in self.suites.items() if len(own.frame)]
        context = memory_context()
        checkpoint_of(context, CHECKPOINT, filled, data_docs.RESULT_FORMAT).run()
        return data_docs.build_site(context, folder)


def open_run(tables: TablesConfig, run_id: str | None = None, *, every_record: bool = True) -> RunChecks:
    """The suites of a run (None: the newest) in a context of Great Expectations, with the frames in memory.

    `every_record`: of all state records and export ranges, compared with their raw bytes; else of those that no run
    validated before. Memory: some 2 kB a state record.

    Raises:
        UnknownName, ConfigurationError: there is no such run, or none at all.
        RetryableError, OutcomeUnknown: the tables could not be read.
    """
    store = Tables(tables)
    chosen = choose_run(store, run_id)
    data = RunData.read(store, chosen, every_record=every_record)
    records = (piece for share in data.records.shares(None)[1] for piece in record_frames(data.records, share))
    pieces: dict[str, list[SuiteFrame]] = {}
    for piece in (*suite_frames(data, datetime.now(UTC)), *records):
        pieces.setdefault(piece.suite, []).append(piece)
    suites = {name: _whole(own) for name, own in pieces.items()}
    context = memory_context()
    filled = [(name, own.checks, own.frame) for name, own in suites.items() if len(own.frame)]
    checkpoint = checkpoint_of(context, CHECKPOINT, filled, RESULT_FORMAT)
    return RunChecks(run_id=chosen, context=context, checkpoint=checkpoint, suites=suites)


def _whole(pieces: list[SuiteFrame]) -> SuiteFrame:
    frames = [piece.frame for piece in pieces if len(piece.frame)] or [pieces[0].frame]
    return replace(pieces[0], frame=pd.concat(frames, ignore_index=True))


def export_suites(folder: Path) -> list[Path]:
    """Write every suite to ``FOLDER/SUITE.json`` as Great Expectations stores suites, and give the files.
    The folder is made."""
    folder.mkdir(parents=True, exist_ok=True)
    suites = {
        **suites_of(compares_bytes=True),
        "reset_plan": RESET_PLAN_CHECKS,
        "reset_result": RESET_RESULT_CHECKS,
        **{name: checks for of_branch in loaded("suites") for name, checks in of_branch.items()},
    }
    written = []
    for name, checks in suites.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(suite_json(name, checks), indent=2, ensure_ascii=False) + "\n", "utf-8")
        written.append(path)
    return written
