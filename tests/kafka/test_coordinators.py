"""Asking coordinators: what happens when one keeps silent."""

from __future__ import annotations

import time
import zlib
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.errors import RequestTimedOutError

from acktrail.errors import RetryableError
from acktrail.kafka.client.broker_client import BrokerClient, NoResponse
from acktrail.kafka.client.coordinators import Coordinators
from acktrail.kafka.client.error_codes import REQUEST_TIMED_OUT


class SilentClient:
    """A cluster with one coordinator that keeps silent the first `silences` times."""

    request_timeout_s = 0.2

    def __init__(self, silences: int) -> None:
        self.silences = silences
        self.asked = 0

    def send(self, request: Any, silences: int) -> Any:
        found = [SimpleNamespace(key=key, error_code=0, error_message=None) for key in request.coordinator_keys]
        return SimpleNamespace(coordinators=found)

    def learn_coordinator(self, found: Any, key: str) -> int:
        return 1

    def send_all(self, requests: list[tuple[int, Any]]) -> list[Any]:
        self.asked += 1
        if self.asked <= self.silences:
            return [NoResponse(node_id=node, error=RequestTimedOutError()) for node, _ in requests]
        groups = [SimpleNamespace(group_id=group_id, error_code=0, error_message=None) for group_id in requests[0][1]]
        return [SimpleNamespace(groups=groups)]

    def explain(self, missing: NoResponse) -> Exception:
        return RetryableError("kept silent", hint="try again")


def ask(client: SilentClient) -> dict[str, Any]:
    return dict(Coordinators(cast("BrokerClient", client)).query(["a", "b"], list))


def test_a_request_without_an_answer_is_sent_again() -> None:
    """One silence is no failure: the groups' answers are those of the next requests, one for each."""
    client = SilentClient(silences=1)
    assert {group: answer.error_code for group, answer in ask(client).items()} == {"a": 0, "b": 0}
    assert client.asked == 3


def test_a_coordinator_that_stays_silent_is_an_error_in_bounded_time() -> None:
    """It stops asking in the end."""
    client = SilentClient(silences=1_000)
    with pytest.raises(RetryableError):
        ask(client)
    assert 1 < client.asked < 100


class BusyCluster(SilentClient):
    """Three coordinators; those in `silent` do not answer."""

    def __init__(self, silent: frozenset[int] = frozenset()) -> None:
        super().__init__(silences=0)
        self.silent = silent
        self.largest, self.most = 0, 0
        self.requests: Counter[int] = Counter()

    def learn_coordinator(self, found: Any, key: str) -> int:
        return zlib.crc32(key.encode()) % 3

    def send_all(self, requests: list[tuple[int, Any]]) -> list[Any]:
        self.requests.update(node for node, _ in requests)
        self.most = max(self.most, *Counter(node for node, _ in requests).values())
        self.largest = max(self.largest, *(len(group_ids) for _, group_ids in requests))
        return [self._reply(node, group_ids) for node, group_ids in requests]

    def _reply(self, node: int, group_ids: list[str]) -> Any:
        if node in self.silent:
            return NoResponse(node_id=node, error=RequestTimedOutError())
        rows = [SimpleNamespace(group_id=group_id, error_code=0, error_message=None) for group_id in group_ids]
        return SimpleNamespace(groups=rows)


class SlowCluster(BusyCluster):
    """One coordinator that takes longer over all groups than a try may take, and keeps silent once near the end."""

    request_timeout_s = 0.02

    def learn_coordinator(self, found: Any, key: str) -> int:
        return 1

    def send_all(self, requests: list[tuple[int, Any]]) -> list[Any]:
        began = time.monotonic()
        while time.monotonic() < began + 0.01:
            pass
        self.asked += 1
        self.silent = frozenset({1} if self.asked == 9 else ())
        return super().send_all(requests)


def ask_many(cluster: BusyCluster, group_ids: list[str]) -> dict[str, Any]:
    coordinators = Coordinators(cast("BrokerClient", cluster))
    return dict(coordinators.query(group_ids, list, read=lambda row: row.group_id, tolerates_silence=True))


def test_many_groups_are_few_requests_at_a_time() -> None:
    """Each broker has at most two requests of at most 100 groups at once; every group has its own answer."""
    cluster, names = BusyCluster(), [f"g{number}" for number in range(10_000)]
    answers = ask_many(cluster, names)
    assert (cluster.most, cluster.largest) == (2, 100)
    assert [answers[name].body for name in names] == names


def test_a_silence_late_in_a_long_query_is_asked_again() -> None:
    """Time counts from the last answer, not from the first request."""
    coordinators = Coordinators(cast("BrokerClient", SlowCluster()))
    names = [f"g{number}" for number in range(2_000)]
    answers = coordinators.query(names, list, read=lambda row: row.group_id)
    assert [answers[name].body for name in names] == names


def test_a_silent_coordinator_is_not_asked_about_all_its_groups() -> None:
    """Its silence costs one round of requests a try, however many groups it has; the others answer."""
    names = [f"g{number}" for number in range(10_000)]
    silent, awake = BusyCluster(frozenset({1})), BusyCluster()
    answers = ask_many(silent, names)
    ask_many(awake, names)
    assert {answers[name].error_code for name in names} == {0, REQUEST_TIMED_OUT}
    assert silent.requests[0] == awake.requests[0]
    tries = silent.requests[1] / 2
    assert tries < 20
    assert sum(answer.error_code == 0 for answer in answers.values()) > 6_000


class LimitedCluster(BusyCluster):
    """One coordinator that answers in time about so many groups at once and no more, and never about those of `stuck`.
    A request without an answer takes those beside it with it, as they wait in one connection."""

    def __init__(self, most: int, stuck: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.limit, self.stuck = most, stuck
        self.request_timeout_s = 0.02
        self.silent_rounds = 0

    def learn_coordinator(self, found: Any, key: str) -> int:
        return 1

    def send_all(self, requests: list[tuple[int, Any]]) -> list[Any]:
        parts = [group_ids for _, group_ids in requests]
        is_silent = any(len(part) > self.limit or self.stuck.intersection(part) for part in parts)
        self.silent = frozenset({1} if is_silent else ())
        self.silent_rounds += is_silent
        time.sleep(self.request_timeout_s * is_silent)  # the time that a request has, not a wait for anything
        return super().send_all(requests)


@pytest.mark.parametrize("count", [1_000, 150, 7])
@pytest.mark.parametrize("most", [99, 10, 3, 1])
def test_a_coordinator_that_is_too_slow_for_large_requests_is_asked_about_fewer_groups(most: int, count: int) -> None:
    """Every group is described, whatever the number is that the coordinator masters in time, and what it did not master
    is tried a few times, not once for each request."""
    cluster, names = LimitedCluster(most), [f"g{number}" for number in range(count)]
    answers = ask_many(cluster, names)
    assert [answers[name].body for name in names] == names
    assert cluster.silent_rounds <= 2


def test_a_group_that_is_never_answered_costs_the_others_nothing() -> None:
    """Its request is divided until it is asked alone: it has the error, all others their answers, also those whose
    requests waited beside it."""
    cluster, names = LimitedCluster(100, frozenset({"g321"})), [f"g{number}" for number in range(1_000)]
    answers = ask_many(cluster, names)
    assert [name for name in names if answers[name].error_code] == ["g321"]
    assert (answers["g321"].error_code, answers["g321"].message) == (REQUEST_TIMED_OUT, "kept silent")
    assert cluster.silent_rounds == 3
    with pytest.raises(RetryableError, match="kept silent"):
        Coordinators(cast("BrokerClient", cluster)).query(names, list)


def test_many_groups_that_are_never_answered_end_the_query() -> None:
    """However much is answered between them, the silences of a query are few; what was answered stays."""
    stuck = frozenset(f"g{number}" for number in range(0, 1_000, 50))
    cluster, names = LimitedCluster(100, stuck), [f"g{number}" for number in range(1_000)]
    answers = ask_many(cluster, names)
    assert cluster.silent_rounds <= 10
    assert answers.keys() == set(names)
    assert {answers[name].error_code for name in stuck} == {REQUEST_TIMED_OUT}
    assert {answers[name].body for name in names if not answers[name].error_code} <= set(names) - stuck
