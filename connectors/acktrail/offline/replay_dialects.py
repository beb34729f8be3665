"""Replay of copied records of any dialect by its own rules, with the states as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from acktrail.branches import loaded
from acktrail.errors import MissingDependency
from acktrail.format.wire.dialects.dialect import Dialect, DialectReplay, JsonForm, Replay
from acktrail.model.records import RecordAt
from acktrail.model.replay import Policy
from acktrail.model.replay import replay as replay_as_a_broker
from acktrail.offline.record_json import state_json


def replay_records(
    dialect: Dialect[Any], records: Iterable[RecordAt[Any]], policy: Policy, *, audited: bool
) -> DialectReplay:
    """The states after `records` of `dialect`, which come in log order within a partition, ordered by their keys.

    A dialect with rules of its own follows these. `audited`: also a broker's replay reports each rule that a record
    breaks. Raises MissingDependency: no branch knows these rules.
    """
    if dialect.replay is not None:
        found = dialect.replay(records, policy)
    elif audited or policy is Policy.STRICT:
        found = _strict_replay()(records, policy)
    else:
        states = replay_as_a_broker(record_at.record for record_at in records)
        found = DialectReplay(states=[*map(state_json, states.values())])
    return replace(found, states=sorted(found.states, key=_key))


def _strict_replay() -> Replay:
    rules: Replay | None = next(loaded("strict_replay"), None)
    if rules is None:
        raise MissingDependency(
            "--policy strict and --findings: no installed branch of acktrail knows the rules of the founding documents"
        )
    return rules


def _key(form: JsonForm) -> tuple[object, ...]:
    return form["group"], form["topic_id"] or "", form["partition"]
