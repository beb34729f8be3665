"""How the newest observations of share partitions become their statuses, for all of them at once.

The idea is Burrow's (LinkedIn's monitor of consumer groups): a window of the newest observations, and no threshold. The
window is a time, ``WINDOW``: what is older has no colour any more, however often somebody looks. A status is read off
the order of numbers: what moved, what stayed, which of two is greater. The first rule that applies decides; they are in
the order of ``STATUS_TABLE``, worst first.

================  =====================================================================================================
inconsistent      the run has a critical finding about the share partition
retention_risk    the log start is above the start offset (``DeleteRecords`` and the log's retention move it; a leader
                  follows it later), or it moved while nothing of the share partition was ever delivered
retention_risk    a step of the log start as long as the longest one within the window would remove unfinished records,
                  and the group has not finished what was in the log when the window began
unattended        records wait, and the group has no members: unfinished ones, or the whole log where nothing was ever
                  delivered. It needs no second observation
stuck             the start offset stays in the newest observations, at least 3, all with unfinished records, while
                  records above it are finished or the log end moves. It stays stuck until the start offset moves or
                  nothing is unfinished: a pause of the producers is no recovery
archiving_stuck   records are archiving in each of the newest observations, at least 3, and none was archived in between
                  (KIP-1191: the leader writes them to the dead-letter topic first)
reject_storm      within the window more records were archived than acknowledged, and no fewer than released. A record
                  that consumers reject is archived at once
release_loop      within the window more deliveries were released than acknowledged. A record that consumers release, or
                  whose lock ends, is released up to the limit of deliveries, then archived
archived_unseen   more records were archived than acknowledged, that is over, and it has not been acknowledged
lagging           at least 3 observations, all with unfinished records, never fewer than before, and the group has not
                  finished what was in the log one observation ago
state_unknown     the verdict is no match, the newest observation lacks the start offset, an end of the log or the lag,
                  or the replayed state is not complete. What the counts above show is certain nevertheless, and comes
                  first
rewound           the start offset fell or the state epoch rose within the window: a reset
new               the only observation has unfinished records, or none was ever delivered: nothing to compare with
idle              nothing is unfinished, and nothing moved within the window; or the share partition is not initialized
                  and its log is empty
ok                else
================  =====================================================================================================

A storm or a loop is over where the newest observation in which anything ended shows none of it, or where the group has
no members and nothing ended since the observation before. An observation that is not known shows nothing: rules compare
the known ones around it. Counts are those of the delivery history between two observations; the oldest of a first
window counts from the first record on. They are as old as the newest state record, where that is older than the
observation.

Windows are arrays with a row for each share partition and a column for each observation, so that a rule asks all of
them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from string import Formatter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import BoolArray, Int64Array
from acktrail.format.columns.schemas.table_schemas import INSTANT, INT32, INT64, STATUS_WINDOW, STRING, schema
from acktrail.format.columns.share_partition_keys import are_equal
from acktrail.model.queue_status import COUNTED, LEAST, LONGEST, RULES, SAYS_UNSEEN, STILL_UNSEEN, WINDOW, QueueStatus
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
"""What is known beside a window, as of its newest observation: status and time of the judgement before (null: none);
of all others null: not known. `completeness` null: no state was replayed. `critical_finding`: rule and detail of the
worst critical one, null: none. `no_members_since`: the first observation in a row without members, null: it has some.
`lost_records`: removed by the retention before they were finished. `archived_seen`: archived in any exported record.
`unseen_at`: the newest observation at which more was archived than acknowledged, null: somebody has acknowledged
that."""
JUDGED: Final = schema((STRING, "status", "reason"), (INSTANT, "status_since", "unseen_at"), (INT64, *COUNTED))
"""The judgement of each row; `unseen_at` goes into the next one's context. Counts: the sums within the time of the
window, of the observations that have all of them; null: none has."""
MOST: Final = 1 << 58
"""Offsets and counts of a window are below: sums and differences of them fit int64."""

_FIELDS: Final = tuple(STATUS_WINDOW.value_type.names)
_OFFSETS: Final = ("first_unfinished_offset", "log_start_offset", "log_end_offset", "unfinished_records")
_NAMES: Final = pa.array([status.value for status, _ in RULES.values()])
_TEMPLATES: Final = [template for _, template in RULES.values()]
_SAYS_UNSEEN: Final = [place for place, rule in enumerate(RULES) if rule in SAYS_UNSEEN]
_Numbers = dict[str, Int64Array]
TextOf = Callable[[str, pa.Array], pa.Array]
"""What a name stands for in some rows, as texts."""


def judge_windows(windows: pa.Array, context: pa.Table) -> pa.Table:
    """Rows of ``JUDGED``. `windows`: ``STATUS_WINDOW``, none null or empty, as ``newest_windows`` makes them, offsets
    and counts null or from 0 to below ``MOST``. `context`: rows of ``CONTEXT``."""
    shown = _Shown(_Windows(windows))
    found = shown.numbers
    found["archived_seen"] = np.maximum(_numbers(context, "archived_seen", 0), found["all_archived"])
    found["lost"] = _numbers(context, "lost_records", 0)
    found["lost"] = np.where((found["lost"] == 0) & shown.is_known, -found["distance"], found["lost"])
    is_more = (found["newest_archived"] > 0) & (found["all_archived"] > found["all_acknowledged"])
    unseen_at = pc.if_else(pa.array(is_more), shown.observed_at, context["unseen_at"].combine_chunks())
    masks = _masks(shown, context, unseen_at.is_valid().to_numpy(zero_copy_only=False))
    chosen = np.select([masks[rule] for rule in RULES], range(len(RULES)))
    status = _NAMES.take(pa.array(chosen))
    is_same = pc.fill_null(pc.equal(status, context["previous_status"]), fill_value=False)
    text_of = partial(_text_of, found, _texts(context, shown.observed_at, unseen_at))
    is_said = np.isin(chosen, _SAYS_UNSEEN) | ~unseen_at.is_valid().to_numpy(zero_copy_only=False)
    pieces = (rule_reasons(chosen, _TEMPLATES, text_of), rule_reasons(is_said * 1, (STILL_UNSEEN, ""), text_of))
    columns = {
        "status": status,
        "status_since": pc.if_else(is_same, context["previous_since"], shown.observed_at),
        "reason": pc.binary_join_element_wise(*pieces, ""),
        "unseen_at": unseen_at,
        **{name: pa.array(found[name], mask=found["counted_observations"] == 0) for name in COUNTED},
    }
    return pa.table(columns, schema=JUDGED)


def newest_windows(before: pa.Array, newest: pa.StructArray) -> pa.Array:
    """``STATUS_WINDOW``: the observations that matter of each window of `before` (null: none), and `newest` of the same
    row behind them: those within ``WINDOW``, and the newest ``LEAST``. Of more than ``LONGEST`` the one between the two
    that are closest leaves its counts to the next one, which is never the newest."""
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
        self.is_counted = np.logical_and.reduce([self.known[name] for name in COUNTED])
        self.counts = {name: np.where(self.is_counted, self.values[name], 0) for name in COUNTED}


class _Shown:
    """What `windows` show: `numbers` by the names of ``RULES``, and what rules ask besides, each of shape (rows,)."""

    def __init__(self, windows: _Windows) -> None:
        values, known = windows.values, windows.known
        has_offsets = np.logical_and.reduce([known[name] for name in _OFFSETS])
        self.numbers = {
            **_counted(windows),
            **_moved(windows, has_offsets),
            "observations": windows.has.sum(1),
            "waiting": (values["log_end_offset"] - values["log_start_offset"])[:, -1],
        }
        self.is_known = has_offsets[:, -1]
        self.is_started = known["first_unfinished_offset"][:, -1]
        self.has_ends = (known["log_start_offset"] & known["log_end_offset"])[:, -1]
        self.observed_at = pa.array(values["observed_at"][:, -1]).cast(INSTANT)


def _counted(windows: _Windows) -> _Numbers:
    """Records that were finished: within the time of a window, in all its observations (`all_`), in the newest one that
    has any (`last_`), and in the newest one (`newest_`); and records that wait to be archived."""
    values, known, counts = windows.values, windows.known, windows.counts
    at = np.where(known["recorded_at"], values["recorded_at"], values["observed_at"])
    recent = np.minimum(at, values["observed_at"]) > values["observed_at"][:, -1:] - WINDOW
    ended = _newest(recent & np.logical_or.reduce([count > 0 for count in counts.values()]))
    is_archiving = known["archiving_records"] & (values["archiving_records"] > 0)
    begun = _newest(~(is_archiving & known["archived"] & (values["archived"] == 0)))  # the one after it waited longer
    return {
        **{name: np.where(recent, count, 0).sum(1) for name, count in counts.items()},
        **{f"all_{name}": count.sum(1) for name, count in counts.items()},
        **{f"last_{name}": _at(count, ended) for name, count in counts.items()},
        **{f"newest_{name}": count[:, -1] for name, count in counts.items()},
        "counted_observations": (recent & windows.is_counted).sum(1),
        "is_counted": windows.is_counted[:, -1].astype(np.int64),
        "archiving": np.where(is_archiving, values["archiving_records"], 0)[:, -1],
        "archiving_for": is_archiving.shape[1] - 1 - begun + _at(is_archiving, begun),
    }


def _moved(windows: _Windows, known: BoolArray) -> _Numbers:
    """How offsets moved from one observation where they are `known` to the next one; `flat`: the newest observations in
    a row with a lag and one start offset."""
    values, columns = windows.values, np.arange(known.shape[1])
    start, log_start, log_end, lag = (values[name] for name in _OFFSETS)
    before, later = _before(known), known & (_before(known) >= 0)
    start_before, log_start_before, log_end_before, lag_before = (
        np.take_along_axis(each, np.maximum(before, 0), axis=1) for each in (start, log_start, log_end, lag)
    )
    has_epoch, epoch = known & windows.known["state_epoch"], values["state_epoch"]
    epoch_before = _before(has_epoch)
    gained = epoch - np.take_along_axis(epoch, np.maximum(epoch_before, 0), axis=1)
    first, newest = np.where(known.any(1), known.argmax(1), -1), _newest(known)
    begun = _newest(known & (lag > 0) & ~(later & (lag_before > 0) & (start == start_before)))
    is_flat, behind = _at(lag, newest) > 0, columns > begun[:, np.newaxis]
    finished = windows.counts["acknowledged"] + windows.counts["archived"]
    return {
        "known": known.sum(1),
        "start": _at(start, newest),
        "log_start": log_start[:, -1],
        "log_end": _at(log_end, newest),
        "lag": _at(lag, newest),
        "distance": _at(start, newest) - _at(log_start, newest),
        "lag_first": _at(lag, first),
        "end_first": _at(log_end, first),
        "end_before": _at(np.where(later, log_end_before, 0), newest),
        "moved": (later & ((start != start_before) | (log_end != log_end_before))).any(1).astype(np.int64),
        "fell": (later & (lag < lag_before)).any(1).astype(np.int64),
        "step": _most(later, log_start - log_start_before),
        "back": _most(later, start_before - start),
        "epochs": _most(has_epoch & (epoch_before >= 0), gained),
        "flat": np.where(is_flat, (known & behind).sum(1) + 1, 0),
        "grown": np.where(is_flat, _at(log_end, newest) - _at(log_end, begun), 0),
        "done": np.where(is_flat, np.where(behind, finished, 0).sum(1), 0),
    }


def _newest(mask: BoolArray) -> Int64Array:
    """The last column of each row where `mask` holds; -1: none."""
    return np.where(mask.any(1), mask.shape[1] - 1 - mask[:, ::-1].argmax(1), -1)


def _before(mask: BoolArray) -> Int64Array:
    """For each place of a row the last column before it where `mask` holds; -1: none."""
    newest = np.maximum.accumulate(np.where(mask, np.arange(mask.shape[1]), -1), axis=1)
    return np.insert(newest[:, :-1], 0, -1, axis=1)


def _at(values: npt.NDArray[Any], column: Int64Array) -> Int64Array:
    """The value of each row in its `column`; 0 where that is -1."""
    return np.where(column < 0, 0, values[np.arange(len(values)), column])


def _most(mask: BoolArray, numbers: Int64Array) -> Int64Array:
    most: Int64Array = np.where(mask, numbers, 0).max(1, initial=0)
    return most


def _masks(shown: _Shown, context: pa.Table, unseen: BoolArray) -> dict[str, BoolArray]:
    """The rows where each rule applies, if none before it does."""
    found = shown.numbers
    is_complete = are_equal(context["completeness"], Completeness.COMPLETE.value)
    known = shown.is_known & is_complete
    undelivered = is_complete & ~shown.is_started & shown.has_ends
    lag, flat, step, distance = (found[name] for name in ("lag", "flat", "step", "distance"))
    acknowledged, released, archived = (found[name] for name in COUNTED)
    waiting, deserted = found["waiting"], _numbers(context, "members", -1) == 0
    is_near = (distance >= 0) & (distance <= step) & (step > 0)
    still = (found["moved"] == 0) & (acknowledged == 0) & (released == 0) & (archived == 0)
    nothing = np.logical_and.reduce([found[f"newest_{name}"] == 0 for name in COUNTED]) & (found["is_counted"] > 0)
    goes_on = ~(deserted & nothing)
    grows = (found["known"] >= LEAST) & (found["lag_first"] > 0) & (found["fell"] == 0)
    stuck = (flat >= LEAST) & ((found["grown"] > 0) | (found["done"] > 0))
    was_stuck = are_equal(context["previous_status"], QueueStatus.STUCK.value)
    first = found["observations"] == 1
    return {
        "critical": _has(context["critical_finding"]),
        "retention_passed": known & (distance < 0),
        "retention_undelivered": undelivered & (found["lost"] > 0),
        "retention_next": known & is_near & (lag > 0) & (found["start"] < found["end_first"]),
        "unattended": known & deserted & (lag > 0),
        "never_attended": undelivered & deserted & (waiting > 0),
        "stuck": known & (stuck | (was_stuck & (flat > 1))),
        "archiving_stuck": known & (found["archiving_for"] >= LEAST),
        "reject_storm": (archived > acknowledged) & (archived >= released) & goes_on & (found["last_archived"] > 0),
        "release_loop": (released > acknowledged) & goes_on & (found["last_released"] > 0),
        "archived_unseen": unseen,
        "lagging": known & grows & (found["start"] < found["end_before"]),
        "no_match": _has(context["verdict"]) & ~are_equal(context["verdict"], Verdict.MATCH.value),
        "no_state": ~_has(context["completeness"]),
        "not_complete": ~is_complete,
        "not_initialized": undelivered & (waiting != 0) & ~first,
        "not_known": ~known & ~undelivered,
        "rewound": known & ((found["back"] > 0) | (found["epochs"] > 0)),
        "first_seen": known & first & (lag > 0),
        "never_delivered": undelivered & (waiting != 0),
        "empty": undelivered,
        "idle": known & (lag == 0) & still,
        "ok": np.ones_like(known),
    }


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
    return pc.strftime(pc.cast(instants, pa.timestamp("s"), safe=False), "%Y-%m-%d %H:%M:%S UTC")


def _text_of(numbers: _Numbers, texts: dict[str, Any], name: str, rows: pa.Array) -> pa.Array:
    if name not in texts:
        return pa.array(numbers[name]).take(rows).cast(pa.string())
    found = texts[name].take(rows)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


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
