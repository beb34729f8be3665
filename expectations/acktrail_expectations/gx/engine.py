"""Great Expectations, loaded quietly and lightly: the only module that imports it.

It tries to import every engine that it can evaluate with and every library that it can draw with, two thirds of the
time of its import, and logs a line for each that it lacks. acktrail evaluates frames of pandas and draws nothing.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import Any, Final

import pandas as pd

__all__ = ["Expectation", "PandasExecutionEngine", "core", "expectation", "map_metric_provider", "validated"]

_OTHER_ENGINES: Final = frozenset(
    {"pyspark", "sqlalchemy", "boto3", "botocore", "google", "azure", "snowflake", "trino"}
)
_FOR_OTHER_USES: Final = frozenset({"altair", "scipy.stats"})


class _LightFinder(MetaPathFinder):
    """To this thread ``_OTHER_ENGINES`` count as not installed, and ``_FOR_OTHER_USES`` load when first used. Where one
    engine is loaded already none is hidden, because they need each other: PySpark ends a process that lacks google."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._absent = frozenset[str]() if sys.modules.keys() & _OTHER_ENGINES else _OTHER_ENGINES

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if threading.get_ident() != self._thread:
            return None
        if fullname.partition(".")[0] in self._absent:
            raise ModuleNotFoundError(f"{fullname} is left out", name=fullname)
        spec = PathFinder.find_spec(fullname, path, target) if fullname in _FOR_OTHER_USES else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def _light_import() -> Iterator[None]:
    """Around an import by this thread. The garbage collector ignores what is imported, then and later."""
    finder, collects = _LightFinder(), gc.isenabled()
    sys.meta_path.insert(0, finder)
    gc.disable()
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        gc.freeze()
        if collects:
            gc.enable()


logging.getLogger("great_expectations").setLevel(logging.WARNING)

with warnings.catch_warnings(), _light_import():
    warnings.simplefilter("ignore")  # beside PySpark it warns of pandas 3
    import great_expectations.expectations as core
    from great_expectations.execution_engine import PandasExecutionEngine
    from great_expectations.expectations import expectation
    from great_expectations.expectations.expectation import Expectation
    from great_expectations.expectations.metrics import map_metric_provider
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
