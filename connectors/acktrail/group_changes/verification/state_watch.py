"""Follows the state topic from where a change was sent, and finds the outcome of each share partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from acktrail.broker.state.state_lookup import StateLookup
from acktrail.errors import RetryableError
from acktrail.group_changes.collection.partition_states import StateFacts
from acktrail.group_changes.execution.sent_request import SentPart, SentRequest
from acktrail.group_changes.planning.plan import PartitionPlan, ResetPlan, share_partition_of
from acktrail.group_changes.verification.partition_outcome import (
    GroupNow,
    LaterReset,
    Place,
    ResetEvidence,
    ResetOutcome,
    Seen,
    judge,
)
from acktrail.model.share_partition import SharePartition

Exported = Callable[[Mapping[int, tuple[int, int]]], Sequence[tuple[SharePartition, Seen]] | None]
"""Gives the records between two offsets of state partitions (the second excluded) as the tables have them; None: the
tables do not have all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterRequest:
    """A request of another plan or attempt for the same share partition. `ends` are the state partitions' ends right
    before it was sent."""

    ends: Mapping[int, int]
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SentPartition:
    """One share partition of a request: what the plan found there, what was asked, what the broker said. For a look
    that is not the first: what was asked `later`, and the record by which it was found `overwritten_at`."""

    row: PartitionPlan
    sent: SentRequest
    part: SentPart
    group_epoch: int | None = None
    later: tuple[LaterRequest, ...] = ()
    overwritten_at: Place | None = None

    @property
    def key(self) -> SharePartition:
        return share_partition_of(self.row)


def sent_partitions(plan: ResetPlan, requests: Sequence[SentRequest]) -> list[SentPartition]:
    """Every share partition of `requests`, which were made from `plan`."""
    rows = {row.key: row for row in plan.partitions}
    epochs = {group.group_id: group.group_epoch for group in plan.groups}
    return [
        SentPartition(
            row=rows[sent.group_id, part.topic, part.partition],
            sent=sent,
            part=part,
            group_epoch=epochs.get(sent.group_id),
        )
        for sent in requests
        for part in sent.parts
    ]


class StateWatch:
    """The records of the share partitions in `asked` since they were sent."""

    def __init__(self, reader: StateLookup, asked: Sequence[SentPartition], exported: Exported) -> None:
        self._reader = reader
        self._asked = tuple(asked)
        self._exported = exported
        self._keys = {one.key for one in asked}
        self._seen: dict[SharePartition, list[Seen]] = defaultdict(list)
        self._position = dict(self._starts())
        self._is_complete = True

    def read(self) -> None:
        """Take in what came since the last time. Where records were pruned meanwhile, the tables may still have them;
        without them, or where the log lost its end, what is left is taken in."""
        before = self._position
        try:
            records, self._position = self._reader.read_from(self._keys, before)
        except RetryableError:
            starts = self._reader.starts(set(self._position))
            spans = {p: (at, starts[p]) for p, at in self._position.items() if at < starts[p]}
            if not spans:
                raise
            self._fill(spans)
            from_there = {p: max(at, starts[p]) for p, at in self._position.items()}
            records, self._position = self._reader.read_from(self._keys, from_there)
        if any(self._position[partition] < at for partition, at in before.items()):
            self._is_complete = False
        for key, addressed in records:
            if addressed.record is not None:
                self._seen[key].append(((addressed.raw.state_partition, addressed.raw.offset), addressed.record))

    def outcomes(self, states: StateFacts, groups: Mapping[str, GroupNow]) -> list[ResetOutcome]:
        """What became of each, in order; `states` are the present ones, which decide where records are missing."""
        return [self._outcome(one, states, groups.get(one.sent.group_id)) for one in self._asked]

    @property
    def is_complete(self) -> bool:
        """Every record since the changes were sent was read."""
        return self._is_complete

    def _outcome(self, one: SentPartition, states: StateFacts, group: GroupNow | None) -> ResetOutcome:
        partition = self._reader.state_partition(one.key)
        own_end = one.sent.ends.get(partition, 0)
        records = [seen for seen in self._seen[one.key] if seen[0][1] >= own_end]
        case = ResetEvidence(
            target=one.part.target_offset,
            outcome=one.part.outcome,
            before=one.row.state,
            sent_epoch=one.group_epoch,
            records=records,
            is_complete=self._is_complete,
            now=states.states.get(one.key),
            is_now_known=states.reason is None and one.key not in states.reasons,
            group=group,
            overwritten_at=one.overwritten_at,
            later=[LaterReset(end=other.ends.get(partition, own_end), target=other.target) for other in one.later],
        )
        return judge(case)

    def _fill(self, spans: Mapping[int, tuple[int, int]]) -> None:
        found = self._exported(spans) if self._is_complete else None
        self._is_complete = found is not None
        for key, seen in found or ():
            self._seen[key].append(seen)

    def _starts(self) -> Iterator[tuple[int, int]]:
        """For each state partition the first end that any of the requests noted."""
        for partition in {self._reader.state_partition(key) for key in self._keys}:
            noted = [
                one.sent.ends.get(partition, 0)
                for one in self._asked
                if self._reader.state_partition(one.key) == partition
            ]
            yield partition, min(noted)
