"""The statuses of all share partitions at once: ``judge`` of ``tests/definitions/queue_rules.py``
by columns.

Windows are folded observation by observation, oldest first, for all rows together; property tests hold this and the
definition to the same statuses and reasons.
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
from acktrail.columnar.schemas.schema_types import INSTANT, INT32, INT64, STRING, schema
from acktrail.columnar.schemas.table_schemas import STATUS_WINDOW
from acktrail.model.queue_status import QueueStatus
from acktrail.model.queues.queue_reasons import RULES, SAYS_UNSEEN, STILL_UNSEEN, QueueRule
from acktrail.model.queues.queue_window import COUNTED, LEAST, LONGEST, WINDOW
from acktrail.model.reconciliation import Completeness, Verdict

CONTEXT: Final = schema(
    (STRING, "previous_status"),
    (INSTANT, "previous_since"),
    (STRING, "completeness", "verdict", "verdict_reason", "critical_finding"),
    (INT32, "members"),
    (INSTANT, "first_look_at", "no_members_since"),
    (INT64, "lost_records", "archived_seen"),
    (INSTANT, "unseen_at"),
)
"""What is known beside a window, as of its newest observation: status and time of the judgement before (null: none),
and as in ``QueueContext`` of ``tests/definitions/queue_window.py``; null: not known. `critical_finding`: rule and
detail of the worst critical one, null: none. `no_members_since`: the first observation in a row without members, null:
it has some. `archived_seen`: archived in any exported record. `unseen_at`: the newest observation at which more was
archived than acknowledged, null: somebody has acknowledged that."""
JUDGED: Final = schema((STRING, "status"), (INSTANT, "status_since"), (STRING, "reason"), (INSTANT, "unseen_at"))
"""The judgement of each row; `unseen_at` goes into the next one's context."""
MOST: Final = 1 << 58
"""Offsets and counts of a window are below: sums and differences of them fit int64."""

_FIELDS: Final = tuple(STATUS_WINDOW.value_type.names)
_OFFSETS: Final = ("first_unfinished_offset", "log_start_offset", "log_end_offset", "unfinished_records")
_NAMES: Final = pa.array([status.value for status, _ in RULES.values()])
_Numbers = dict[str, Int64Array]


def judge_windows(windows: pa.Array, context: pa.Table) -> pa.Table:
    """Rows of ``JUDGED``. `windows`: ``STATUS_WINDOW``, none null or empty, as ``newest_windows`` makes them, offsets
    and counts null or from 0 to below ``MOST``. `context`: rows of ``CONTEXT``."""
    folded = _fold(_Windows(windows))
    found = folded.numbers
    found["archived_seen"] = np.maximum(_numbers(context, "archived_seen", 0), found["all_archived"])
    found["lost"] = _numbers(context, "lost_records", 0)
    found["lost"] = np.where((found["lost"] == 0) & folded.is_known, -found["distance"], found["lost"])
    is_more = (found["newest_archived"] > 0) & (found["all_archived"] > found["all_acknowledged"])
    unseen_at = pc.if_else(pa.array(is_more), folded.observed_at, context["unseen_at"].combine_chunks())
    masks = _masks(folded, context, unseen_at.is_valid().to_numpy(zero_copy_only=False))
    chosen = np.select([masks[rule] for rule in RULES], range(len(RULES)))
    status = _NAMES.take(pa.array(chosen))
    is_same = pc.fill_null(pc.equal(status, context["previous_status"]), fill_value=False)
    texts = _texts(context, folded.observed_at, unseen_at)
    columns = {
        "status": status,
        "status_since": pc.if_else(is_same, context["previous_since"], folded.observed_at),
        "reason": _reasons(chosen, found, texts, unseen_at.is_valid()),
        "unseen_at": unseen_at,
    }
    return pa.table(columns, schema=JUDGED)


def newest_windows(before: pa.Array, newest: pa.StructArray) -> pa.Array:
    """``STATUS_WINDOW``: of each window of `before` (null: none) and the observation `newest` of the same row behind it
    what ``next_window`` of ``tests/definitions/queue_window.py`` keeps."""
    kind = STATUS_WINDOW.value_type
    lengths = pc.fill_null(pc.list_value_length(before), 0).to_numpy() + 1
    rows, ends = np.repeat(np.arange(len(lengths)), lengths), np.cumsum(lengths)
    places = np.arange(len(rows)) - rows  # in the flat list of `before`
    places[ends - 1] = len(rows) - len(lengths) + np.arange(len(lengths))
    flat = pa.concat_arrays([pc.list_flatten(before).cast(kind), newest.cast(kind)]).take(pa.array(places))
    from_end = ends[rows] - np.arange(len(rows))
    times = pc.struct_field(flat, "observed_at").cast(pa.int64()).to_numpy()
    kept = (times > times[ends[rows] - 1] - WINDOW) | (from_end <= LEAST)
    gone = _closest(times, ends, np.add.reduceat(kept, ends - lengths) if len(lengths) else lengths)
    columns = {field.name: pc.struct_field(flat, field.name) for field in kind}
    for name in COUNTED:
        columns[name] = _inherited(columns[name], gone)
    kept[gone] = False
    offsets = np.append(0, np.cumsum(np.bincount(rows[kept], minlength=len(lengths))))
    arrays = [columns[field.name].filter(pa.array(kept)) for field in kind]
    values = pa.StructArray.from_arrays(arrays, fields=list(kind))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=STATUS_WINDOW)


def _closest(times: Int64Array, ends: Int64Array, counts: Int64Array) -> Int64Array:
    """Of each window with more than ``LONGEST`` observations the place of the one that goes: its `counts` newest ones
    are looked at, which end before `ends`."""
    gone = []
    for end, count in zip(ends[counts > LONGEST].tolist(), counts[counts > LONGEST].tolist(), strict=True):
        own = times[end - count : end - 1]
        gone.append(end - count + 1 + int(np.argmin(own[2:] - own[:-2])))
    return np.array(gone, np.int64)


def _inherited(counts: pa.Array, gone: Int64Array) -> pa.Array:
    """`counts` with those at `gone` added to the next ones; null where one of both is."""
    values, known = pc.fill_null(counts, 0).to_numpy().copy(), counts.is_valid().to_numpy(zero_copy_only=False).copy()
    values[gone + 1] += values[gone]
    known[gone + 1] &= known[gone] & (values[gone + 1] < MOST)
    return pa.array(values, mask=~known)


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
            *("has_epoch", "moved", "fell", *COUNTED, *(f"all_{name}" for name in COUNTED)),
            *(*(f"last_{name}" for name in COUNTED), *(f"newest_{name}" for name in COUNTED), "is_counted"),
        )
        self.numbers: _Numbers = {name: np.zeros(rows, np.int64) for name in names}
        self.is_known = np.zeros(rows, np.bool_)
        self.is_started = np.zeros(rows, np.bool_)
        self.has_ends = np.zeros(rows, np.bool_)
        self.observed_at: pa.Array = pa.nulls(rows, INSTANT)


def _fold(windows: _Windows) -> _Folded:
    folded = _Folded(windows.rows)
    oldest = windows.values["observed_at"][:, -1] - WINDOW
    for numbers, masks, has in windows.observations():
        _count(folded.numbers, numbers, masks, has, oldest)
        known = np.logical_and.reduce([masks[name] for name in _OFFSETS])
        _move(folded.numbers, numbers, masks["state_epoch"], known)
        folded.is_known = known
        folded.is_started = masks["first_unfinished_offset"]
        folded.has_ends = masks["log_start_offset"] & masks["log_end_offset"]
        folded.observed_at = pa.array(numbers["observed_at"]).cast(INSTANT)
        folded.numbers["waiting"] = numbers["log_end_offset"] - numbers["log_start_offset"]
        folded.numbers["log_start_newest"] = numbers["log_start_offset"]
    found = folded.numbers
    found["grown"] = np.where(found["flat"] > 0, found["log_end"] - found["flat_end"], 0)
    found["done"] = np.where(found["flat"] > 0, found["done"], 0)
    found["distance"] = found["start"] - found["log_start"]
    found["log_start"] = found["log_start_newest"]
    return folded


def _count(
    found: _Numbers, numbers: _Numbers, masks: Mapping[str, BoolArray], has: BoolArray, oldest: Int64Array
) -> None:
    """Take in the counts and the archiving records of one observation of each row."""
    complete = np.logical_and.reduce([masks[name] for name in COUNTED])
    counts = {name: np.where(complete, numbers[name], 0) for name in COUNTED}
    at = np.where(masks["recorded_at"], numbers["recorded_at"], numbers["observed_at"])
    recent = np.minimum(at, numbers["observed_at"]) > oldest
    ended = recent & np.logical_or.reduce([count > 0 for count in counts.values()])
    for name, count in counts.items():
        found[name] += np.where(recent, count, 0)
        found[f"all_{name}"] += count
        found[f"last_{name}"] = np.where(ended, count, found[f"last_{name}"])
        found[f"newest_{name}"] = count
    found["is_counted"] = complete.astype(np.int64)
    found["done"] += counts["acknowledged"] + counts["archived"]
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


def _masks(folded: _Folded, context: pa.Table, unseen: BoolArray) -> dict[QueueRule, BoolArray]:
    """The rows where each rule applies, if none before it does."""
    found = folded.numbers
    is_complete = _is(context["completeness"], Completeness.COMPLETE.value)
    known = folded.is_known & is_complete
    undelivered = is_complete & ~folded.is_started & folded.has_ends
    lag, flat, step, distance = (found[name] for name in ("lag", "flat", "step", "distance"))
    acknowledged, released, archived = (found[name] for name in COUNTED)
    waiting, deserted = found["waiting"], _numbers(context, "members", -1) == 0
    is_near = (distance >= 0) & (distance <= step) & (step > 0)
    still = (found["moved"] == 0) & (acknowledged == 0) & (released == 0) & (archived == 0)
    nothing = np.logical_and.reduce([found[f"newest_{name}"] == 0 for name in COUNTED]) & (found["is_counted"] > 0)
    goes_on = ~(deserted & nothing)
    grows = (found["known"] >= LEAST) & (found["lag_first"] > 0) & (found["fell"] == 0)
    stuck = (flat >= LEAST) & ((found["grown"] > 0) | (found["done"] > 0))
    was_stuck = _is(context["previous_status"], QueueStatus.STUCK.value)
    first = found["observations"] == 1
    return {
        QueueRule.CRITICAL: _has(context["critical_finding"]),
        QueueRule.RETENTION_PASSED: known & (distance < 0),
        QueueRule.RETENTION_UNDELIVERED: undelivered & (found["lost"] > 0),
        QueueRule.RETENTION_NEXT: known & is_near & (lag > 0) & (found["start"] < found["end_first"]),
        QueueRule.UNATTENDED: known & deserted & (lag > 0),
        QueueRule.NEVER_ATTENDED: undelivered & deserted & (waiting > 0),
        QueueRule.STUCK: known & (stuck | (was_stuck & (flat > 1))),
        QueueRule.ARCHIVING_STUCK: known & (found["archiving_for"] >= LEAST),
        QueueRule.REJECT_STORM: (archived > acknowledged)
        & (archived >= released)
        & goes_on
        & (found["last_archived"] > 0),
        QueueRule.RELEASE_LOOP: (released > acknowledged) & goes_on & (found["last_released"] > 0),
        QueueRule.ARCHIVED_UNSEEN: unseen,
        QueueRule.LAGGING: known & grows & (found["start"] < found["end_before"]),
        QueueRule.NO_MATCH: _has(context["verdict"]) & ~_is(context["verdict"], Verdict.MATCH.value),
        QueueRule.NO_STATE: ~_has(context["completeness"]),
        QueueRule.NOT_COMPLETE: ~is_complete,
        QueueRule.NOT_INITIALIZED: undelivered & (waiting != 0) & ~first,
        QueueRule.NOT_KNOWN: ~known & ~undelivered,
        QueueRule.REWOUND: known & ((found["back"] > 0) | (found["epochs"] > 0)),
        QueueRule.FIRST_SEEN: known & first & (lag > 0),
        QueueRule.NEVER_DELIVERED: undelivered & (waiting != 0),
        QueueRule.EMPTY: undelivered,
        QueueRule.IDLE: known & (lag == 0) & still,
        QueueRule.OK: np.ones_like(known),
    }


def _is(column: pa.ChunkedArray, value: str) -> BoolArray:
    mask: BoolArray = pc.fill_null(pc.equal(column, value), fill_value=False).to_numpy()
    return mask


def _has(column: pa.ChunkedArray) -> BoolArray:
    mask: BoolArray = column.is_valid().to_numpy()
    return mask


def _numbers(context: pa.Table, name: str, default: int) -> Int64Array:
    numbers: Int64Array = pc.fill_null(context[name].cast(pa.int64()), default).to_numpy().copy()
    return numbers


def _texts(context: pa.Table, observed_at: pa.Array, unseen_at: pa.Array) -> dict[str, pa.Array]:
    """The texts in reasons."""
    members, since = context["members"], pc.coalesce(context["no_members_since"], observed_at)
    counted = pc.binary_join_element_wise(members.cast(pa.string()), "members", " ")
    first = pc.if_else(pc.equal(since, context["first_look_at"]), "the first look, ", "")
    return {
        **{name: context[name] for name in ("completeness", "verdict", "critical_finding")},
        "verdict_reason": pc.fill_null(context["verdict_reason"], ""),
        "members": pc.coalesce(counted, pa.scalar("members not known")),
        "absence": pc.binary_join_element_wise("no members since ", first, _time(since), ""),
        "unseen_at": _time(unseen_at),
    }


def _time(instants: Any) -> Any:
    return pc.strftime(pc.cast(instants, pa.timestamp("s"), safe=False), "%Y-%m-%dT%H:%M:%SZ")


def _reasons(chosen: Int64Array, numbers: _Numbers, texts: Mapping[str, Any], unseen: pa.Array) -> pa.Array:
    """The reason of each row, in the words of its rule."""
    order, is_unseen = np.argsort(chosen, kind="stable"), unseen.to_numpy(zero_copy_only=False)
    found = []
    for number, (rule, (_, template)) in enumerate(RULES.items()):
        rows = np.flatnonzero(chosen == number)
        if len(rows):
            reasons = _text(template, numbers, texts, pa.array(rows))
            if rule not in SAYS_UNSEEN and is_unseen[rows].any():
                longer = pc.binary_join_element_wise(reasons, _text(STILL_UNSEEN, numbers, texts, pa.array(rows)), "")
                reasons = pc.if_else(pa.array(is_unseen[rows]), longer, reasons)
            found.append(reasons)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return pa.concat_arrays([pa.array([], pa.string()), *found]).take(pa.array(places))


def _text(template: str, numbers: _Numbers, texts: Mapping[str, Any], rows: pa.Array) -> pa.Array:
    pieces: list[Any] = []
    for literal, name, _, _ in Formatter().parse(template):
        pieces.append(literal)
        if name is not None and name in texts:
            piece = texts[name].take(rows)
            pieces.append(piece.combine_chunks() if isinstance(piece, pa.ChunkedArray) else piece)
        elif name is not None:
            pieces.append(pa.array(numbers[name]).take(rows).cast(pa.string()))
    if all(isinstance(piece, str) for piece in pieces):
        return pa.repeat("".join(pieces), len(rows))
    return pc.binary_join_element_wise(*pieces, "")
