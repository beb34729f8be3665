"""Translation of offsets by what a mirror told: never beyond what is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail_plugins.migration.mirror_evidence import (
    MirrorCheckpoint,
    OffsetSync,
    TranslatedOffset,
    checkpoints_by_part,
    translate,
    valid_syncs,
)

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "support/golden/mirror_maker/records.json").read_text("ascii")
)


def sync(upstream: int, downstream: int) -> OffsetSync:
    return OffsetSync(topic="t", partition=0, upstream_offset=upstream, downstream_offset=downstream)


@dataclass(frozen=True)
class Mirror:
    """A source log with gaps, and where the mirror wrote each record that it did not drop; syncs of some of them."""

    places: dict[int, int]
    source_end: int
    target_end: int
    syncs: tuple[OffsetSync, ...]
    checkpoints: tuple[MirrorCheckpoint, ...]


@st.composite
def mirrors(draw: st.DrawFn) -> Mirror:
    kinds = draw(st.lists(st.sampled_from(("gap", "dropped", "mirrored", "mirrored")), min_size=2, max_size=30))
    places, at = {}, draw(st.integers(0, 4))
    for offset, kind in enumerate(kinds):
        at += draw(st.sampled_from((0, 0, 0, 1)))  # markers and records of others
        if kind == "mirrored":
            places[offset] = at
            at += 1
    chosen = [pair for pair in places.items() if draw(st.booleans())]
    syncs = tuple(sync(*pair) for pair in chosen)
    end, checkpoints = at + draw(st.integers(0, 2)), []
    for number in range(draw(st.integers(0, 2))):
        upstream = draw(st.integers(0, len(kinds)))
        found = translate(upstream, [one for one in syncs if draw(st.booleans())])
        if found is not None:
            about = {"topic": "t", "partition": 0, "downstream_offset": found.offset}
            checkpoints.append(MirrorCheckpoint(group_id=f"c{number}", upstream_offset=upstream, **about))
    return Mirror(places, len(kinds), end, syncs, tuple(checkpoints))


@given(mirrors(), st.data())
def test_nothing_unfinished_is_skipped(mirror: Mirror, data: st.DataObject) -> None:
    """The translation lies at or before the place of every record from the offset on, and never beyond the end."""
    offset = data.draw(st.integers(0, mirror.source_end))
    found = translate(offset, mirror.syncs, mirror.checkpoints)
    if found is not None:
        assert all(found.offset <= place for record, place in mirror.places.items() if record >= offset)
        assert 0 <= found.offset <= mirror.target_end


@given(mirrors(), st.data())
def test_what_is_delivered_again_is_bounded(mirror: Mirror, data: st.DataObject) -> None:
    """No more finished records than the translation tells lie at or after it; with 0 it is exact."""
    offset = data.draw(st.integers(0, mirror.source_end))
    found = translate(offset, mirror.syncs, mirror.checkpoints)
    if found is not None and found.passed_most is not None:
        again = [record for record, place in mirror.places.items() if record < offset and place >= found.offset]
        assert len(again) <= found.passed_most


@given(mirrors())
def test_translation_is_monotone(mirror: Mirror) -> None:
    """A later offset never has an earlier translation; where one offset has one, all later ones have."""
    found = [translate(offset, mirror.syncs, mirror.checkpoints) for offset in range(mirror.source_end + 3)]
    known = [each.offset for each in found if each is not None]
    assert known == sorted(known)
    assert all(each is not None for each in found[len(found) - len(known) :])


@given(mirrors())
def test_a_sync_is_exact_at_its_own_offset(mirror: Mirror) -> None:
    """Checkpoints that a mirror translated from its syncs change nothing there."""
    for one in mirror.syncs:
        found = translate(one.upstream_offset, mirror.syncs, mirror.checkpoints)
        assert found == TranslatedOffset(offset=one.downstream_offset, passed_most=0)


@pytest.mark.parametrize("case", GOLDEN["translations"])
def test_it_is_never_behind_mirror_makers_own(case: dict[str, Any]) -> None:
    """MirrorMaker 2 forgets most syncs and translates with the others: where it knows an answer there is one here, at
    or after it; where it knows none there is none."""
    kept = valid_syncs(sync(*pair) for pair in case["syncs"]).get(("t", 0), ())
    for offset, theirs in zip(case["offsets"], case["answers"], strict=True):
        ours = translate(offset, kept)
        assert (ours is None) == (theirs < 0)
        assert ours is None or ours.offset >= theirs
        if ours is not None and [offset, ours.offset] == case["syncs"][-1]:
            assert ours.offset == theirs


@pytest.mark.parametrize(
    ("records", "kept"),
    [
        ([(0, 3), (4, 7), (9, 8)], [(0, 3), (4, 7), (9, 8)]),
        ([(0, 3), (0, 3), (4, 7)], [(0, 3), (4, 7)]),
        ([(0, 3), (9, 12), (4, 15)], [(4, 15)]),  # the mirror began again
        ([(0, 3), (9, 12), (11, 2)], [(11, 2)]),  # the target's topic was made anew
        ([(0, 3), (9, 12), (9, 13)], [(9, 13)]),
        ([(-1, 3), (5, -1)], []),
    ],
)
def test_syncs_that_contradict_later_ones_are_dropped(
    records: Sequence[tuple[int, int]], kept: Sequence[tuple[int, int]]
) -> None:
    """What goes back on either side begins anew; numbers below 0 are no offsets."""
    found = valid_syncs(sync(*pair) for pair in records).get(("t", 0), ())
    assert [(one.upstream_offset, one.downstream_offset) for one in found] == kept


def test_a_checkpoint_counts_where_it_agrees_with_the_syncs() -> None:
    """One further on than the sync below counts, with the sync's bound; one beyond a later sync does not; the newest of
    each group is taken."""
    about = {"topic": "t", "partition": 0}
    old = MirrorCheckpoint(group_id="a", upstream_offset=3, downstream_offset=8, **about)
    new = MirrorCheckpoint(group_id="a", upstream_offset=5, downstream_offset=9, **about)
    wrong = MirrorCheckpoint(group_id="b", upstream_offset=4, downstream_offset=99, **about)
    syncs = [sync(2, 4), sync(9, 12)]
    (own,) = checkpoints_by_part([old, wrong, new]).values()
    assert set(own) == {new, wrong}
    assert translate(7, syncs, own) == TranslatedOffset(offset=9, passed_most=4)
    assert translate(4, syncs, own) == TranslatedOffset(offset=5, passed_most=1)
    assert translate(4, [], [new]) is None
    assert translate(6, [], [new]) == TranslatedOffset(offset=9, passed_most=None)
