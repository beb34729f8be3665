"""Great Expectations, loaded quietly: the only module that imports it.

Its import logs a line for every function it passes over and, beside PySpark, warns of pandas 3; its contexts log the
folder they would write documents to. Nothing of that says anything about the tables.
"""

from __future__ import annotations

import logging
import warnings

__all__ = [
    "ColumnMapExpectation",
    "ColumnMapMetricProvider",
    "Expectation",
    "ExpectationSuite",
    "MulticolumnMapExpectation",
    "MulticolumnMapMetricProvider",
    "PandasExecutionEngine",
    "column_condition_partial",
    "core",
    "ephemeral_context",
    "multicolumn_condition_partial",
]

logging.getLogger("great_expectations").setLevel(logging.WARNING)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import great_expectations.expectations as core
    from great_expectations import ExpectationSuite, get_context
    from great_expectations.data_context.types.base import DataContextConfig, InMemoryStoreBackendDefaults
    from great_expectations.execution_engine import PandasExecutionEngine
    from great_expectations.expectations.expectation import (
        ColumnMapExpectation,
        Expectation,
        MulticolumnMapExpectation,
    )
    from great_expectations.expectations.metrics.map_metric_provider import (
        ColumnMapMetricProvider,
        MulticolumnMapMetricProvider,
        column_condition_partial,
        multicolumn_condition_partial,
    )

logging.getLogger("great_expectations.data_context.types.base").setLevel(logging.WARNING)


def ephemeral_context() -> object:
    """A context in memory: it writes no file and draws no progress bar."""
    in_memory = InMemoryStoreBackendDefaults(init_temp_docs_sites=False)
    context = get_context(mode="ephemeral", project_config=DataContextConfig(store_backend_defaults=in_memory))
    context.variables.progress_bars = {"globally": False, "metric_calculations": False}
    return context
