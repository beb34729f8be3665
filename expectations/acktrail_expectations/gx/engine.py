"""Great Expectations, loaded quietly and lightly, and its results on frames of pandas.

It logs a line for each engine that it lacks; acktrail evaluates frames of pandas and draws nothing.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import pandas as pd

from acktrail_expectations.gx.light_import import light_import

__all__ = [
    "Expectation",
    "core",
    "kept_while_evaluating",
    "validated",
]

logging.getLogger("great_expectations").setLevel(logging.WARNING)

with warnings.catch_warnings(), light_import():
    warnings.simplefilter("ignore")  # beside PySpark it warns of pandas 3
    import great_expectations.expectations as core
    from great_expectations.execution_engine import PandasExecutionEngine
    from great_expectations.expectations.expectation import Expectation
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.validator.validator import Validator

_KEY: Final = "key"
_MADE: Final[ContextVar[dict[Any, Any] | None]] = ContextVar("made while evaluating", default=None)


def _kept(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A method whose result is made once for each object in `kept_while_evaluating`; else it is as it was."""

    def made_once(of: Any) -> Any:
        made = _MADE.get()
        if made is None:
            return make(of)
        if (make, id(of)) not in made:
            made[make, id(of)] = of, make(of)  # the object, too: another one could get its id
        return made[make, id(of)][1]

    return made_once


# An expectation makes its configuration for each key that is read of it, and a configuration its expectation for each
# metric: 130 times an expectation, two thirds of the time of evaluating a small frame.
Expectation.configuration = property(_kept(Expectation.configuration.fget))
ExpectationConfiguration.to_domain_obj = _kept(ExpectationConfiguration.to_domain_obj)


@contextmanager
def kept_while_evaluating() -> Iterator[None]:
    """Within it, in this context, each configuration and each expectation is made once. None of them may change."""
    token = _MADE.set({})
    try:
        yield
    finally:
        _MADE.reset(token)


def validated(
    expectations: Mapping[str, Expectation],
    frame: pd.DataFrame,
    columns: Mapping[str, tuple[str, ...]],
    result_format: Mapping[str, Any],
) -> dict[str, Any]:
    """Great Expectations' results by the keys of `expectations`, each evaluated on its `columns` of `frame`.

    All are evaluated together by one validator on its pandas engine, without a data context: nothing is stored and no
    frame is hashed. Those on the same columns share a batch and its metrics. An expectation that raised has that in its
    result; one without a result is not in the answer.
    """
    batches = {",".join(names): frame[list(names)] for names in columns.values()}
    validator = Validator(execution_engine=PandasExecutionEngine(batch_data_dict=batches))
    validator.metrics_calculator.show_progress_bars = False
    configurations = []
    for key, expectation in expectations.items():
        configuration = expectation.configuration
        configuration.kwargs["batch_id"] = ",".join(columns[key])
        configuration.meta = {_KEY: key}
        configurations.append(configuration)
    with kept_while_evaluating():
        results = validator.graph_validate(
            configurations=configurations, runtime_configuration={"result_format": dict(result_format)}
        )
    return {result.expectation_config.meta[_KEY]: result for result in results}
