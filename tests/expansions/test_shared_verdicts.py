"""Destinations that wait for the same sources are judged together: the verdicts of each dependency judged alone."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from definitions.dependencies import dependencies
from hypothesis import given, settings
from hypothesis import strategies as st
from samples.group_walks import GroupWalk, random_walk
from samples.plain_audit import EPOCH, MS, PlainVerdict, verdicts

from acktrail.columnar.expansion import shared_verdicts
from acktrail.columnar.expansion.dependency_columns import shared_sources
from acktrail.columnar.expansion.dependency_verdicts import REASONS, VERDICTS, DependencyVerdicts
from acktrail.columnar.expansion.ordering_columns import audit_topic
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail_simulation.expansion.key_partitions import sources_across

COUNTS = st.one_of(
    st.lists(st.integers(1, 24), min_size=2, max_size=4, unique=True).map(sorted),
    st.sampled_from(([5, 6, 12], [3, 4, 8, 16], [4, 6, 7, 21], [5, 10, 11, 22], [2, 5, 10, 20])),
)
"""Of the chosen ones newer steps are not below an earlier count."""
MAPPINGS = st.sampled_from((KeyMapping.MURMUR2, KeyMapping.NONE))


def _rows(walk: GroupWalk, *, is_share: bool) -> dict[tuple[Any, ...], dict[str, Any]]:
    pieces = [
        rows for name, rows in audit_topic(walk.topic, int(is_share), walk.positions, walk.at) if name == "ordering"
    ]
    rows = pa.concat_tables(pieces).to_pylist() if pieces else []
    found = {(row["group"] - 7, row["event"], row["source_event"], row["partition"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def _plain_form(row: dict[str, Any]) -> PlainVerdict:
    known = {name: None if row[name] == -1 else row[name] for name in PlainVerdict.__annotations__}
    times = {name: None if known[name] is None else EPOCH + known[name] // 1000 * MS for name in ("at", "before_at")}
    reason = None if known["reason"] is None else REASONS[known["reason"]].value
    return PlainVerdict(**{**known, **times, "verdict": VERDICTS[row["verdict"]].value, "reason": reason})


@given(st.integers(0, 10**9), COUNTS, MAPPINGS, st.booleans(), st.integers(1, 40))
@settings(max_examples=settings.default.max_examples // 2)
def test_verdicts_are_those_of_each_dependency_alone(
    seed: int, counts: list[int], mapping: KeyMapping, is_share: bool, at_once: int
) -> None:
    """For each group, expansion, source expansion and destination: the source that decides, its verdict and what that
    rests on, and how many sources are proven, with any number judged together."""
    walk = random_walk(Random(seed), counts, mapping, groups=3, is_share=is_share)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_verdicts, "_PAIRS", at_once)
        found = _rows(walk, is_share=is_share)
    expected = {
        (group, int(event), int(source_event), destination): verdict
        for group in range(3)
        for (event, source_event, destination), verdict in verdicts(
            walk.ledger,
            walk.readings(group),
            mapping,
            is_share=is_share,
            evidence=walk.evidence[group],
            observed=walk.observed,
        )
    }
    assert {key: _plain_form(row) for key, row in found.items()} == expected
    for (group, _, _, destination), row in found.items():
        for side, at in (("before", row["before_at"]), ("at", row["at"])):
            position = -1 if at == -1 else walk.positions[group, destination, np.searchsorted(walk.at, at)]
            assert row[f"destination_{side}"] == max(position, -1)


@given(COUNTS, MAPPINGS, st.integers(1, 60))
def test_sources_are_those_of_the_model(counts: list[int], mapping: KeyMapping, at_once: int) -> None:
    """Every destination has the sources of the model, each once, without itself, with any number made together."""
    steps = list(pairwise(counts))
    found: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for shared in shared_sources(steps, mapping, at_once):
        for destination, of_class, left_out, waits in zip(
            shared.destination.tolist(),
            shared.of_class.tolist(),
            shared.left_out.tolist(),
            shared.waits().tolist(),
            strict=True,
        ):
            begin, end = shared.bounds[of_class : of_class + 2].tolist()
            sources = shared.source[begin:end].tolist()
            others = [each for place, each in enumerate(sources, begin) if place != left_out]
            assert waits == len(others) > 0
            known = found[shared.event, destination]
            assert not known.keys() & set(others)
            known.update(dict.fromkeys(others, shared.source_event))
    for event, (old_count, new_count) in enumerate(steps):
        for destination in range(new_count):
            if mapping is KeyMapping.NONE:
                alone = dependencies(old_count, new_count, mapping)
                expected = {each.source: event for each in alone if each.destination == destination}
            else:
                expected = sources_across([*counts[: event + 1], new_count], destination, mapping)
            assert found[event, destination] == expected


@pytest.mark.parametrize(
    ("counts", "mapping"),
    [([200, 400], KeyMapping.NONE), ([199, 200], KeyMapping.MURMUR2), ([199, 200, 400], KeyMapping.MURMUR2)],
)
def test_what_is_judged_does_not_grow_with_the_square(
    counts: list[int], mapping: KeyMapping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where destinations take few courses, the sources are judged for each course, and not for each destination; each
    destination has a row, and its count of sources is whole."""
    judged: list[int] = []

    class Counted(DependencyVerdicts):
        def __init__(self, known: Any, group: Any, destination: Any, source: Any) -> None:
            judged.append(len(source))
            super().__init__(known, group, destination, source)

    monkeypatch.setattr(shared_verdicts, "DependencyVerdicts", Counted)
    walk = random_walk(Random(5), counts, mapping, groups=2, is_share=False)
    rows = _rows(walk, is_share=False)
    pairs = sum(row["sources"] for row in rows.values())
    steps = pairwise(counts)
    assert pairs >= 2 * sum(len(dependencies(old_count, new_count, mapping)) for old_count, new_count in steps)
    assert pairs > 5 * sum(judged)
