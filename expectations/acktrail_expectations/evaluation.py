"""Rules as expectations of Great Expectations, evaluated on frames of pandas, and what acktrail records of its results.

The suites of a run are evaluated in the order of the data's way. Rules on state records are evaluated by executors,
where the records are; all others in this process.

Importing this module loads Great Expectations, which takes seconds: who may not need it imports it late.
"""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from acktrail.activity import doing
from acktrail.format.columns.binary_column import BoolArray
from acktrail.model.rules.catalogue import QualityRule, QualitySeverity, rule_catalogue
from acktrail.tables.records.record_files import RECORDS
from acktrail_expectations.frames.frame_columns import known_true
from acktrail_expectations.frames.table_frames import (
    export_ranges_frame,
    reconciliations_frame,
    share_partition_states_frame,
    state_partitions_frame,
)
from acktrail_expectations.rule_results import (
    EXAMPLES,
    NOT_KNOWN,
    PRESUMED,
    RESULTS,
    QualityResult,
    ValidationSummary,
    merged,
    stored_result,
)
from acktrail_expectations.validation_input import UnvalidatedRecords, ValidationInput
from acktrail_jobs.frames import JobSession, collected_pieces, in_process

logging.getLogger("great_expectations").setLevel(logging.WARNING)  # it logs a line for each engine that it lacks
gc.disable()  # while it makes a million objects that stay: a third of the time of its import
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # beside PySpark it warns of pandas 3
    import great_expectations.expectations as gxe
    from great_expectations.execution_engine import PandasExecutionEngine
    from great_expectations.validator.validator import Validator

    from acktrail_expectations.batch_expectations import BATCH_EXPECTATIONS, broken_rows
gc.freeze()
gc.enable()

OWNER: Final = "acktrail"
NO_ROW: Final = "no row to compare"
"""The reason of every rule on a frame without rows."""
RESULT_FORMAT: Final = {
    "result_format": "BASIC",
    "include_unexpected_rows": True,
    "exclude_unexpected_values": True,
    "partial_unexpected_count": EXAMPLES,
}
"""The counts and a few rows: a list of everything that is unexpected costs minutes when a million rows are."""
_LONGEST_ERROR: Final = 500
_KINDS: Final[Mapping[tuple[str, bool], tuple[Any, Callable[[list[str], list[Any]], dict[str, Any]]]]] = {
    ("unique", False): (gxe.ExpectCompoundColumnsToBeUnique, lambda columns, _: {"column_list": columns}),
    ("=", False): (gxe.ExpectColumnPairValuesToBeEqual, lambda columns, _: _pair(*columns)),
    (">=", False): (
        gxe.ExpectColumnPairValuesAToBeGreaterThanB, lambda columns, _: {**_pair(*columns), "or_equal": True}
    ),
    (">=", True): (gxe.ExpectColumnValuesToBeBetween, lambda columns, v: {"column": columns[0], "min_value": v[0]}),
    ("<=", True): (gxe.ExpectColumnValuesToBeBetween, lambda columns, v: {"column": columns[0], "max_value": v[0]}),
    ("=", True): (gxe.ExpectColumnValuesToBeInSet, lambda columns, v: {"column": columns[0], "value_set": v}),
    ("in", True): (gxe.ExpectColumnValuesToBeInSet, lambda columns, v: {"column": columns[0], "value_set": v}),
    ("not in", True): (gxe.ExpectColumnValuesToNotBeInSet, lambda columns, v: {"column": columns[0], "value_set": v}),
    ("known", False): (gxe.ExpectColumnValuesToNotBeNull, lambda columns, _: {"column": columns[0]}),
    ("unknown", False): (gxe.ExpectColumnValuesToBeNull, lambda columns, _: {"column": columns[0]}),
}  # fmt: skip
"""Great Expectations' class for a relation, without and with values, and what it is given."""
MATCHES_RAW_BYTES: Final = "record_matches_raw_bytes"
"""The rule that decoded columns equal key and value decoded again: for frames that compare bytes."""
Label = Callable[[Mapping[str, Any]], str]
"""Names a row of a frame for people."""


def _pair(column: str, other: str) -> dict[str, Any]:
    """Rows where one of two columns is missing are not compared."""
    return {"column_A": column, "column_B": other, "ignore_row_if": "either_value_is_missing"}


@dataclass(frozen=True, slots=True)
class SuiteCheck:
    """A rule as an expectation. `columns`: those of a frame that it compares."""

    rule: QualityRule
    expectation: Any
    columns: tuple[str, ...]


@cache
def checks_of(suite: str) -> tuple[SuiteCheck, ...]:
    """The rules of a suite, in the order of the catalogue."""
    return tuple(check_of(rule) for rule in rule_catalogue().rules if suite in rule.suites)


def check_of(rule: QualityRule) -> SuiteCheck:
    """A rule as an expectation, with what people should know of it. Raises KeyError: it is about batches, and there is
    no function of its name."""
    condition = rule.expect
    assert condition is not None, rule
    documents = {
        # Great Expectations has no severity `error`; `meta` has.
        "severity": "warning" if rule.severity is QualitySeverity.ERROR else rule.severity.value,
        "description": rule.title,
        "notes": [rule.meaning, f"Why {rule.severity.value}: {rule.why}", f"What to do: {rule.advice}"],
        "meta": {
            "rule": rule.id,
            "severity": rule.severity.value,
            "owner": OWNER,
            "sources": list(rule.sources),
            "presumes": list(rule.presumes),
            "since": rule.since,
            "page": f"docs/{rule.page}",
        },
    }
    if condition.relation == "batches":
        expectation, bound = BATCH_EXPECTATIONS[rule.id]
        columns = ("batches",) if bound is None else ("batches", bound)
        domain = {"column": "batches"} if bound is None else {"column_A": "batches", "column_B": bound}
        return SuiteCheck(rule, expectation(**domain, **documents), columns)
    kind, arguments = _KINDS[condition.relation, bool(condition.values)]
    expectation = kind(**arguments(list(condition.columns), list(condition.values)), **documents)
    return SuiteCheck(rule, expectation, condition.columns)


def evaluate(suite: str, checks: Sequence[SuiteCheck], frame: pd.DataFrame, label: Label) -> tuple[QualityResult, ...]:
    """One result for each of `checks`, in their order.

    An expectation that raised, or that the engine gives no result for, has an `error` and is no success. One that found
    no row to compare has neither: its `success` is None, and `reason` says why. So has a rule that holds, where rows
    were left out because they break a rule that it presumes.
    """
    if frame.empty:
        return tuple(not_evaluated(suite, check.rule, NO_ROW) for check in checks)
    broken = {check.rule.id: _presumed_broken(check.rule, frame) for check in checks}
    outcomes = _outcomes([check for check in checks if not broken[check.rule.id]], frame)
    return tuple(
        _of_sound_rows(suite, check, frame, label, doubts)
        if (doubts := broken[check.rule.id])
        else _result_of(suite, check, outcomes.get(check.rule.id), frame, label)
        for check in checks
    )


def _presumed_broken(rule: QualityRule, frame: pd.DataFrame) -> dict[str, BoolArray]:
    """The rows of `frame` that break each rule that `rule` presumes, where there are some."""
    breaking = {name: _breaking(rule_catalogue().by_id[name], frame) for name in rule.presumes}
    return {name: rows for name, rows in breaking.items() if rows.any()}


def _breaking(rule: QualityRule, frame: pd.DataFrame) -> BoolArray:
    """The rows that break a rule about batches, or one that compares a column with another or with a value."""
    condition = rule.expect
    assert condition is not None, rule
    if condition.relation == "batches":
        return broken_rows(rule.id, frame)
    one, other = frame[condition.columns[0]], condition.values[0] if condition.values else frame[condition.columns[1]]
    return known_true({">=": one < other, "=": one != other}[condition.relation])


def _of_sound_rows(
    suite: str, check: SuiteCheck, frame: pd.DataFrame, label: Label, broken: Mapping[str, BoolArray]
) -> QualityResult:
    """The result of a rule on the rows that are not `broken`: it may fail there, and never holds."""
    reason, sound = PRESUMED + ", ".join(broken), frame[~np.logical_or.reduce([*broken.values()])]
    if sound.empty:
        return not_evaluated(suite, check.rule, reason)
    result = _result_of(suite, check, _outcomes([check], sound).get(check.rule.id), sound, label)
    return result if result.success is False else replace(result, success=None, reason=reason)


def _outcomes(checks: Sequence[SuiteCheck], frame: pd.DataFrame) -> dict[str, Any]:
    """Great Expectations' results by rule.

    All are evaluated together by one validator on its pandas engine, without a data context: nothing is stored and no
    frame is hashed. Of the frame each gets what it compares, because the engine copies all that it is given, several
    times; those on the same columns share a batch and its metrics.
    """
    there = frame.columns
    batches = {",".join(check.columns): frame[there[there.isin(check.columns)]] for check in checks}
    # Once for all that compare them, and not in each: to leave out rows copies the lists of the others.
    batches |= {key: own.dropna() for key, own in batches.items() if "batches" in own}
    validator = Validator(execution_engine=PandasExecutionEngine(batch_data_dict=batches))
    validator.metrics_calculator.show_progress_bars = False
    configurations = [check.expectation.configuration for check in checks]
    for check, configuration in zip(checks, configurations, strict=True):
        configuration.kwargs["batch_id"] = ",".join(check.columns)
    results = validator.graph_validate(
        configurations=configurations, runtime_configuration={"result_format": dict(RESULT_FORMAT)}
    )
    return {result.expectation_config.meta["rule"]: result for result in results}


def not_evaluated(suite: str, rule: QualityRule, reason: str) -> QualityResult:
    """The result of a rule that compared nothing."""
    return replace(_failed(suite, rule), success=None, element_count=0, unexpected_count=0, reason=reason)


def _failed(suite: str, rule: QualityRule, error: str | None = None) -> QualityResult:
    return QualityResult(suite=suite, expectation=rule.id, severity=rule.severity, success=False, error=error)


def _result_of(suite: str, check: SuiteCheck, outcome: Any, frame: pd.DataFrame, label: Label) -> QualityResult:
    """Great Expectations' result of one of `checks` on `frame` (None: it gave none) as acktrail records it."""
    error = "the engine gave no result" if outcome is None else _raised(outcome.exception_info)
    if error is not None:
        return _failed(suite, check.rule, error)
    details = outcome.result
    total, missing = details.get("element_count"), int(details.get("missing_count") or 0)
    compared = None if total is None else int(total) - missing
    if compared == 0:
        return not_evaluated(suite, check.rule, _why_not_compared(check, frame))
    broken = details.get("unexpected_count")
    examples = frame.loc[pd.DataFrame(details["unexpected_rows"]).index].to_dict("records") if broken else ()
    return replace(
        _failed(suite, check.rule),
        success=bool(outcome.success),
        element_count=compared,
        unexpected_count=broken,
        observed_value="; ".join(map(label, examples)) or None,
    )


def _why_not_compared(check: SuiteCheck, frame: pd.DataFrame) -> str:
    if check.rule.where:
        return f"no {check.rule.where} among {len(frame)} rows"
    unknown = ", ".join(name for name in check.columns if frame[name].isna().all())
    return f"{NOT_KNOWN}{unknown or ' beside '.join(check.columns)}, in any of {len(frame)} rows"


def _raised(exception_info: Mapping[str, Any]) -> str | None:
    """What an expectation raised, on one line: the information is one dictionary, or one a metric."""
    several = [exception_info] if "raised_exception" in exception_info else list(exception_info.values())
    messages = [str(info.get("exception_message")) for info in several if info.get("raised_exception")]
    return " ".join(messages[0].split())[:_LONGEST_ERROR] if messages else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SuiteFrame:
    """A suite, a frame for it (one piece of a table, or all of it), how people name a row, and why it has none."""

    suite: str
    checks: tuple[SuiteCheck, ...]
    frame: pd.DataFrame
    label: Label
    why_empty: str = ""

    def results(self) -> tuple[QualityResult, ...]:
        """One for each of the checks."""
        found = evaluate(self.suite, self.checks, self.frame, self.label)
        return tuple(replace(each, reason=self.why_empty) if each.reason == NO_ROW else each for each in found)


def share_partition(row: Mapping[str, Any]) -> str:
    """A share partition as people name it: group, topic and partition, by the topic's id where it has no name."""
    topic = row["topic"] if isinstance(row["topic"], str) else row["topic_id"]
    return f"{row['group_id']}/{topic}/{row['partition']}"


def _export_range(row: Mapping[str, Any]) -> str:
    return f"{row['state_partition']}/{row['begin']}-{row['end'] - 1}"


def _state_record(topics: Mapping[str, str], row: Mapping[str, Any]) -> str:
    """State partition and offset, and the share partition where the record names one. `topics`: names by id."""
    address = f"{row['state_partition']}/{row['offset']}"
    if not isinstance(row["group_id"], str):
        return address
    return f"{address} of {share_partition({**row, 'topic': topics.get(row['topic_id'])})}"


def suite_frames(run: ValidationInput, now: datetime) -> Iterator[SuiteFrame]:
    """Every suite of a run; of the state records, which executors evaluate, a frame without rows."""

    def of(suite: str, frame: pd.DataFrame, label: Label, why_empty: str) -> SuiteFrame:
        doing(f"validating {suite}")
        return SuiteFrame(suite=suite, checks=checks_of(suite), frame=frame, label=label, why_empty=why_empty)

    observed = state_partitions_frame(
        run.rows["offset_observations"], ends=run.exported_ends, partition_counts=run.since.partition_counts, now=now
    )
    not_seen = "the run did not observe the state topic"
    yield of("state_partitions", observed, lambda row: f"state partition {row['state_partition']}", not_seen)
    ranges = export_ranges_frame(run.ranges, since=run.since.ranges, run_id=run.run_id, stored=run.records.stored)
    yield of("export_ranges", ranges, _export_range, "nothing was exported since the last validation")
    yield replace(_piece(run.records, pd.DataFrame()), why_empty="no state record came since the last validation")
    states = share_partition_states_frame(run.rows["share_partition_states"], cluster=run.cluster)
    yield of("share_partition_states", states, share_partition, "the run replayed no share partition")
    verdicts = reconciliations_frame(run.rows["reconciliations"])
    yield of("reconciliations", verdicts, share_partition, "the run reconciled no share partition")


def record_frames(records: UnvalidatedRecords, partitions: Sequence[int]) -> Iterator[SuiteFrame]:
    """The records of some state partitions, piece by piece."""
    for frame in records.frames(partitions):
        yield _piece(records, frame)
        del frame


def _piece(records: UnvalidatedRecords, frame: pd.DataFrame) -> SuiteFrame:
    checks = tuple(c for c in checks_of(RECORDS) if records.compares_bytes or c.rule.id != MATCHES_RAW_BYTES)
    return SuiteFrame(suite=RECORDS, checks=checks, frame=frame, label=partial(_state_record, records.cluster.topics))


def run_results(run: ValidationInput, spark: JobSession | None, now: datetime) -> tuple[QualityResult, ...]:
    """In the order of the data's way. The rules on state records are evaluated on `spark`, unless these are few."""
    results: list[QualityResult] = []
    for piece in suite_frames(run, now):
        results += piece.results()
        if piece.suite == RECORDS:
            pieces, evaluating = run.records.pieces(), partial(_evaluated, run.records)
            where = spark if spark is not None and len(pieces) > 1 else in_process()
            of_records = collected_pieces(where, "evaluate the rules on state records", pieces, evaluating, RESULTS)
            results += map(stored_result, of_records.to_pylist())
            if run.why_bytes_not_compared is not None:
                rule = rule_catalogue().by_id[MATCHES_RAW_BYTES]
                results.append(not_evaluated(piece.suite, rule, run.why_bytes_not_compared))
    return merged(results)


def _evaluated(records: UnvalidatedRecords, partitions: Sequence[int]) -> Iterator[pa.Table]:
    """Rows of ``RESULTS`` on the records of some state partitions."""
    results: tuple[QualityResult, ...] = ()
    for piece in record_frames(records, partitions):
        results = merged((*results, *piece.results()))
        del piece
    yield pa.Table.from_pylist([result.row for result in results], schema=RESULTS)


def with_earlier_results(
    results: tuple[QualityResult, ...], known: ValidationSummary, data: ValidationInput
) -> tuple[QualityResult, ...]:
    """State records are validated once: those of the run's earlier validation stay in its results. Raw bytes that
    matched then prove nothing about records that came since."""
    rules = {(result.suite, result.expectation) for result in results}
    earlier = [r for r in known.results if r.suite == RECORDS and (r.suite, r.expectation) in rules]
    if data.why_bytes_not_compared is not None:
        earlier = [r for r in earlier if r.expectation != MATCHES_RAW_BYTES or r.success is False]
    return merged((*results, *earlier))
