"""How the newest observations of share partitions become their statuses, for all of them at once.

The idea is Burrow's (LinkedIn's monitor of consumer groups): a window of the newest observations, and no threshold. The
window is a time, ``WINDOW``: what is older has no colour any more, however often somebody looks. A status is read off
the order of numbers: what moved, what stayed, which of two is greater. The first rule that applies decides; they are in
the order of ``STATUS_TABLE``, worst first: what is lost for good comes before what waits (docs/reference/statuses.md).

Unfinished records rise where more than three quarters of all pairs of observations do (Kendall's rank correlation above
one half): one dip changes nothing. A group was seen to keep up where nothing is unfinished; or where they do not rise,
and either all that was in the log one observation ago is finished and no more is unfinished than then; or their
number fell twice from one as high as now, with all that was in the log then finished (it falls once where the producer
pauses), and the lowest number of the newer half is not above that of the older one.

A storm or a loop is over where the newest observation in which anything ended shows none of it, or where the group has
no members and nothing ended since the observation before. Rules compare the known observations around one that is not
known. Counts are those of the delivery history between two observations, as old as the newest state record where that
is older; the oldest of a first window counts from the first record on. A rule asks all share partitions at once.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import (
    BoolArray,
    Int64Array,
    column_before,
    each_text,
    newest_column,
    rule_reasons,
    value_at,
)
from acktrail.format.columns.schemas.table_schemas import BOOL, INSTANT, INT32, INT64, STATUS_WINDOW, STRING, schema
from acktrail.format.columns.share_partition_keys import are_equal
from acktrail.model.queue_status import COUNTED, LEAST, LOST, MAYBE_NO_RECORDS, RULES, SAYS_LOST, WINDOW, QueueStatus
from acktrail.model.reconciliation import Completeness, Verdict
from acktrail.replay.time_buckets import MOST

CONTEXT: Final = schema(
    (STRING, "previous_status"),
    (INSTANT, "previous_since"),
    (STRING, "completeness", "verdict", "verdict_reason", "critical_finding", "place", "offset_reset"),
    (BOOL, "archived_unclear"),
    (INT32, "members", "max_delivery_count", "delivery_count_limit"),
    (INSTANT, "first_look_at", "no_members_since"),
    (INT64, "removed_now", *LOST),
    (INSTANT, "unseen_at"),
)
"""What is known beside a window, as of its newest observation: status and time of the judgement before (null: none);
of all others null: not known. `completeness` null: no state was replayed. `critical_finding`: rule and detail of the
worst critical one, null: none. `place`: topic and partition, for people. `offset_reset`: where the group begins
(``share.auto.offset.reset``). `no_members_since`: the first observation in a row without members, null: it has some.
`removed_now`: unfinished records below the log start. ``LOST``: records that were archived, removed by the retention
unfinished, and skipped by a reset, ever; `archived_unclear`: archived offsets may be no records. `unseen_at`: the
newest observation that showed a loss; null: somebody has acknowledged all."""
JUDGED: Final = schema((STRING, "status", "reason"), (INSTANT, "status_since"), (INT64, *COUNTED))
"""The judgement of each row. Counts: the sums within the time of the window, of the observations that have all of them;
null: none has."""

_FIELDS: Final = tuple(STATUS_WINDOW.value_type.names)
_OFFSETS: Final = ("first_unfinished_offset", "log_start_offset", "log_end_offset", "unfinished_records")
_NAMES: Final = pa.array([status.value for status, _ in RULES.values()])
_TEMPLATES: Final = [template for _, template in RULES.values()]
_SAYS_LOST: Final = [place for place, rule in enumerate(RULES) if rule in SAYS_LOST]
_Numbers = dict[str, Int64Array]
_BEGINNINGS: Final = {"latest": "end", "earliest": "start"}
_PAUSE: Final = WINDOW // 3
"""How long consumers may finish nothing before they are called stuck, in µs: many work in batches."""
_OFTEN: Final = 2
"""How often unfinished records must have fallen from as high as now: they fall once where the producer pauses."""
_MINUTE_S: Final = 60
_HOURS_S: Final = 2 * 3600


def judge_windows(windows: pa.Array, context: pa.Table) -> pa.Table:
    """Rows of ``JUDGED``. `windows`: ``STATUS_WINDOW``, none null or empty, as ``newest_windows`` makes them, offsets
    and counts null or from 0 to below ``MOST``. `context`: rows of ``CONTEXT``."""
    shown = _Shown(_Windows(windows))
    found = shown.numbers
    found |= {name: _numbers(context, name, 0) for name in (*LOST, "removed_now", "max_delivery_count")}
    found["archived_seen"] = np.maximum(found["archived_seen"], found["all_archived"])
    below = np.where(shown.is_known, -found["distance"], 0)
    found["removed_now"] = np.where(found["removed_now"] == 0, below, found["removed_now"])
    is_unseen = _has(context["unseen_at"])
    masks = _masks(shown, context, is_unseen)
    chosen = np.select([masks[rule] for rule in RULES], range(len(RULES)))
    status = _NAMES.take(pa.array(chosen))
    is_same = pc.fill_null(pc.equal(status, context["previous_status"]), fill_value=False)
    since = pc.if_else(is_same, context["previous_since"], shown.observed_at)
    text_of = partial(_text_of, found, _texts(shown, context))
    is_said = np.isin(chosen, _SAYS_LOST) | ~is_unseen
    pieces = (rule_reasons(chosen, _TEMPLATES, text_of), rule_reasons(is_said * 1, (". {losses}", ""), text_of))
    columns = {
        "status": status,
        "status_since": since,
        "reason": pc.binary_join_element_wise(*pieces, ""),
        **{name: pa.array(found[name], mask=found["counted_observations"] == 0) for name in COUNTED},
    }
    return pa.table(columns, schema=JUDGED)


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
            "came": values["log_end_offset"][:, -1]
            - value_at(values["log_end_offset"], _places(known["log_end_offset"])["first"]),
        }
        self.is_known = has_offsets[:, -1]
        self.is_started = known["first_unfinished_offset"][:, -1]
        self.has_ends = (known["log_start_offset"] & known["log_end_offset"])[:, -1]
        self.observed_at = pa.array(values["observed_at"][:, -1]).cast(INSTANT)
        self.times = {name: value_at(values["observed_at"], place) for name, place in _places(has_offsets).items()}
        self.times |= {
            "now": values["observed_at"][:, -1],
            "flat": value_at(values["observed_at"], self.numbers["begun"]),
        }


def _counted(windows: _Windows) -> _Numbers:
    """Records that were finished: within the time of a window, in all its observations (`all_`), in the newest one that
    has any (`last_`), and in the newest one (`newest_`); and records that wait to be archived."""
    values, known, counts = windows.values, windows.known, windows.counts
    at = np.where(known["recorded_at"], values["recorded_at"], values["observed_at"])
    recent = np.minimum(at, values["observed_at"]) > values["observed_at"][:, -1:] - WINDOW
    ended = newest_column(recent & np.logical_or.reduce([count > 0 for count in counts.values()]))
    is_archiving = known["archiving_records"] & (values["archiving_records"] > 0)
    waits_longer = is_archiving & known["archived"] & (values["archived"] == 0)
    begun = newest_column(~waits_longer)
    return {
        **{name: np.where(recent, count, 0).sum(1) for name, count in counts.items()},
        **{f"all_{name}": count.sum(1) for name, count in counts.items()},
        **{f"last_{name}": value_at(count, ended) for name, count in counts.items()},
        **{f"newest_{name}": count[:, -1] for name, count in counts.items()},
        "counted_observations": (recent & windows.is_counted).sum(1),
        "is_counted": windows.is_counted[:, -1].astype(np.int64),
        "archiving": np.where(is_archiving, values["archiving_records"], 0)[:, -1],
        "archiving_for": is_archiving.shape[1] - 1 - begun + value_at(is_archiving, begun),
    }


def _moved(windows: _Windows, known: BoolArray) -> _Numbers:
    """How offsets moved from one observation where they are `known` to the next one; `flat`: the newest observations in
    a row with a lag and one start offset, from column `begun` + 1 on; `pause`: the longest such row before."""
    values, columns = windows.values, np.arange(known.shape[1])
    start, log_start, log_end, lag = (values[name] for name in _OFFSETS)
    before, later = column_before(known), known & (column_before(known) >= 0)
    start_before, log_start_before, log_end_before, lag_before = (
        np.take_along_axis(each, np.maximum(before, 0), axis=1) for each in (start, log_start, log_end, lag)
    )
    has_epoch, epoch = known & windows.known["state_epoch"], values["state_epoch"]
    epoch_before = column_before(has_epoch)
    gained = epoch - np.take_along_axis(epoch, np.maximum(epoch_before, 0), axis=1)
    places = _places(known)
    stays = later & (lag > 0) & (lag_before > 0) & (start == start_before)
    begun = newest_column(known & (lag > 0) & ~stays)
    is_flat, behind = value_at(lag, places["newest"]) > 0, columns > begun[:, np.newaxis]
    finished = windows.counts["acknowledged"] + windows.counts["archived"]
    return {
        "known": known.sum(1),
        **{f"start_{name}": value_at(start, place) for name, place in places.items()},
        **{f"end_{name}": value_at(log_end, place) for name, place in places.items()},
        **{f"lag_{name}": value_at(lag, place) for name, place in places.items()},
        "start": value_at(start, places["newest"]),
        "lag": value_at(lag, places["newest"]),
        "log_start": log_start[:, -1],
        "log_end": value_at(log_end, places["newest"]),
        "distance": value_at(start, places["newest"]) - value_at(log_start, places["newest"]),
        "moved": (later & ((start != start_before) | (log_end != log_end_before))).any(1).astype(np.int64),
        "step": _most(later, log_start - log_start_before),
        "back": _most(later, start_before - start),
        "epochs": _most(has_epoch & (epoch_before >= 0), gained),
        "begun": begun,
        "flat": np.where(is_flat, (known & behind).sum(1) + 1, 0),
        "pause": _longest(known, stays, begun),
        "grown": np.where(is_flat, value_at(log_end, places["newest"]) - value_at(log_end, begun), 0),
        "done": np.where(is_flat, np.where(behind, finished, 0).sum(1), 0),
        **_trend(known, start, log_end, lag),
    }


def _places(known: BoolArray) -> dict[str, Int64Array]:
    """Columns of the oldest observation where it is `known`, of the newest one, and of the one before that (where there
    is no other: the newest); -1: none."""
    newest = newest_column(known)
    before = np.take_along_axis(column_before(known), np.maximum(newest, 0)[:, None], 1)[:, 0]
    first = np.where(known.any(1), known.argmax(1), -1)
    return {"first": first, "before": np.where(before < 0, newest, before), "newest": newest}


def _longest(known: BoolArray, stays: BoolArray, begun: Int64Array) -> Int64Array:
    """Of consecutive observations before column `begun` with a lag and the same start offset, the largest number."""
    longest, length = np.zeros(len(known), np.int64), np.zeros(len(known), np.int64)
    for column in range(known.shape[1]):
        length = np.where(stays[:, column], length + 1, np.where(known[:, column], 1, length))
        longest = np.where(column < begun, np.maximum(longest, length), longest)
    return longest


def _trend(known: BoolArray, start: Int64Array, end: Int64Array, lag: Int64Array) -> _Numbers:
    """Whether unfinished records rise, and whether the group was seen to keep up (see above); the median of the lag."""
    newest, older = newest_column(known), known & (np.cumsum(known, 1) * 2 <= known.sum(1)[:, np.newaxis])
    pairs = known[:, :, np.newaxis] & known[:, np.newaxis, :] & np.triu(np.ones((known.shape[1],) * 2, np.bool_), 1)
    steps = np.where(pairs, np.sign(lag[:, np.newaxis, :] - lag[:, :, np.newaxis]), 0).sum((1, 2))
    rises = (2 * steps > pairs.sum((1, 2))) & known.any(1)
    own_start, own_lag = (value_at(each, newest)[:, np.newaxis] for each in (start, lag))
    low = np.where(known & ~older, lag, MOST).min(1, initial=MOST) <= np.where(older, lag, MOST).min(1, initial=MOST)
    before = column_before(known)
    lag_before, end_before = (np.take_along_axis(each, np.maximum(before, 0), axis=1) for each in (lag, end))
    falls = known & (before >= 0) & (lag < lag_before) & (lag_before >= own_lag) & (end_before <= own_start)
    places = _places(known)
    turned = (places["before"] < newest) & (own_start[:, 0] >= value_at(end, places["before"]))
    sums = np.sort(np.where(known, lag, MOST), 1)
    middle = np.maximum(known.sum(1) - 1, 0) // 2
    rank, count = np.cumsum(known, 1), known.sum(1)
    older_end = value_at(end, np.where(count > LEAST, (rank == (count - LEAST)[:, np.newaxis]).argmax(1), -1))
    median = np.where(known.any(1), sums[np.arange(len(sums)), middle], 0)
    turned &= own_lag[:, 0] <= value_at(lag, places["before"])
    keeps_up = (own_lag[:, 0] == 0) | (~rises & (turned | (low & (falls.sum(1) >= _OFTEN))))
    return {
        "rises": rises.astype(np.int64),
        "is_old": (own_start[:, 0] < older_end).astype(np.int64),
        "keeps_up": keeps_up.astype(np.int64),
        "median": median,
    }


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
    members = _numbers(context, "members", -1)
    waits, deserted = undelivered & (found["waiting"] > 0), members == 0
    at_end = undelivered & are_equal(context["offset_reset"], "latest")
    is_near = (distance >= 0) & (distance <= step) & (step > 0)
    still = (found["moved"] == 0) & (acknowledged == 0) & (released == 0) & (archived == 0)
    nothing = np.logical_and.reduce([found[f"newest_{name}"] == 0 for name in COUNTED]) & (found["is_counted"] > 0)
    goes_on, come_back = ~(deserted & nothing), (found["max_delivery_count"] > 1) | (archived > 0)
    was = {status: are_equal(context["previous_status"], status) for status in (QueueStatus.STUCK, QueueStatus.LAGGING)}
    first_look = pc.coalesce(context["first_look_at"], shown.observed_at).cast(pa.int64()).to_numpy()
    absent_since = pc.coalesce(context["no_members_since"], shown.observed_at).cast(pa.int64()).to_numpy()
    # Consumers that restart are away for a moment: one observation without members, after others, says nothing.
    left = deserted & ((absent_since < shown.times["now"]) | (absent_since <= first_look))
    paused, seen_for = (shown.times["now"] - times for times in (shown.times["flat"], first_look))
    is_long = (flat > found["pause"]) & (paused >= _PAUSE)
    stuck = (flat >= LEAST) & ((found["done"] > 0) | is_long)
    more = (lag > found["lag_first"]) & (lag > found["median"])
    came = found["log_end"] - found["end_before"]
    rises = (found["rises"] > 0) & (lag >= found["lag_before"]) & (lag - found["lag_before"] < came)
    return {
        "critical": _has(context["critical_finding"]),
        "retention_passed": known & (distance < 0),
        "retention_undelivered": undelivered & ~at_end & (found["lost_records"] > 0) & unseen,
        "retention_next": known & is_near & (lag > 0) & (found["start"] < found["end_first"]),
        "reject_storm": (archived > acknowledged) & (archived >= released) & goes_on & (found["last_archived"] > 0),
        "archiving_stuck": known & (found["archiving_for"] >= LEAST),
        "release_loop": (released > acknowledged) & goes_on & (found["last_released"] > 0) & come_back,
        "stuck": known & ~deserted & (stuck | (was[QueueStatus.STUCK] & (flat > 1))),
        "never_finished": waits & ~at_end & (members > 0) & (found["observations"] >= LEAST) & (seen_for >= _PAUSE),
        "unattended": known & left & (lag > 0),
        "never_attended": waits & left & ~at_end,
        "loss_unseen": unseen,
        "lagging": known & more & (((found["is_old"] > 0) & rises) | was[QueueStatus.LAGGING]),
        "no_match": _has(context["verdict"]) & ~are_equal(context["verdict"], Verdict.MATCH.value),
        "not_complete": _has(context["completeness"]) & ~is_complete,
        "not_known": is_complete & ~known & ~undelivered,
        "rewound": known & ((found["back"] > 0) | (found["epochs"] > 0)),
        "joined_late": ~_has(context["completeness"]),
        "first_seen": known & (found["observations"] == 1) & (lag > 0),
        "rising": known & (found["keeps_up"] == 0) & (found["rises"] > 0),
        "not_judged": known & ((found["keeps_up"] == 0) | (deserted & (lag > 0))),
        "not_finished_yet": waits & ~(at_end & (deserted | (found["came"] == 0))),
        "at_log_end": waits,
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


def _texts(shown: _Shown, context: pa.Table) -> dict[str, pa.Array]:
    """The texts in reasons."""
    since = pc.coalesce(context["no_members_since"], shown.observed_at)
    now = shown.times["now"]
    doubt = pc.if_else(pc.fill_null(context["archived_unclear"], fill_value=False), MAYBE_NO_RECORDS, "")
    return {
        **{name: context[name] for name in ("completeness", "verdict", "critical_finding")},
        "verdict_reason": pc.fill_null(context["verdict_reason"], ""),
        "place": pc.fill_null(context["place"], "it"),
        "members": each_text(_members, context["members"]),
        "begins": each_text(_begins, context["offset_reset"]),
        "limit": each_text(_limit, context["delivery_count_limit"]),
        "absent_since": _time(since),
        "first_look": _time(context["first_look_at"]),
        "flat_since": _time(pa.array(shown.times["flat"]).cast(INSTANT)),
        "unseen_at": _time(context["unseen_at"]),
        **{f"{name}_ago": each_text(_span, pa.array(now - shown.times[name])) for name in ("first", "before")},
        "doubt": doubt,
        "losses": _losses(shown.numbers, doubt),
    }


def _members(count: int | None) -> str:
    return "members not known" if count is None else f"{count} member{'' if count == 1 else 's'}"


def _begins(reset: str | None) -> str:
    """Where a group begins that nothing was delivered to."""
    if reset in _BEGINNINGS:
        return f"at the log {_BEGINNINGS[reset]} (`{reset}`)"
    return f"where share.auto.offset.reset says ({'not known' if reset is None else reset})"


def _limit(limit: int | None) -> str:
    return "" if limit is None else f" (limit {limit})"


def _span(us: int) -> str:
    """A time in µs by its largest unit: ``11 min``."""
    seconds = us // 1_000_000
    if seconds < _MINUTE_S:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < _HOURS_S else f"{seconds // 3600} h"


def _losses(numbers: _Numbers, doubt: pa.ChunkedArray) -> pa.Array:
    """What was lost for good, in one sentence."""
    columns = zip(*(numbers[name].tolist() for name in LOST), strict=True)
    hows = ([f"archived{own}", *[*LOST.values()][1:]] for own in doubt.to_pylist())
    said = [
        ", ".join(f"{count:,} {how}" for count, how in zip(row, own, strict=True) if count)
        for row, own in zip(columns, hows, strict=True)
    ]
    return pa.array([f"Permanently lost: {each}. No one has acknowledged this yet" for each in said], pa.string())


def _time(instants: Any) -> Any:
    return pc.strftime(pc.cast(instants, pa.timestamp("s"), safe=False), "%Y-%m-%d %H:%M:%S UTC")


def _text_of(numbers: _Numbers, texts: dict[str, Any], name: str, rows: pa.Array) -> pa.Array:
    if name not in texts:
        return pa.array(numbers[name]).take(rows)
    found = texts[name].take(rows)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
