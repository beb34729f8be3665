"""Bodies of requests that no program here can work with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attacks.test_input import HOSTILE_JSON
from connect.worker.rest.conftest import Rest, rest, start, world

__all__ = ["rest", "start", "world"]
HEAD = '{"name": "x", "config": {"connector.class": "MemorySource", "sink.class": "MemorySink"'


@pytest.mark.parametrize(
    "text",
    [
        *HOSTILE_JSON.values(),
        HEAD + ', "word": NaN}}',
        HEAD + ', "word": 1e999}}',
        HEAD + ', "word": "a", "word": "b"}}',
        HEAD + ', "word": "\\ud800"}}',
        HEAD + f', "word": {"[" * 90}{"]" * 90}}}}}',
    ],
)
def test_a_hostile_body_is_refused(text: str, rest: Callable[..., Rest]) -> None:
    """Who reaches REST sends JSON that Python's parser takes or dies of: the answer is 400, the worker keeps nothing of
    it, and goes on."""
    body = text.encode("utf-8", "surrogateescape")
    answers: list[Any] = [
        rest("POST", "/connectors", body),
        rest("PUT", "/connectors/x/config", body),
        rest("PUT", "/connector-plugins/MemorySource/config/validate", body),
        rest("PATCH", "/connectors/x/offsets", body),
    ]

    assert [answer.code for answer in answers] == [400] * 4
    assert all(answer.body["message"].startswith("the body cannot be read: ") for answer in answers), answers
    assert rest("GET", "/connectors").body == []
    assert rest("POST", "/connectors", f"{HEAD}}}}}".encode()).code == 201
