"""The audit over columns says what the plain laws say of each topic, group and dependency."""

from __future__ import annotations

from functools import partialmethod
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples.audited_ledger import check
from samples.expansion_world import random_world

from acktrail.expansions.audited_groups import AuditPlan
from acktrail.expansions.table_shares import TopicShare
from acktrail.model.expansion.key_mapping import KeyMapping


@pytest.mark.few(1)
@pytest.mark.parametrize("mapping", [KeyMapping.MURMUR2, KeyMapping.NONE])
@given(st.integers(0, 10**9), st.booleans())
@settings(max_examples=settings.default.max_examples // 6)
def test_the_audit_of_columns_is_the_plain_one(
    tmp_path_factory: pytest.TempPathFactory, mapping: KeyMapping, seed: int, is_bad: bool
) -> None:
    """R003-01, R003-02: expansions, fences, verdicts and what they rest on are those of the plain laws, in any order of
    rows, doubled, missing and contradictory ones included."""
    chance = Random(seed)
    world = random_world(chance, runs=chance.randint(8, 40), is_bad=is_bad)
    check(tmp_path_factory.mktemp("world"), world, mapping)


def test_groups_of_one_topic_in_several_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a topic's groups do not fit a worker's memory they are judged some at a time: the same verdicts."""
    in_shares = partialmethod(AuditPlan.shares, at_once=100)
    taken: list[int] = []

    def shares(plan: AuditPlan, workers: int) -> list[TopicShare]:
        found = list(in_shares.__get__(plan, AuditPlan)(workers))
        taken.append(len(found))
        return found

    monkeypatch.setattr(AuditPlan, "shares", shares)
    assert check(tmp_path, random_world(Random(2), runs=40), KeyMapping.MURMUR2)
    assert max(taken) > 2
