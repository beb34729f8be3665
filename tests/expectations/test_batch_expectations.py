"""The expectations about batches are Great Expectations' own kind: on frames of pandas and of Spark, for anybody."""

from __future__ import annotations

import math
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
    ExpectDeliveryCountsToBePossible,
)
from acktrail_expectations.data_context import export_suites, load_suite, open_run

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
    laws = {
        **PLAIN,
        WITHIN: lambda own, end: end < START or any(b.first_offset < START or b.last_offset >= end for b in own),
    }
    return {rule: sum(breaks(own, number) for own, number in known) for rule, breaks in laws.items()}


def with_gaps(lists: Lists) -> list[Any]:
    """The same lists with a batch more in each that has some: one without a last offset, which no rule compares."""
    gap = {"first_offset": 5, "last_offset": None, "delivery_state": 2, "delivery_count": 0}
    return [own and [*own[:1], gap, *own[1:]] for own in column(lists).to_pylist()]


def of_pandas(**columns: Any) -> Any:
    return gx.get_context(mode="ephemeral").data_sources.pandas_default.read_dataframe(pd.DataFrame(columns))


def of_spark(frame: Any) -> Any:
    asset = gx.get_context(mode="ephemeral").data_sources.add_spark("spark").add_dataframe_asset("rows")
    return asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})


def test_on_pandas_each_counts_the_rows_that_break_its_rule() -> None:
    """Whether lists are Arrow's, as `frame_of` has them and with wider integers, or objects, as a reader of Parquet has
    them, with NaN for a missing list. A batch without a value that is compared is left out."""
    lists, numbers = records(1)
    expected = plain(lists, numbers)
    assert min(expected.values()) > 0
    wide = pa.array(with_gaps(lists))
    objects = [math.nan if own is None else own for own in with_gaps(lists)]
    assert wide.type != BATCHES
    for batches in (*(pd.Series(own, dtype=pd.ArrowDtype(own.type)) for own in (column(lists), wide)), objects):
        assert unexpected(of_pandas(batches=batches, number=pd.array(numbers, "Int64"), start=START)) == expected


@pytest.mark.spark
def test_on_spark_each_counts_the_same_rows(spark: Any) -> None:
    """The same laws as Spark's own columns: no row leaves the JVM."""
    lists, numbers = records(2)
    whole = pa.array(with_gaps(lists), BATCHES)
    frame = spark.createDataFrame(pa.table({"batches": whole, "number": numbers, "start": [START] * ROWS}))

    assert unexpected(of_spark(frame)) == plain(lists, numbers)


def test_the_example_of_five_lines() -> None:
    """As the module shows it, on a frame that acktrail never saw."""
    rows = [[{"first_offset": at, "last_offset": at, "delivery_state": 2, "delivery_count": 1} for at in (7, 3)]]

    found = of_pandas(batches=rows).validate(ExpectBatchesToBeAscending(column="batches"))
    assert (found.success, found.result["unexpected_count"]) == (False, 1)


@pytest.mark.spark
def test_batches_have_only_the_fields_that_a_rule_compares(spark: Any) -> None:
    """On both engines; a rule about another field raises an error that names it."""
    rows = pa.table({"batches": [[{"first_offset": at, "last_offset": at} for at in (7, 3)]]})
    for batch in (of_pandas(batches=rows["batches"].to_pylist()), of_spark(spark.createDataFrame(rows))):
        assert not (found := batch.validate(ExpectBatchesToBeAscending(column="batches"))).success
        assert _raised([found]) == set()
        (error,) = _raised([batch.validate(ExpectDeliveryCountsToBePossible(column="batches"))])
        assert "delivery_" in error


OTHER = {"string": "[]", "int64": 7, "first: int64": [{"first": 1}], "1.5": [{"first_offset": 1.5, "last_offset": 2}]}
"""Values in place of a list of batches, by what the error says of the column."""


@pytest.mark.parametrize("found", OTHER)
def test_a_column_of_another_type_is_named(found: str) -> None:
    """With what is wanted and what is there, on one line."""
    (error,) = _raised([of_pandas(batches=[OTHER[found]]).validate(ExpectBatchesToBeAscending(column="batches"))])
    assert error.startswith("column batches: expected lists of structs of first_offset (int64), ")
    assert found in error


def test_the_window_takes_three_columns() -> None:
    """Another number of columns is refused when the expectation is made."""
    with pytest.raises(ValueError, match=r"expected three columns \(batches, start offset, end offset\), found 2"):
        ExpectBatchesWithinOffsets(column_list=["batches", "start"])


@pytest.mark.parametrize("engine", ["pandas", pytest.param("spark", marks=[pytest.mark.full, pytest.mark.spark])])
def test_exported_suites_run_on_their_rows(tmp_path: Path, request: pytest.FixtureRequest, engine: str) -> None:
    """As any user of Great Expectations runs them, who has the two files and has imported these expectations: every
    rule of a run is evaluated on either engine, and with the results of the gate."""
    life = everyday()
    verdicts = changed(reconciliations(life), -1, verdict="past_log_end")
    checks = open_run(fill(tmp_path / "tables", life, reconciliations=verdicts), RUN)
    export_suites(tmp_path, checks)
    own = {name: _failed(result.results) for name, result in checks.validate().items()}
    for rows in sorted(tmp_path.glob("*.parquet")):
        stored = load_suite(rows.with_suffix(".json"))
        assert len(stored.expectations) == sum(rows.stem in rule.suites for rule in rule_catalogue().rules)
        if engine == "spark":
            batch = of_spark(request.getfixturevalue("spark").read.parquet(str(rows)))
        else:
            batch = gx.get_context(mode="ephemeral").data_sources.pandas_default.read_parquet(rows)
        assert _failed(batch.validate(stored, result_format="BOOLEAN_ONLY").results) == own[rows.stem]
    assert own["reconciliations"] == {"past_log_end"}


def _failed(results: Any) -> set[str]:
    assert _raised(results) == set()
    return {each.expectation_config.meta["rule"] for each in results if not each.success}
