"""Great Expectations, loaded quietly and lightly: the only module that imports it.

Its import logs a line for every function it skips and, beside PySpark, warns of pandas 3. It evaluates frames of
pandas here and draws nothing: the packages that serve its other engines, optional for it, are left out, so that in this
process it has neither its Spark engine nor its SQL engine; those that draw and test distributions load when used.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from acktrail_expectations.gx.light_import import light_import

__all__ = [
    "ColumnMapExpectation",
    "ColumnMapMetricProvider",
    "Expectation",
    "MulticolumnMapExpectation",
    "MulticolumnMapMetricProvider",
    "PandasExecutionEngine",
    "column_condition_partial",
    "core",
    "multicolumn_condition_partial",
    "validated",
]

_OTHER_ENGINES: Final = ("pyspark", "sqlalchemy", "boto3", "botocore", "google", "azure", "snowflake", "trino")
_FOR_OTHER_USES: Final = ("altair", "scipy.stats")

logging.getLogger("great_expectations").setLevel(logging.WARNING)

with warnings.catch_warnings(), light_import(absent=_OTHER_ENGINES, lazy=_FOR_OTHER_USES):
    warnings.simplefilter("ignore")
    import great_expectations.expectations as core
    from great_expectations.execution_engine import PandasExecutionEngine
    from great_expectations.expectations.expectation import ColumnMapExpectation, Expectation, MulticolumnMapExpectation
    from great_expectations.expectations.metrics.map_metric_provider import (
        ColumnMapMetricProvider,
        MulticolumnMapMetricProvider,
        column_condition_partial,
        multicolumn_condition_partial,
    )
    from great_expectations.validator.validator import Validator

_KEY: Final = "key"


def validated(
    expectations: Mapping[str, Expectation], frames: Mapping[str, pd.DataFrame], result_format: Mapping[str, Any]
) -> dict[str, Any]:
    """Great Expectations' results by the keys of `expectations`, each evaluated on the frame with its key.

    All are evaluated together by one validator on its pandas engine, without a data context: nothing is stored and no
    frame is hashed. An expectation that raised has that in its result; one without a result is not in the answer.
    """
    validator = Validator(execution_engine=PandasExecutionEngine(batch_data_dict=dict(frames)))
    validator.metrics_calculator.show_progress_bars = False
    configurations = []
    for key, expectation in expectations.items():
        configuration = expectation.configuration
        configuration.kwargs["batch_id"] = key
        configuration.meta = {_KEY: key}
        configurations.append(configuration)
    results = validator.graph_validate(
        configurations=configurations, runtime_configuration={"result_format": dict(result_format)}
    )
    return {result.expectation_config.meta[_KEY]: result for result in results}
