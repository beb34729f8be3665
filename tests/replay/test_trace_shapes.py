"""Queues of many shapes, second by second, and what their statuses say: a healthy one is never called sick, a sick one
never ok. What is true stands in the producer's and the consumer's own logs, those of the time to come included."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from acktrail.format.columns.schemas.table_schemas import STATUS_WINDOW
from acktrail.model.queue_status import STATUS_TABLE, QueueStatus, Urgency
from acktrail.replay.time_buckets import newest_windows
from acktrail_jobs.statuses.status_rules import CONTEXT, judge_windows

SECONDS: Final = 90 * 60
FROM: Final = 4
"""The first observation, counted from 1, at which a status is held to the truth."""
SICK: Final = {
    "overload": 0,
    "slow_drift": 0,
    "bursts_beyond_the_capacity": 900,
    "pause_then_bursts": 0,
    "capacity_halves": 40 * 60,
    "hung": 40 * 60,
    "blocked_head": 40 * 60,
}
"""Shapes that do not keep up, and the second from which on."""
SLOW: Final = "slow_drift"
"""Rises by less between two observations than is finished: no observation can tell it from bursts."""
Rates = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""Records written in each second, and the most that consumers finish in it."""


def every(period: int, length: int, amount: float, *, shift: int = 0) -> np.ndarray[Any, Any]:
    """`amount` in each of the first `length` seconds of each period."""
    return np.where((np.arange(SECONDS) + shift) % period < length, amount, 0.0)


def flat(amount: float) -> np.ndarray[Any, Any]:
    return np.full(SECONDS, float(amount))


def shapes(random: np.random.Generator) -> dict[str, Rates]:
    seconds, shift = np.arange(SECONDS), int(random.integers(0, 600))
    noise = random.poisson(20, SECONDS).astype(float)
    batch = np.where((seconds >= 900) & (seconds < 960), 300.0, 2.0)
    halved, hung = np.where(seconds < 40 * 60, 40.0, 12.0), np.where(seconds < 40 * 60, 40.0, 0.0)
    issue = np.where(seconds < 240, 6.0, np.where(seconds < 420, 0.0, every(180, 30, 30.0)))
    return {
        "steady": (flat(20), flat(60)),
        "noise": (noise, flat(30)),
        "short_bursts": (every(60, 5, 100.0, shift=shift), flat(25)),
        "long_bursts": (every(600, 20, 150.0, shift=shift), flat(10)),
        "saw_tooth": (20.0 + ((seconds + shift) % 300) / 30, flat(40)),
        "nightly_batch": (batch, flat(20)),
        "stop_and_go": (flat(5), every(420, 180, 60.0, shift=shift)),
        "restart": (flat(10), np.where((seconds > 1500) & (seconds < 1620), 0.0, 40.0)),
        "producer_pauses": (every(900, 450, 20.0, shift=shift), flat(30)),
        "catching_up": (np.where(seconds < 5, 4000.0, 5.0), flat(20)),
        "idle": (flat(0), flat(10)),
        "overload": (flat(30), flat(15)),
        "slow_drift": (flat(20.5), flat(20)),
        "bursts_beyond_the_capacity": (every(300, 20, 150.0, shift=shift), flat(6)),
        "pause_then_bursts": (issue, flat(2)),
        "capacity_halves": (flat(20), halved),
        "hung": (flat(20), hung),
        "blocked_head": (flat(20), flat(60)),
    }


def logs(rates: Rates) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """How many records were written and finished up to each second."""
    written = np.floor(np.cumsum(rates[0])).astype(np.int64)
    finished, done = np.zeros(SECONDS), 0.0
    for second, (end, capacity) in enumerate(zip(written.tolist(), rates[1].tolist(), strict=True)):
        done = min(float(end), done + capacity)
        finished[second] = done
    return written, np.floor(finished).astype(np.int64)


def observations(name: str, rates: Rates, looks: list[int]) -> Iterator[dict[str, Any]]:
    written, finished = logs(rates)
    blocked = finished[SICK["blocked_head"]] if name == "blocked_head" else None
    before = 0
    for look in looks:
        end, done = int(written[look]), int(finished[look])
        is_blocked = blocked is not None and look > SICK["blocked_head"]
        start, lag = (int(blocked or 0), end - done + 1) if is_blocked else (done, end - done)
        counts = {"acknowledged": done - before, "released": 0, "archived": 0}
        before = done
        offsets = {"first_unfinished_offset": start, "log_start_offset": 0, "log_end_offset": end}
        at = dt.datetime.fromtimestamp(1_800_000_000 + look, dt.UTC)
        yield {
            "observed_at": at,
            "recorded_at": at,
            **offsets,
            "unfinished_records": lag,
            "archiving_records": 0,
            **counts,
        }


def statuses(traces: dict[str, Rates], looks: list[int]) -> dict[str, list[QueueStatus]]:
    """The status of each shape at each observation, all shapes side by side."""
    rows = [list(observations(name, rates, looks)) for name, rates in traces.items()]
    windows, context = pa.nulls(len(rows), STATUS_WINDOW), [{} for _ in rows]
    found: dict[str, list[QueueStatus]] = {name: [] for name in traces}
    own = {"completeness": "complete", "verdict": "match", "members": 1, "offset_reset": "earliest"}
    for number in range(len(looks)):
        newest = pa.array([row[number] for row in rows], STATUS_WINDOW.value_type)
        windows = newest_windows(windows, newest)
        asked = pa.Table.from_pylist([{**own, **each} for each in context], schema=CONTEXT)
        judged = judge_windows(windows, asked).to_pylist()
        context = [{"previous_status": row["status"], "previous_since": row["status_since"]} for row in judged]
        for name, row in zip(traces, judged, strict=True):
            found[name].append(QueueStatus(row["status"]))
    return found


def test_the_truth_of_each_shape() -> None:
    """By its own logs: what is unfinished of a healthy one is finished in a later third, of a sick one it never is."""
    for name, rates in shapes(np.random.default_rng(0)).items():
        written, finished = logs(rates)
        lag = written - finished
        rises = lag[-SECONDS // 6 :].min() > np.median(lag[: SECONDS // 3])
        assert rises == (name in SICK and name != "blocked_head"), name


@settings(max_examples=4, deadline=None)
@given(st.integers(40, 200), st.integers(0, 60), st.integers(0, 2**16))
def test_no_healthy_queue_is_called_sick_and_no_sick_one_ok(pause: int, first: int, seed: int) -> None:
    """However far apart the looks are, and wherever they begin; what does not keep up is named before the end."""
    random = np.random.default_rng(seed)
    looks = np.cumsum([60 + first, *random.integers(pause, pause + pause // 4 + 2, SECONDS // pause)]).tolist()
    looks = [look for look in looks if look < SECONDS]
    for name, found in statuses(shapes(random), looks).items():
        if name not in SICK:
            bad = [status for status in found[FROM - 1 :] if STATUS_TABLE[status].urgency is not Urgency.NOTHING]
            assert not bad, (name, pause, found)
            assert {QueueStatus.OK, QueueStatus.IDLE} & {*found}, (name, pause, found)
            continue
        later = [status for look, status in zip(looks, found, strict=True) if look > SICK[name]][FROM - 1 :]
        assert QueueStatus.OK not in later, (name, pause, found)
        if name != SLOW and len(later) > FROM:
            assert {QueueStatus.LAGGING, QueueStatus.STUCK} & {*later}, (name, pause, found)
