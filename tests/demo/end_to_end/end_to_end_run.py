"""What an end-to-end run leaves to be looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coordinator_messages import CoordinatorState
from demo.workload_report import WorkloadReport
from state_topics.filled_topic import write_dump

from acktrail.config import TablesConfig
from acktrail.format.wire.raw_record import RawRecord
from acktrail.model.share_partition import SharePartition

__all__ = ["RUN_ID", "Observed", "dump_of"]

RUN_ID: Final = "end-to-end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A finished workload, its export, and what the broker itself says afterwards."""

    version: str
    workload: WorkloadReport
    tables: TablesConfig
    described_by_kafka: str
    """Output of Kafka's own tool, all groups."""
    coordinator_states: Mapping[SharePartition, CoordinatorState]
    """What the share coordinator answers its brokers."""
    records: tuple[RawRecord, ...]
    """The state topic as an ordinary consumer read it."""


def dump_of(observed: Observed, folder: Path) -> Path:
    """The state topic as a record dump."""
    return write_dump(observed.records, folder / "state.jsonl")
