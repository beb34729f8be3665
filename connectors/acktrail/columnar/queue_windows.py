"""The statuses of all share partitions at once: ``acktrail.model.queue_rules.judge`` by columns.

Windows are folded observation by observation, oldest first, for all rows together; property tests hold this and the
model to the same statuses and reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from string import Formatter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.schemas.schema_types import INSTANT, schema
from acktrail.columnar.schemas.status_schemas import STATUS_WINDOW
from acktrail.model.queue_rules import LEAST, RULES, WINDOW, QueueRule
from acktrail.model.queue_status import QueueStatus
from acktrail.model.reconciliation import Completeness

JUDGED: Final = schema((pa.string(), "status"), (INSTANT, "status_since"), (pa.string(), "reason"))
"""What ``judge`` gives for each row."""
MOST: Final = 1 << 58
"""Offsets and counts of a window are below: sums and differences of them fit int64."""

_FIELDS: Final = tuple(STATUS_WINDOW.value_type.names)
_COUNTED: Final = ("acknowledged", "released", "archived")
_OFFSETS: Final = ("first_unfinished_offset", "log_start_offset", "log_end_offset", "unfinished_records")
_NAMES: Final = pa.array([status.value for status, _ in RULES.values()])
_Numbers = dict[str, Int64Array]


def judge_windows(
    windows: pa.Array,
    *,
    previous_status: pa.Array,
    previous_since: pa.Array,
    completeness: pa.Array,
    members: pa.Array,
) -> pa.Table:
    """Rows of ``JUDGED``. `windows`: ``STATUS_WINDOW``, none null or empty, at most ``WINDOW`` observations, offsets
    and counts null or from 0 to below ``MOST``. The others are those of ``judge``, null where it takes None."""
    folded = _fold(_Windows(windows))
    folded.numbers |= {"members": pc.fill_null(members.cast(pa.int64()), -1).to_numpy()}
    was_stuck = pc.fill_null(pc.equal(previous_status, QueueStatus.STUCK.value), fill_value=False)
    masks = _masks(folded, completeness, was_stuck.to_numpy(zero_copy_only=False))
    chosen = np.select([masks[rule] for rule in RULES], range(len(RULES)))
    status = _NAMES.take(pa.array(chosen))
    is_same = pc.fill_null(pc.equal(status, previous_status), fill_value=False)
    columns = {
        "status": status,
        "status_since": pc.if_else(is_same, previous_since.cast(INSTANT), folded.observed_at),
        "reason": _reasons(chosen, folded.numbers, completeness),
    }
    return pa.table(columns, schema=JUDGED)


def newest_windows(before: pa.Array, newest: pa.StructArray) -> pa.Array:
    """``STATUS_WINDOW``: each window of `before` (null: none) and the observation `newest` of the same row behind it,
    without the oldest where there are more than ``WINDOW``."""
    lengths = pc.fill_null(pc.list_value_length(before), 0).to_numpy()
    kept = np.minimum(lengths, WINDOW - 1)
    ends = np.cumsum(lengths)
    offsets = np.append(0, np.cumsum(kept + 1))
    places = np.empty(offsets[-1], np.int64)
    is_newest = np.zeros(len(places), np.bool_)
    is_newest[offsets[1:] - 1] = True
    rows = np.repeat(np.arange(len(kept)), kept)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(kept) - kept, kept)
    places[~is_newest] = ends[rows] - kept[rows] + within
    flat = pc.list_flatten(before)
    places[is_newest] = len(flat) + np.arange(len(kept))
    values = pa.concat_arrays([flat.cast(STATUS_WINDOW.value_type), newest.cast(STATUS_WINDOW.value_type)])
    taken = values.take(pa.array(places))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), taken, type=STATUS_WINDOW)


class _Windows:
    """Windows as arrays of shape (rows, longest window), the newest observation of each row in the last column; `has`:
    where a row has an observation."""

    def __init__(self, windows: pa.Array) -> None:
        lengths = pc.list_value_length(windows).to_numpy()
        self.rows, width = len(windows), int(lengths.max(initial=1))
        flat = pc.list_flatten(windows)
        row = np.repeat(np.arange(self.rows), lengths)
        within = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        place = row, within + width - lengths[row]
        self.has = np.zeros((self.rows, width), np.bool_)
        self.has[place] = True
        self.values: dict[str, npt.NDArray[Any]] = {}
        self.known: dict[str, npt.NDArray[np.bool_]] = {}
        for name in _FIELDS:
            own = pc.struct_field(flat, name)
            self.values[name], self.known[name] = np.zeros((self.rows, width), np.int64), np.zeros_like(self.has)
            self.values[name][place] = pc.fill_null(own.cast(pa.int64()), 0).to_numpy()
            self.known[name][place] = own.is_valid().to_numpy(zero_copy_only=False)

    def observations(self) -> Iterator[tuple[_Numbers, dict[str, BoolArray], BoolArray]]:
        """Numbers and masks of each column, oldest first."""
        for column in range(self.has.shape[1]):
            numbers = {name: values[:, column] for name, values in self.values.items()}
            masks = {name: known[:, column] for name, known in self.known.items()}
            yield numbers, masks, self.has[:, column]


class _Folded:
    """What windows show, by the names of ``RULES``, and what rules ask besides."""

    def __init__(self, rows: int) -> None:
        names = (
            *("start", "log_start", "log_end", "lag", "epoch", "lag_first", "end_first", "end_before", "known"),
            *("observations", "step", "flat", "flat_end", "done", "back", "epochs", "archiving", "archiving_for"),
            *("has_epoch", "moved", "fell", *_COUNTED),
        )
        self.numbers: _Numbers = {name: np.zeros(rows, np.int64) for name in names}
        self.is_known = np.zeros(rows, np.bool_)
        self.is_started = np.zeros(rows, np.bool_)
        self.is_log_empty = np.zeros(rows, np.bool_)
        self.observed_at: pa.Array = pa.nulls(rows, INSTANT)


def _fold(windows: _Windows) -> _Folded:
    folded = _Folded(windows.rows)
    for numbers, masks, has in windows.observations():
        _count(folded.numbers, numbers, masks, has)
        known = np.logical_and.reduce([masks[name] for name in _OFFSETS])
        _move(folded.numbers, numbers, masks["state_epoch"], known)
        folded.is_known = known
        folded.is_started = masks["first_unfinished_offset"]
        is_empty = numbers["log_start_offset"] == numbers["log_end_offset"]
        folded.is_log_empty = masks["log_start_offset"] & masks["log_end_offset"] & is_empty
        folded.observed_at = pa.array(numbers["observed_at"]).cast(INSTANT)
    found = folded.numbers
    found["grown"] = np.where(found["flat"] > 0, found["log_end"] - found["flat_end"], 0)
    found["done"] = np.where(found["flat"] > 0, found["done"], 0)
    found["distance"] = found["start"] - found["log_start"]
    return folded


def _count(found: _Numbers, numbers: _Numbers, masks: Mapping[str, BoolArray], has: BoolArray) -> None:
    """Take in the counts and the archiving records of one observation of each row."""
    complete = np.logical_and.reduce([masks[name] for name in _COUNTED])
    for name in _COUNTED:
        found[name] += np.where(complete, numbers[name], 0)
    found["done"] += np.where(complete, numbers["acknowledged"] + numbers["archived"], 0)
    found["observations"] += has
    is_archiving = masks["archiving_records"] & (numbers["archiving_records"] > 0)
    is_waiting = masks["archived"] & (numbers["archived"] == 0)
    found["archiving_for"] = np.where(is_archiving, np.where(is_waiting, found["archiving_for"] + 1, 1), 0)
    found["archiving"] = np.where(is_archiving, numbers["archiving_records"], 0)


def _move(found: _Numbers, numbers: _Numbers, has_epoch: BoolArray, known: BoolArray) -> None:
    """Take in the offsets of one observation of the rows where they are `known`."""
    start, log_start, log_end, lag = (numbers[name] for name in _OFFSETS)
    later = known & (found["known"] > 0)
    found["moved"] |= later & ((start != found["start"]) | (log_end != found["log_end"]))
    found["fell"] |= later & (lag < found["lag"])
    _raise(found, "step", later, log_start - found["log_start"])
    _raise(found, "back", later, found["start"] - start)
    both = known & has_epoch & (found["has_epoch"] > 0)
    _raise(found, "epochs", both, numbers["state_epoch"] - found["epoch"])
    stays = later & (found["flat"] > 0) & (start == found["start"]) & (lag > 0)
    begins = known & (lag > 0) & ~stays
    found["flat"] = np.where(known, np.where(stays, found["flat"] + 1, begins.astype(np.int64)), found["flat"])
    found["flat_end"] = np.where(begins, log_end, found["flat_end"])
    found["done"] = np.where(begins, 0, found["done"])
    first = known & (found["known"] == 0)
    for name, value in (("lag_first", lag), ("end_first", log_end)):
        found[name] = np.where(first, value, found[name])
    found["end_before"] = np.where(known, found["log_end"], found["end_before"])
    newest = (("start", start), ("log_start", log_start), ("log_end", log_end), ("lag", lag))
    for name, value in newest:
        found[name] = np.where(known, value, found[name])
    found["epoch"] = np.where(known & has_epoch, numbers["state_epoch"], found["epoch"])
    found["has_epoch"] |= known & has_epoch
    found["known"] += known


def _raise(found: _Numbers, name: str, rows: BoolArray, numbers: Int64Array) -> None:
    found[name] = np.where(rows, np.maximum(found[name], numbers), found[name])


def _masks(folded: _Folded, completeness: pa.Array, was_stuck: BoolArray) -> dict[QueueRule, BoolArray]:
    """The rows where each rule applies, if none before it does."""
    found = folded.numbers
    has_state = completeness.is_valid().to_numpy(zero_copy_only=False)
    is_complete = pc.fill_null(pc.equal(completeness, Completeness.COMPLETE.value), fill_value=False)
    known = folded.is_known & is_complete.to_numpy(zero_copy_only=False)
    lag, flat, step, distance = (found[name] for name in ("lag", "flat", "step", "distance"))
    acknowledged, released, archived = (found[name] for name in _COUNTED)
    is_empty = ~folded.is_started & folded.is_log_empty
    is_near = (distance >= 0) & (distance <= step) & (step > 0)
    still = (found["moved"] == 0) & (acknowledged == 0) & (released == 0) & (archived == 0)
    grows = (found["known"] >= LEAST) & (found["lag_first"] > 0) & (found["fell"] == 0)
    stuck = (flat >= LEAST) & ((found["grown"] > 0) | (found["done"] > 0))
    return {
        QueueRule.RETENTION_PASSED: known & (distance < 0) & ((lag > 0) | (step > 0)),
        QueueRule.RETENTION_NEXT: known & is_near & (lag > 0) & (found["start"] < found["end_first"]),
        QueueRule.STUCK: known & (stuck | (was_stuck & (flat > 1))),
        QueueRule.ARCHIVING_STUCK: known & (found["archiving_for"] >= LEAST),
        QueueRule.REJECT_STORM: (archived > acknowledged) & (archived >= released),
        QueueRule.RELEASE_LOOP: released > acknowledged,
        QueueRule.LAGGING: known & grows & (found["start"] < found["end_before"]),
        QueueRule.NO_STATE: ~has_state,
        QueueRule.NOT_COMPLETE: ~is_complete.to_numpy(zero_copy_only=False),
        QueueRule.NOT_INITIALIZED: ~folded.is_started & ~is_empty,
        QueueRule.NOT_KNOWN: ~known & ~is_empty,
        QueueRule.FIRST_SEEN: known & (found["observations"] == 1) & (lag > 0),
        QueueRule.REWOUND: known & ((found["back"] > 0) | (found["epochs"] > 0)),
        QueueRule.EMPTY: is_empty,
        QueueRule.IDLE: known & (lag == 0) & still,
        QueueRule.OK: np.ones_like(known),
    }


def _reasons(chosen: Int64Array, numbers: _Numbers, completeness: pa.Array) -> pa.Array:
    """The reason of each row, in the words of its rule."""
    order = np.argsort(chosen, kind="stable")
    texts = []
    for number, (_, template) in enumerate(RULES.values()):
        rows = pa.array(np.flatnonzero(chosen == number))
        if len(rows):
            texts.append(_text(template, numbers, completeness, rows))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return pa.concat_arrays([pa.array([], pa.string()), *texts]).take(pa.array(places))


def _text(template: str, numbers: _Numbers, completeness: pa.Array, rows: pa.Array) -> pa.Array:
    pieces: list[Any] = []
    for literal, name, _, _ in Formatter().parse(template):
        pieces.append(literal)
        if name == "completeness":
            pieces.append(completeness.take(rows))
        elif name == "members":
            counts = pa.array(numbers[name]).take(rows)
            shown = pc.binary_join_element_wise(counts.cast(pa.string()), "members", " ")
            pieces.append(pc.if_else(pc.less(counts, 0), "members not known", shown))
        elif name is not None:
            pieces.append(pa.array(numbers[name]).take(rows).cast(pa.string()))
    if all(isinstance(piece, str) for piece in pieces):
        return pa.repeat("".join(pieces), len(rows))
    return pc.binary_join_element_wise(*pieces, "")
