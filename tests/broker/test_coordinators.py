"""Asking coordinators: what happens when one keeps silent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.errors import RequestTimedOutError

from acktrail.broker.client.broker_client import BrokerClient, NoResponse
from acktrail.broker.client.coordinators import Coordinators
from acktrail.errors import RetryableError


class SilentClient:
    """A cluster with one coordinator that keeps silent the first `silences` times."""

    request_timeout_s = 0.2

    def __init__(self, silences: int) -> None:
        self.silences = silences
        self.asked = 0

    def send(self, request: Any) -> Any:
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
    """One silence is no failure: the groups' answers are those of the second request."""
    client = SilentClient(silences=1)
    assert {group: answer.error_code for group, answer in ask(client).items()} == {"a": 0, "b": 0}
    assert client.asked == 2


def test_a_coordinator_that_stays_silent_is_an_error_in_bounded_time() -> None:
    """It stops asking in the end."""
    client = SilentClient(silences=1_000)
    with pytest.raises(RetryableError):
        ask(client)
    assert 1 < client.asked < 100
