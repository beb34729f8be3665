"""What a look is worth when brokers do not agree. Their lists are made up: a broker lags by milliseconds alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from acktrail.broker.logs import Query
from acktrail.errors import Unreachable
from acktrail_expansion.looks import partition_observation
from acktrail_expansion.looks.partition_listing import ListedTopic, PartitionLeader
from acktrail_expansion.looks.partition_observation import observe_partitions


class Brokers:
    """Two brokers, of which `first` is asked where it does not matter; `counts` is what each lists, None: silence."""

    cluster_id = "c"

    def __init__(self, first: int, *counts: int | None) -> None:
        self.first, self.counts = first, counts

    @property
    def _client(self) -> Brokers:
        return self

    def metadata(self, _: Any) -> None:
        """Nothing to learn."""

    def broker_ids(self) -> list[int]:
        return [*range(len(self.counts))]

    def list(self, names: Iterable[str] | None, *, node_id: int | None = None) -> tuple[ListedTopic, ...]:
        count = self.first if node_id is None else self.counts[node_id]
        if count is None:
            raise Unreachable("broker")
        leaders = [PartitionLeader(partition=n, leader_id=0, leader_epoch=0) for n in range(count)]
        return (ListedTopic(name="orders", topic_id="id", is_internal=False, partitions=tuple(leaders)),)


class Offset:
    """The answer about one log."""

    offset, timestamp, error_code, leader_epoch = 5, 1, 0, 0


@pytest.mark.parametrize(
    ("first", "counts", "consistency"),
    [
        (2, (2, 2), "consistent"),
        (2, (2, 3), "straddles"),
        (3, (2, 3), "straddles"),
        (2, (3, 3), "straddles"),
        (2, (2, None), "straddles"),
        (3, (3, 3), "consistent"),
    ],
)
def test_one_broker_that_knows_more_spoils_the_look(
    monkeypatch: pytest.MonkeyPatch, first: int, counts: tuple[int | None, ...], consistency: str
) -> None:
    """A producer may have asked the broker that knows: ends of such a look are no low fence."""
    brokers: Any = Brokers(first, *counts)
    monkeypatch.setattr(partition_observation, "list_partitions", lambda _, names, **more: brokers.list(names, **more))
    monkeypatch.setattr(partition_observation, "observe_positions", lambda *_: [])
    monkeypatch.setattr(partition_observation, "gapless_topics", lambda *_: {})

    def ends(_: Any, places: Any, queries: Iterable[Query]) -> dict[Any, dict[Query, type[Offset]]]:
        return {place: dict.fromkeys(queries, Offset) for place in places}

    monkeypatch.setattr(partition_observation, "query_leaders", ends)
    rows = observe_partitions(brokers, run_id="r").rows["partition_observations"].to_pylist()

    assert {row["consistency"] for row in rows} == {consistency}
    assert len(rows) == first
