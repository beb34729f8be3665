"""Records of MirrorMaker 2's internal topics, against the bytes of its own classes; and translation of offsets by what
a mirror told: never beyond what is known."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from definitions.mirror_encoders import encode_pair
from hypothesis import given
from hypothesis import strategies as st
from samples.random_records import INT32, INT64

from acktrail.change.cluster import Cluster
from acktrail.errors import ConfigurationError, MalformedRecord, UnsupportedRecord
from acktrail.format.wire.raw_record import RawRecord
from acktrail.kafka.client.error_codes import TOPIC_AUTHORIZATION_FAILED
from acktrail.kafka.descriptions import LogOffsets, TopicDescription, TopicPartition
from acktrail_plugins.migration import mirror_evidence
from acktrail_plugins.migration.mirror_evidence import (
    MirrorPair,
    TranslatedOffset,
    checkpoints_by_part,
    decode_pair,
    translate,
    valid_syncs,
)

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "support/golden/mirror_maker/records.json").read_text("ascii")
)


def sync(upstream: int, downstream: int) -> MirrorPair:
    return MirrorPair(topic="t", partition=0, upstream_offset=upstream, downstream_offset=downstream)


@dataclass(frozen=True)
class Mirror:
    """A source log with gaps, and where the mirror wrote each record that it did not drop; syncs of some of them."""

    places: dict[int, int]
    source_end: int
    target_end: int
    syncs: tuple[MirrorPair, ...]
    checkpoints: tuple[MirrorPair, ...]


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
            checkpoints.append(MirrorPair(group_id=f"c{number}", upstream_offset=upstream, **about))
    return Mirror(places, len(kinds), end, syncs, tuple(checkpoints))


@given(mirrors())
def test_a_translation_skips_nothing_and_bounds_what_comes_again(mirror: Mirror) -> None:
    """It lies at or before the place of every record from the offset on, and never beyond the end. No more finished
    records than it tells lie at or after it. A later offset never has an earlier one; where one offset has one, all
    later ones have. At a sync's own offset it is exact; checkpoints that a mirror translated from its syncs change
    nothing there."""
    found = [translate(offset, mirror.syncs, mirror.checkpoints) for offset in range(mirror.source_end + 3)]
    for offset, own in enumerate(found[: mirror.source_end + 1]):
        if own is not None:
            assert all(own.offset <= place for record, place in mirror.places.items() if record >= offset)
            assert 0 <= own.offset <= mirror.target_end
            again = [record for record, place in mirror.places.items() if record < offset and place >= own.offset]
            assert own.passed_most is None or len(again) <= own.passed_most
    known = [each.offset for each in found if each is not None]
    assert known == sorted(known)
    assert all(each is not None for each in found[len(found) - len(known) :])
    for one in mirror.syncs:
        assert found[one.upstream_offset] == TranslatedOffset(offset=one.downstream_offset, passed_most=0)


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
    old = MirrorPair(group_id="a", upstream_offset=3, downstream_offset=8, **about)
    new = MirrorPair(group_id="a", upstream_offset=5, downstream_offset=9, **about)
    wrong = MirrorPair(group_id="b", upstream_offset=4, downstream_offset=99, **about)
    syncs = [sync(2, 4), sync(9, 12)]
    (own,) = checkpoints_by_part([old, wrong, new]).values()
    assert set(own) == {new, wrong}
    assert translate(7, syncs, own) == TranslatedOffset(offset=9, passed_most=4)
    assert translate(4, syncs, own) == TranslatedOffset(offset=5, passed_most=1)
    assert translate(4, [], [new]) is None
    assert translate(6, [], [new]) == TranslatedOffset(offset=9, passed_most=None)


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=9)
numbers = {"partition": INT32, "upstream_offset": INT64, "downstream_offset": INT64}
pairs = st.builds(MirrorPair, group_id=st.none() | texts, topic=texts, **numbers)
bytes_ = st.binary(max_size=40)


def _decoded(pair: MirrorPair, key: bytes | None, value: bytes | None) -> MirrorPair:
    return decode_pair(key, value, is_checkpoint=pair.group_id is not None)


@pytest.mark.parametrize("row", [*GOLDEN["offset_syncs"], *GOLDEN["checkpoints"]])
def test_records_are_kafkas(row: dict[str, Any]) -> None:
    """As Kafka 4.3.1 wrote them, byte for byte, in both directions."""
    fields = dict(row)
    encoded = b64decode(fields.pop("key")), b64decode(fields.pop("value"))
    metadata, pair = fields.pop("metadata", ""), MirrorPair(**fields)
    assert encode_pair(pair, metadata) == encoded
    assert _decoded(pair, *encoded) == pair


@given(pairs, texts)
def test_what_is_written_is_read(pair: MirrorPair, metadata: str) -> None:
    """Every record survives its bytes; what follows them is skipped, as Kafka does."""
    key, value = encode_pair(pair, metadata)
    assert _decoded(pair, key, value) == _decoded(pair, key + b"x", value + b"y") == pair


@given(st.none() | bytes_, st.none() | bytes_, st.booleans())
def test_other_bytes_are_refused_with_their_place(key: bytes | None, value: bytes | None, is_checkpoint: bool) -> None:
    """Any bytes are a record, or an error of acktrail's with key or value in it."""
    with suppress(MalformedRecord, UnsupportedRecord):
        decode_pair(key, value, is_checkpoint=is_checkpoint)
    with pytest.raises(MalformedRecord, match=r"null (key|value)"):
        decode_pair(*((key, None) if value is None else (None, value)), is_checkpoint=is_checkpoint)


@given(pairs, st.integers(1, 60))
def test_a_record_that_is_cut_off_is_refused(pair: MirrorPair, cut: int) -> None:
    """At every byte of its numbers; and so is a version of checkpoints that no release has."""
    key, value = encode_pair(pair)
    end = len(value) - (0 if pair.group_id is None else 2)
    with pytest.raises(MalformedRecord):
        _decoded(pair, key, value[: max(0, end - cut)])
    with pytest.raises(MalformedRecord):
        _decoded(pair, key[: max(0, len(key) - cut)], value)
    if pair.group_id is not None:
        with pytest.raises(UnsupportedRecord):
            _decoded(pair, key, b"\x00\x01" + value[2:])


def test_a_topic_that_the_target_hides_is_looked_for_on_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without DESCRIBE a cluster does not tell whether it has MirrorMaker's topic: the other one is asked."""

    class Admin:
        def __init__(self, error_code: int) -> None:
            about: dict[str, Any] = {"name": "syncs", "is_internal": False, "error_code": error_code, "error": None}
            count = 0 if error_code else 1
            self.described = TopicDescription(topic_id=None if error_code else "x", partition_count=count, **about)
            self.cluster_id = "c"

        def topics(self, _: Sequence[str]) -> Sequence[TopicDescription]:
            return (self.described,)

        def list_offsets(self, wanted: Sequence[TopicPartition]) -> Sequence[LogOffsets]:
            ends: dict[str, Any] = dict.fromkeys(("log_start_offset", "leader_epoch", "error_code"), 0)
            ends |= {"high_watermark": 1, "last_stable_offset": 1, "error": None}
            return [LogOffsets(topic=each.topic, partition=each.partition, **ends) for each in wanted]

    key, value = encode_pair(sync(2, 5))
    record = RawRecord(state_partition=0, offset=0, timestamp_ms=0, key=key, value=value)
    monkeypatch.setattr(mirror_evidence, "_read", lambda _, stretches: {stretch: [record] for stretch in stretches})
    target, source = (cast("Cluster", SimpleNamespace(admin=Admin(code))) for code in (TOPIC_AUTHORIZATION_FAILED, 0))
    assert list(mirror_evidence._mirror_pairs("syncs", [target, source])) == [sync(2, 5)]
    with pytest.raises(ConfigurationError, match="it is not on the target"):
        list(mirror_evidence._mirror_pairs("syncs", [target]))
