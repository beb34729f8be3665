"""The expectations about batches are Great Expectations' own kind: on frames of pandas and of Spark, for anybody."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import great_expectations as gx
import pandas as pd
import pyarrow as pa
import pytest
from expectations.sample_tables import RUN, changed, fill, reconciliations
from expectations.test_damage import PLAIN, Lists, column
from state_topics.coordinator_log import everyday

from acktrail.format.columns.schemas.table_schemas import BATCHES
from acktrail.model.batches import StateBatch
from acktrail.model.rules.catalogue import rule_catalogue
from acktrail_expectations.batch_expectations import (
    BATCH_EXPECTATIONS,
    ExpectBatchesToBeAscending,
    ExpectBatchesWithinOffsets,
)
from acktrail_expectations.data_context import export_suites, open_run

ROWS = 300
START = 1
WITHIN = "batches_within_offsets"


def records(seed: int) -> tuple[Lists, list[int]]:
    """Batches of some records, in order or not, and a number that bounds each."""
    chance = Random(seed)

    def one(low: int) -> StateBatch:
        first = low + chance.randint(-3, 2)
        state, count = chance.choice((0, 0, 1, 2, 3, 4)), chance.choice((-1, 0, 1, 9, 27))
        last = first + chance.randint(-1, 2)
        return StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)

    lists: Lists = [tuple(one(3 * at) for at in range(chance.randint(0, 4))) for _ in range(ROWS)]
    return [None if chance.random() < 0.1 else own for own in lists], [chance.randint(0, 14) for _ in lists]


def suite() -> gx.ExpectationSuite:
    """Every expectation about batches once. Those that need a bound compare with the column `number`."""
    alone, bounded = {"column": "batches"}, {"column_A": "batches", "column_B": "number"}
    known = BATCH_EXPECTATIONS.items()
    own = [kind(**(bounded if bound else alone), meta={"rule": rule}) for rule, (kind, bound) in known]
    within = ExpectBatchesWithinOffsets(column_list=["batches", "start", "number"], meta={"rule": WITHIN})
    return gx.ExpectationSuite(name="batches", expectations=[*own, within])


def unexpected(batch: Any) -> dict[str, int]:
    """Of each rule how many rows break it."""
    results = batch.validate(suite()).results
    assert _raised(results) == set()
    return {each.expectation_config.meta["rule"]: each.result["unexpected_count"] for each in results}


def _raised(results: Any) -> set[str]:
    """What the evaluation itself stumbled over."""
    infos = [each.exception_info for each in results]
    single = [own for info in infos for own in ([info] if "raised_exception" in info else info.values())]
    return {str(own["exception_message"]) for own in single if own["raised_exception"]}


def plain(lists: Lists, numbers: list[int]) -> dict[str, int]:
    """The same, by the definition of each rule."""
    known = [(own, number) for own, number in zip(lists, numbers, strict=True) if own is not None]
    laws = {**PLAIN, WITHIN: lambda own, end: any(each.first_offset < START or each.last_offset >= end for each in own)}
    return {rule: sum(breaks(own, number) for own, number in known) for rule, breaks in laws.items()}


def context() -> Any:
    return gx.get_context(mode="ephemeral")


def test_on_pandas_each_counts_the_rows_that_break_its_rule() -> None:
    """Whether lists are Arrow's, as `frame_of` has them, or objects, as a reader of Parquet gives them."""
    lists, numbers = records(1)
    expected = plain(lists, numbers)
    assert min(expected.values()) > 0
    rows = column(lists).to_pylist()
    for batches in (pd.Series(column(lists), dtype=pd.ArrowDtype(column(lists).type)), pd.Series(rows, dtype=object)):
        frame = pd.DataFrame({"batches": batches, "number": pd.array(numbers, "Int64"), "start": START})
        assert unexpected(context().data_sources.pandas_default.read_dataframe(frame)) == expected


@pytest.mark.spark
def test_on_spark_each_counts_the_same_rows(spark: Any) -> None:
    """The same laws as Spark's own columns: no row leaves the JVM."""
    lists, numbers = records(2)
    whole = pa.array(column(lists).to_pylist(), BATCHES)
    frame = spark.createDataFrame(pa.table({"batches": whole, "number": numbers, "start": [START] * ROWS}))
    asset = context().data_sources.add_spark("spark").add_dataframe_asset("records")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})

    assert unexpected(batch) == plain(lists, numbers)


def test_the_example_of_five_lines() -> None:
    """As the module shows it, on a frame that acktrail never saw."""
    rows = [[{"first_offset": at, "last_offset": at, "delivery_state": 2, "delivery_count": 1} for at in (7, 3)]]
    batch = context().data_sources.pandas_default.read_dataframe(pd.DataFrame({"batches": rows}))

    found = batch.validate(ExpectBatchesToBeAscending(column="batches"))
    assert (found.success, found.result["unexpected_count"]) == (False, 1)


@pytest.mark.spark
def test_exported_suites_run_on_their_rows_in_pandas_and_spark(tmp_path: Path, spark: Any) -> None:
    """As any user of Great Expectations runs them, who has the two files and has imported these expectations: every
    rule of a run is evaluated on both engines, and with the results of the gate."""
    life = everyday()
    verdicts = changed(reconciliations(life), -1, verdict="past_log_end")
    checks = open_run(fill(tmp_path / "tables", life, reconciliations=verdicts), RUN)
    export_suites(tmp_path, checks)
    own = {name: _failed(result.results) for name, result in checks.validate().items()}
    for rows in sorted(tmp_path.glob("*.parquet")):
        stored = gx.ExpectationSuite(**json.loads(rows.with_suffix(".json").read_text("utf-8")))
        assert len(stored.expectations) == sum(rows.stem in rule.suites for rule in rule_catalogue().rules)
        sources = context().data_sources
        asset = sources.add_spark("spark").add_dataframe_asset("rows").add_batch_definition_whole_dataframe("all")
        of_spark = asset.get_batch({"dataframe": spark.read.parquet(str(rows))})
        for batch in (sources.pandas_default.read_parquet(rows), of_spark):
            assert _failed(batch.validate(stored, result_format="BOOLEAN_ONLY").results) == own[rows.stem]
    assert own["reconciliations"] == {"past_log_end"}


def _failed(results: Any) -> set[str]:
    assert _raised(results) == set()
    return {each.expectation_config.meta["rule"] for each in results if not each.success}
