"""Great Expectations, loaded quietly and lightly, and its results on frames of pandas.

It logs a line for each engine that it lacks; acktrail evaluates frames of pandas and draws nothing.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

import pandas as pd

from acktrail_expectations.gx.light_import import light_import

__all__ = [
    "Expectation",
    "PandasExecutionEngine",
    "core",
    "expectation",
    "kept_while_evaluating",
    "map_metric_provider",
    "validated",
]

logging.getLogger("great_expectations").setLevel(logging.WARNING)

with warnings.catch_warnings(), light_import():
    warnings.simplefilter("ignore")  # beside PySpark it warns of pandas 3
    import great_expectations.expectations as core
    from great_expectations.execution_engine import PandasExecutionEngine
    from great_expectations.expectations import expectation
    from great_expectations.expectations.expectation import Expectation
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.expectations.metrics import map_metric_provider
    from great_expectations.validator.validator import Validator

_KEY: Final = "key"
_Maker = Callable[[Any], Any]


class _Kept:
    """A method whose result is made once for each object within `keeping`; outside of it, it is as it was."""

    def __init__(self, make: _Maker) -> None:
        self._make = make
        self._made: ContextVar[dict[int, tuple[Any, Any]] | None] = ContextVar(make.__qualname__, default=None)

    def __get__(self, of: Any, owner: type) -> Any:
        return partial(self, of)

    def __call__(self, of: Any) -> Any:
        made = self._made.get()
        if made is None:
            return self._make(of)
        if id(of) not in made:
            made[id(of)] = of, self._make(of)  # the object, too: another one could get its id
        return made[id(of)][1]

    @contextmanager
    def keeping(self) -> Iterator[None]:
        token = self._made.set({})
        try:
            yield
        finally:
            self._made.reset(token)


# An expectation makes its configuration for each key that is read of it, and a configuration its expectation for each
# metric: 130 times an expectation, two thirds of the time of evaluating a small frame.
_configuration: Final = _Kept(Expectation.configuration.fget)
_expectation: Final = _Kept(ExpectationConfiguration.to_domain_obj)
Expectation.configuration = property(_configuration)
ExpectationConfiguration.to_domain_obj = _expectation


@contextmanager
def kept_while_evaluating() -> Iterator[None]:
    """Within it, in this context, each configuration and each expectation is made once. None of them may change."""
    with _configuration.keeping(), _expectation.keeping():
        yield


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
