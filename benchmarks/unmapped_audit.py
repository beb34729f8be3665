"""The audit of groups in a topic whose mapping of keys is not known: every new partition waits for every old one.

`python unmapped_audit.py OLD NEW GROUPS READINGS MODELLED` is the process that is measured.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from table import Row

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from definitions.group_series import AuditedDependency, GroupReading, audit_group  # the plain law, as the tests have it

from acktrail.columnar.expansion.dependency_verdicts import VERDICTS
from acktrail.columnar.expansion.ordering_columns import audit_topic
from acktrail.columnar.expansion.position_matrix import AuditedExpansion, AuditedTopic
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.ordering import ExpansionFence

_Ints = npt.NDArray[np.int64]
_HOUR_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Width:
    """One topic that gained partitions once, and the groups that read all of it, each at so many readings. `modelled`:
    destinations of the first group that the plain law judges as well."""

    old_count: int
    new_count: int
    groups: int = 10
    readings: int = 48
    modelled: int = 0


WIDTHS = (Width(200, 400, modelled=200), Width(2_000, 4_000, modelled=2), Width(5_000, 10_000, modelled=1))


def compare(widths: tuple[Width, ...] = WIDTHS) -> list[Row]:
    """The table's rows: CPU time of the audit in a process of its own, and of the plain law for as many pairs; both
    must say the same of the destinations that are modelled."""
    return [_row(width) for width in widths]


def _row(width: Width) -> Row:
    command = [sys.executable, __file__, *map(str, astuple(width))]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    pairs = width.groups * width.old_count * (width.new_count - width.old_count)
    plain_s = found["plain_s"] / (width.modelled * width.old_count) * pairs
    return Row(
        what=f"{width.old_count:,} to {width.new_count:,}, {width.groups} groups: {pairs / 1e6:,.1f} M dependencies",
        ours=f"{found['cpu_s']:.2f} s CPU, peak {found['peak_mb']:,.0f} MB",
        beside=f"the model, pair by pair: {plain_s:,.0f} s CPU",
        ratio=f"{plain_s / found['cpu_s']:,.0f}x less CPU",
    )


def _measure(width: Width) -> dict[str, float]:
    topic, positions, at = _topic(width)
    begun = time.process_time()
    verdicts: dict[int, str] = {}
    for name, rows in audit_topic(topic, 0, positions, at):
        if name == "ordering":
            own = rows["group"].to_numpy() == 0
            numbers = rows["verdict"].to_numpy()[own].tolist()
            names = (VERDICTS[number].value for number in numbers)
            verdicts |= dict(zip(rows["partition"].to_numpy()[own].tolist(), names, strict=True))
    cpu_s, peak_mb = time.process_time() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cpu_s": cpu_s, "peak_mb": peak_mb, "plain_s": _plainly(width, topic, positions[0], verdicts)}


def _topic(width: Width) -> tuple[AuditedTopic, _Ints, _Ints]:
    """The topic gains partitions after a third of the readings; groups lag, and begin a partition up to three readings
    later."""
    chance, readings = np.random.default_rng(13), np.arange(width.readings)
    expands = width.readings // 3
    is_new = np.arange(width.new_count) >= width.old_count
    since = np.where(is_new, expands, 0)[:, None]
    base = np.where(is_new, 0, chance.integers(1_000, 10**6, width.new_count))[:, None]
    ends = base + chance.integers(100, 5_000, width.new_count)[:, None] * (readings - since)
    size = (width.groups, width.new_count, 1)
    begins = since + np.where(is_new[:, None], chance.integers(0, 4, size), 0)
    positions = np.where(readings < begins, -1, np.maximum(ends - chance.integers(0, 20_000, size), 0))
    expansion = AuditedExpansion(
        old_count=width.old_count,
        new_count=width.new_count,
        settles_at=expands * _HOUR_US,
        low=ends[: width.old_count, expands - 1],
        high=ends[: width.old_count, expands],
        record_end=ends[: width.old_count, expands - 1],
    )
    names = tuple(f"group-{number}" for number in range(width.groups))
    topic = AuditedTopic(
        topic_id="topic", mapping=KeyMapping.NONE, expansions=(expansion,), groups=(names, ()), first_group=(0, 0)
    )
    return topic, positions, readings * _HOUR_US


def _plainly(width: Width, topic: AuditedTopic, positions: _Ints, verdicts: dict[int, str]) -> float:
    """CPU seconds of the plain law for the modelled destinations."""
    (own,) = topic.expansions
    readings = [
        GroupReading(observed_at_ms=number * _HOUR_US // 1_000, positions=dict(enumerate(column)))
        for number, column in enumerate(positions.T.tolist())
    ]
    begun = time.process_time()
    for destination in range(width.new_count - width.modelled, width.new_count):
        found = {audit_group(readings, _pair(own, source, destination)).verdict for source in range(width.old_count)}
        if max(found, key=VERDICTS.index).value != verdicts[destination]:
            raise RuntimeError(f"the plain law says {found} of {destination}")
    return time.process_time() - begun


def _pair(own: AuditedExpansion, source: int, destination: int) -> AuditedDependency:
    return AuditedDependency(
        source=source,
        destination=destination,
        fence=ExpansionFence(low=int(own.low[source]), high=int(own.high[source])),
        begins=ExpansionFence(low=0, high=0),
        settles_at_ms=own.settles_at // 1_000,
    )


if __name__ == "__main__":
    json.dump(_measure(Width(*map(int, sys.argv[1:]))), sys.stdout)
