"""What a summary holds: plain frozen values, ready to be shown.

Offsets are Kafka's, both ends of a range inclusive. A count that is not known is None and has a reason beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

PartitionKey = tuple[str, str, int]
"""Group id, topic id, partition (-1 where a row names none): one share partition."""


def partition_key(group_id: str | None, topic_id: str | None, partition: int | None) -> PartitionKey:
    """The key of a row; sortable also where a column is null."""
    return (group_id or "", topic_id or "", -1 if partition is None else partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number and where it comes from.

    `source` is ``replayed`` (from the state topic) or ``described`` (the cluster's own answer); empty when `value` is
    None, and then `reason` says why. `described` is the cluster's answer where it differs from `value`.
    """

    value: int | None
    source: str = ""
    reason: str = ""
    described: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One share partition: its replayed state, the cluster's answer, and the verdict. `topic` None: name not known.

    `status` is one of `acktrail.model.queue_status`, since `status_since`; None: the run left none.
    """

    group_id: str
    topic_id: str
    topic: str | None
    partition: int | None
    start_offset: Figure
    lag: Figure
    archived: Figure
    verdict: str
    reason: str
    moved: bool | None
    completeness: str
    completeness_reason: str
    status: str | None = None
    status_since: datetime | None = None
    status_reason: str = ""

    @property
    def key(self) -> PartitionKey:
        return partition_key(self.group_id, self.topic_id, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """One group as last observed. Where only its state records are known, `reason` alone is not None."""

    group_id: str
    group_type: str | None
    group_state: str | None
    group_epoch: int | None
    assignment_epoch: int | None
    assignor: str | None
    members: int | None
    coordinator_id: int | None
    configs: tuple[tuple[str, str], ...]
    observed_at: datetime | None
    share_partitions: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTotals:
    """What the share partitions of a group add up to. `status` is the worst of them, `status_since` the earliest time
    since which one has it, `status_reason` why; None: the run left no statuses. `lag_records` sums the known lags above
    zero."""

    group_id: str
    status: str | None
    status_since: datetime | None
    status_reason: str
    share_partitions: int
    statuses: tuple[tuple[str, int], ...]
    verdicts: tuple[tuple[str, int], ...]
    lag_records: int
    lag_unknown: int
    archived_seen: int
    archived_unknown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """One topic id. `topic` None: only the id is known."""

    topic_id: str
    topic: str | None
    partition_count: int | None
    is_internal: bool
    status: str | None
    successor_topic_id: str | None
    first_seen_at: datetime | None
    last_seen_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRow:
    """A run of offsets that a group archived with one delivery count.

    `retained`: the replayed state holds it; else the start offset moved past it, or a reset took it away since.
    """

    group_id: str
    topic_id: str
    topic: str | None
    partition: int | None
    first_offset: int
    last_offset: int
    delivery_count: int
    retained: bool

    @property
    def records(self) -> int:
        return self.last_offset - self.first_offset + 1


class FindingSubject(Protocol):
    """Who a finding is about: the columns of a row of ``findings`` that say it."""

    @property
    def subject(self) -> str: ...
    @property
    def group_id(self) -> str | None: ...
    @property
    def topic_id(self) -> str | None: ...
    @property
    def topic(self) -> str | None: ...
    @property
    def partition(self) -> int | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRow:
    """One rule broken by one subject; the evidence is a record's address in the state topic. `topic` None: the finding
    is about none, or only its id is known."""

    rule: str
    severity: str
    subject: str
    group_id: str | None
    topic_id: str | None
    topic: str | None
    partition: int | None
    detail: str
    evidence_state_partition: int | None
    evidence_offset: int | None
    first_seen_at: datetime | None
    last_seen_at: datetime | None
    times_seen: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectationRow:
    """One expectation. `result` is ``passed``, ``failed``, ``noted`` (broken, and there for information
    alone) or ``not evaluated`` (`error` says why). `stops`: it stopped
    the run."""

    suite: str
    expectation: str
    severity: str
    result: str
    stops: bool
    element_count: int | None
    unexpected_count: int | None
    observed_value: str | None
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GapRow:
    """Offsets of a state partition that were pruned before they were exported."""

    state_partition: int
    first_offset: int
    last_offset: int
    exported_at: datetime | None

    @property
    def records(self) -> int:
        return self.last_offset - self.first_offset + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRow:
    """Everything exported of one state partition. `first_offset` None: nothing. Log offsets as of the last commit."""

    state_partition: int
    commits: int
    first_offset: int | None
    last_offset: int | None
    records_read: int
    records_decoded: int
    records_quarantined: int
    log_start_offset: int | None
    log_end_offset: int | None
    exported_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTotals:
    """Counts over the whole run. `lag_records` sums the known lags that are above zero."""

    groups: int
    share_partitions: int
    lag_unknown: int
    lag_records: int
    archived_seen: int
    archived_unknown: int
    statuses: tuple[tuple[str, int], ...]
    """Share partitions by status; none where the run left no statuses."""
    group_statuses: tuple[tuple[str, int], ...]
    """Groups by the worst status of their share partitions."""
    verdicts: tuple[tuple[str, int], ...]
    findings: tuple[tuple[str, int], ...]
    expectations_passed: int
    expectations_failed: int
    expectations_noted: int
    """Rules that are there for information and are broken: no failures."""
    expectations_not_evaluated: int
    expectations_stopping: int
    """Critical expectations that failed or raised: they stopped the run."""
    records_exported: int
    records_quarantined: int
    gaps: int
    gap_records: int
    commits: int
    """Commits of the exporter; one commit covers several state partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHead:
    """Which run: it observed the cluster from `observed_from` to `observed_to`."""

    cluster_id: str | None
    run_id: str
    observed_from: datetime | None
    observed_to: datetime | None
    state_topic_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One reconcile run, ready to be shown. `group_totals` and `partitions` have the worst first, group by group."""

    head: RunHead
    totals: RunTotals
    group_totals: tuple[GroupTotals, ...]
    partitions: tuple[PartitionRow, ...]
    groups: tuple[GroupRow, ...]
    topics: tuple[TopicRow, ...]
    archived: tuple[ArchivedRow, ...]
    findings: tuple[FindingRow, ...]
    findings_seen_later: int
    """Findings that were there before this run ended and that a later run saw again: its rows, not this run's."""
    branches: Mapping[str, Mapping[str, Any]]
    """What branches have of the run, by the names of their sections."""
    expectations: tuple[ExpectationRow, ...]
    exports: tuple[ExportRow, ...]
    gaps: tuple[GapRow, ...]
