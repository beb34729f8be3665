"""Contexts of Great Expectations that stay in memory and send nothing, and checkpoints over frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import great_expectations as gx
import pandas as pd
from great_expectations.data_context.types.base import DataContextConfig, InMemoryStoreBackendDefaults
from great_expectations.datasource.fluent.pandas_datasource import DataFrameAsset

from acktrail_expectations.gx.documented_suites import documented_suite
from acktrail_expectations.gx.suite_check import SuiteCheck

DATA_SOURCE: Final = "acktrail"

_FRAMES: Final[WeakKeyDictionary[Any, dict[str, pd.DataFrame]]] = WeakKeyDictionary()
"""The frames of each context's assets. Great Expectations copies and stores assets; frames it should not."""


class TableFrameAsset(DataFrameAsset):
    """A frame with a name: validation definitions on it need no batch parameters."""

    def build_batch_request(
        self, options: Mapping[str, Any] | None = None, batch_slice: Any = None, partitioner: Any = None
    ) -> Any:
        """The request for `options`, or for the frame that the asset was added with."""
        own = options or {"dataframe": _FRAMES[self.datasource.data_context][self.name]}
        return super().build_batch_request(own, batch_slice, partitioner)


def memory_context() -> Any:
    """A context that keeps everything in memory, writes no documents and sends no analytics."""
    return gx.get_context(
        mode="ephemeral",
        project_config=DataContextConfig(
            analytics_enabled=False,
            progress_bars={"globally": False},
            store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        ),
    )


def checkpoint_of(
    context: Any,
    name: str,
    suites: Iterable[tuple[str, Sequence[SuiteCheck], pd.DataFrame]],
    result_format: Mapping[str, Any],
) -> Any:
    """A checkpoint of `context` over `suites` (name, rules, frame), with data source, assets and suites for it."""
    source = context.data_sources.add_pandas(DATA_SOURCE)
    definitions = []
    for suite, checks, frame in suites:
        _FRAMES.setdefault(context, {})[suite] = frame
        asset = source._add_asset(TableFrameAsset(name=suite))  # noqa: SLF001  # public ways know GX's own assets alone
        batch = asset.add_batch_definition_whole_dataframe(suite)
        definition = gx.ValidationDefinition(
            name=suite, data=batch, suite=context.suites.add(documented_suite(suite, checks))
        )
        definitions.append(context.validation_definitions.add(definition))
    return context.checkpoints.add(
        gx.Checkpoint(name=name, validation_definitions=definitions, result_format=dict(result_format))
    )
