"""Follows the state topic from where a change was sent, and says of each share partition what became of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from acktrail.broker.state_reader import StateReader
from acktrail.errors import RetryableError
from acktrail.model.share_partition import SharePartition
from acktrail.reset.attempt import Sent, SentPart
from acktrail.reset.facts import PartitionState
from acktrail.reset.plan import PartitionPlan, ResetPlan, share_partition_of
from acktrail.reset.verdict import Finding, Seen, find

__all__ = ["Asked", "Look", "asked_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One share partition of a request: what the plan found there, what was asked, what the broker said."""

    row: PartitionPlan
    sent: Sent
    part: SentPart

    @property
    def key(self) -> SharePartition:
        return share_partition_of(self.row)


def asked_of(plan: ResetPlan, requests: Sequence[Sent]) -> list[Asked]:
    """Every share partition of `requests`, which were made from `plan`."""
    rows = {row.key: row for row in plan.partitions}
    return [
        Asked(row=rows[sent.group_id, part.topic, part.partition], sent=sent, part=part)
        for sent in requests
        for part in sent.parts
    ]


class Look:
    """The records of the share partitions in `asked` since they were sent."""

    def __init__(self, reader: StateReader, asked: Sequence[Asked]) -> None:
        self._reader = reader
        self._asked = tuple(asked)
        self._keys = {one.key for one in asked}
        self._seen: dict[SharePartition, list[Seen]] = defaultdict(list)
        self._position = dict(self._starts())
        self._is_complete = True

    def read(self) -> None:
        """Take in what came since the last time."""
        try:
            records, self._position = self._reader.since(self._keys, self._position)
        except RetryableError:
            if not self._is_complete:
                raise
            self._is_complete = False
            _, self._position = self._reader.read(self._keys)
            return
        for key, addressed in records:
            if addressed.record is not None:
                self._seen[key].append(((addressed.raw.state_partition, addressed.raw.offset), addressed.record))

    def findings(self, states: Mapping[SharePartition, PartitionState | None]) -> list[Finding]:
        """What became of each, in order; `states` are the present ones, which decide where records were pruned."""
        return [
            find(
                one.part.target_offset,
                before=one.row.state,
                records=self._since_sent(one),
                now=states.get(one.key),
                outcome=one.part.outcome,
                is_complete=self._is_complete,
            )
            for one in self._asked
        ]

    @property
    def is_complete(self) -> bool:
        """Every record since the changes were sent was read."""
        return self._is_complete

    def _since_sent(self, one: Asked) -> list[Seen]:
        return [seen for seen in self._seen[one.key] if seen[0][1] >= one.sent.ends.get(seen[0][0], 0)]

    def _starts(self) -> Iterator[tuple[int, int]]:
        """For each state partition the first end that any of the requests noted."""
        for partition in {self._reader.state_partition(key) for key in self._keys}:
            noted = [
                one.sent.ends.get(partition, 0)
                for one in self._asked
                if self._reader.state_partition(one.key) == partition
            ]
            yield partition, min(noted)
