"""The sentence of the rule that decided on each of many rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import Formatter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import Int64Array

TextOf = Callable[[str, pa.Array], pa.Array]
"""What a name stands for in some rows, as texts."""


def rule_reasons(chosen: Int64Array, templates: Sequence[str], text_of: TextOf) -> pa.Array:
    """The template that is `chosen` for each row, with the texts of the row in place of the names in it.

    >>> stuck = pa.array([7, 9]).cast(pa.string())
    >>> rule_reasons(np.array([1, 0]), ["fine", "stays at {start}"], lambda _, rows: stuck.take(rows)).to_pylist()
    ['stays at 7', 'fine']
    """
    order = np.argsort(chosen, kind="stable")
    bounds = np.searchsorted(chosen[order], np.arange(len(templates) + 1))
    found = [pa.array([], pa.string())]
    for template, begin, end in zip(templates, bounds, bounds[1:], strict=False):
        if begin < end:
            found.append(_filled(template, pa.array(order[begin:end]), text_of))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return pa.concat_arrays(found).take(pa.array(places))


def _filled(template: str, rows: pa.Array, text_of: TextOf) -> pa.Array:
    pieces: list[pa.Array] = []
    for literal, name, _, _ in Formatter().parse(template):
        pieces.append(pa.repeat(literal, len(rows)))
        if name is not None:
            pieces.append(text_of(name, rows))
    return pc.binary_join_element_wise(*pieces, "") if pieces else pa.repeat("", len(rows))
