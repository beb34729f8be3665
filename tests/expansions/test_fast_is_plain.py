"""The audit over columns says what the plain laws say of each topic, group and dependency."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples.audited_ledger import check
from samples.expansion_world import random_world

from acktrail.model.expansion.key_mapping import KeyMapping


@pytest.mark.parametrize("mapping", [KeyMapping.MURMUR2, KeyMapping.NONE])
@given(st.integers(0, 10**9), st.booleans())
@settings(max_examples=settings.default.max_examples // 4)
def test_the_audit_of_columns_is_the_plain_one(
    tmp_path_factory: pytest.TempPathFactory, mapping: KeyMapping, seed: int, is_bad: bool
) -> None:
    """R003-01, R003-02: expansions, fences, verdicts and what they rest on are those of the plain laws, in any order of
    rows, doubled, missing and contradictory ones included."""
    chance = Random(seed)
    world = random_world(chance, runs=chance.randint(8, 40), is_bad=is_bad)
    check(tmp_path_factory.mktemp("world"), world, mapping)
