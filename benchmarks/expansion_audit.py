"""A quarter of looks audited by Spark: wall and CPU time, peak memory, beside the plain laws on some of the topics.

`python expansion_audit.py TABLES` is the process that is measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import process_tree
import pyarrow.compute as pc
from ledger_tables import LedgerShape, write_ledger
from table import Row

sys.path.extend(str(Path(__file__).resolve().parents[1] / folder) for folder in ("tests", "simulation"))

from samples.plain_audit import plain_audit  # the plain laws, as the tests have them

from acktrail.config import TablesConfig
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.tables.delta.store import Tables

_POLL_S = 0.1
_SETTLE_MS = 420_000
_MAPPING = KeyMapping.MURMUR2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Audited:
    """Seconds of wall and CPU time, and the memory in MB of all processes together."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def compare(shape: LedgerShape | None = None, modelled: int = 1, folder: str | None = None) -> list[Row]:
    """The table's rows: the audit of all topics by a Spark session on `local[2]`, then the plain laws on `modelled`
    topics, in seconds for a million rows; both must give the same verdicts."""
    shape = shape or LedgerShape()
    with tempfile.TemporaryDirectory(dir=folder) as own:
        config = TablesConfig(uri=own)
        written = write_ledger(Tables(config), shape)
        found = _audited(config)
        rows, plain_s = _plainly(config, modelled)
    total = written.observations + written.positions
    fast, plain = found.cpu_s / total * 1e6, plain_s / rows * 1e6
    what = (
        f"{shape.topics:,} topics of {shape.new_count}, {shape.days} days of {shape.looks_a_day} looks, "
        f"{shape.groups} groups of {shape.topics_of_a_group} topics: {total / 1e6:,.0f} M rows"
    )
    return [
        Row(
            what=what,
            ours=f"{found.wall_s:.0f} s, {found.cpu_s:.0f} s CPU, {found.peak_mb:,.0f} MB of all processes",
            beside=f"the model: {plain:.1f} s CPU for 1 M rows",
            ratio=f"{plain / fast:.0f}x less CPU",
        )
    ]


def _audited(config: TablesConfig) -> _Audited:
    peak_mb, watch, begun = 0.0, process_tree.Watch(), time.perf_counter()
    surroundings = {**os.environ, "ACKTRAIL_SPARK_MASTER": "local[2]", "ACKTRAIL_KEY_MAPPINGS": f"*={_MAPPING.value}"}
    with subprocess.Popen(
        [sys.executable, __file__, config.uri], stdout=subprocess.DEVNULL, env=surroundings
    ) as process:
        while process.poll() is None:
            peak_mb = max(peak_mb, process_tree.resident_mb(process.pid))
            watch.look(process.pid)
            time.sleep(_POLL_S)
    if process.returncode:
        raise RuntimeError("the audit failed")
    return _Audited(wall_s=time.perf_counter() - begun, cpu_s=watch.cpu_s, peak_mb=peak_mb)


def _plainly(config: TablesConfig, modelled: int) -> tuple[int, float]:
    """Judge some topics with groups by the plain laws: how many rows they have, and CPU seconds. Raises RuntimeError
    where the tables have another verdict."""
    tables = Tables(config)
    audited = tables.read("ordering_audits")
    topics = sorted(set(audited["topic_id"].to_pylist()))[:modelled]
    own = pc.field("topic_id").isin(topics)
    observations, positions = (tables.read(name, where=own) for name in ("partition_observations", "group_positions"))
    rows = observations.to_pylist(), positions.to_pylist()
    begun = time.process_time()
    _, verdicts = plain_audit(*rows, _SETTLE_MS, lambda _: _MAPPING)
    plain_s = time.process_time() - begun
    expected = {key[:1] + key[2:]: (each.verdict, each.source_partition) for key, each in verdicts.items()}
    found = {_key(row): (row["verdict"], row["source_partition"]) for row in audited.filter(own).to_pylist()}
    if found != expected:
        raise RuntimeError(f"the plain laws say something else of {topics}")
    return observations.num_rows + positions.num_rows, plain_s


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["group_id"], row["event_id"], row["source_event_id"], row["partition"]


if __name__ == "__main__":
    from acktrail_jobs.commands.expand_audit import audit_partitions

    audit_partitions(TablesConfig(uri=sys.argv[1]), "local[2]")
