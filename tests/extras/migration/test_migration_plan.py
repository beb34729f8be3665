"""The plan of a migration, without a broker: what is asked for, what it says, and what it refuses; what a mirror told,
against the bytes of MirrorMaker 2's own classes, and never beyond what is known."""

from __future__ import annotations

import datetime as dt
import json
import re
from base64 import b64decode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from change import scenes
from change.scenes import a_plan, a_snapshot, group_facts, partition_facts
from definitions.mirror_encoders import encode_pair
from drivers.command_line import loaded
from hypothesis import given
from hypothesis import strategies as st
from samples.random_records import INT32, INT64
from state_topics.coordinator_log import CLUSTER, from_raw

from acktrail.change.cluster import Cluster
from acktrail.change.plan.change_plan import plan_json
from acktrail.change.plan.snapshot_facts import PartitionFacts, TargetOffset
from acktrail.change.request.reset_request import OutOfRange, ResetRequest
from acktrail.config import TablesConfig
from acktrail.errors import ChangeRefused, ConfigurationError, MalformedRecord, UnsupportedRecord
from acktrail.format.wire.raw_record import RawRecord
from acktrail.format.wire.state_record import encode
from acktrail.kafka.client.error_codes import TOPIC_AUTHORIZATION_FAILED
from acktrail.kafka.descriptions import LogOffsets, TopicDescription, TopicPartition
from acktrail.model.batches import StateBatch
from acktrail.model.records import ShareSnapshot
from acktrail.model.share_partition import GroupId, SharePartition, TopicId, topic_id_text
from acktrail.tables.cluster_check import create_for, create_records_for
from acktrail.tables.delta.store import Tables
from acktrail.view.change_text import plan_text
from acktrail_migration import mirror_evidence
from acktrail_migration.migration_kind import (
    MIGRATION,
    CarriedState,
    Migration,
    MigrationPlan,
    TranslationWay,
    parse_migration,
)
from acktrail_migration.mirror_evidence import (
    MirrorPair,
    SourceOffset,
    TranslatedOffset,
    Translations,
    checkpoints_by_part,
    decode_pair,
    translate,
    valid_syncs,
)
from acktrail_migration.new_migration import SourcePartition, SourceStates, carry, read_source, with_carried

SAME = {"way": "same", "groups": ["g"]}


def request(**changes: Any) -> tuple[ResetRequest, Migration]:
    return parse_migration({**SAME, **changes}, asks_source=False)


def carried(start: int | None = 40, **changes: Any) -> CarriedState:
    found = CarriedState(
        topic="orders",
        start_offset=start,
        acknowledged=3,
        archived=1,
        in_flight=2,
        passed=0,
        passed_most=0,
    )
    return replace(found, **changes)


def facts(offset: int | None, log: tuple[int, int] = (10, 100)) -> PartitionFacts:
    """A share partition that the target's group does not have, and the offset that is to be carried there."""
    found = TargetOffset(offset=offset, reason=None if offset is not None else "no pair")
    return partition_facts(None, log, state=None, is_described=False, start_offset=None, given=found)


def plan(*rows: tuple[PartitionFacts, CarriedState], **changes: Any) -> MigrationPlan:
    group = group_facts(error_code=69, state=None, group_epoch=None)
    asked, migration = request(**changes)
    numbered = [replace(row, partition=index) for index, (row, _) in enumerate(rows)]
    made = a_plan(asked, a_snapshot(*numbered, groups=(group,)))
    states = {(row.topic, row.partition): (row.given, state) for row, (_, state) in zip(numbered, rows, strict=True)}
    return with_carried(made, migration, {made.group_ids[0]: states})


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"way": "guess"}, "no_translation"),
        ({"way": None}, "no_translation"),
        ({"way": "timestamp"}, "source_needed"),
        ({"way": "mm2"}, "no_mirror_topic"),
        ({"offset_syncs": "mm2-offset-syncs.eu.internal"}, "two_translations"),
        ({"topic_map": ["orders"]}, "bad_topic_map"),
        ({"topic_map": ["=orders"]}, "bad_topic_map"),
        ({"topic_map": ["a=b", "a=c"]}, "bad_topic_map"),
        ({"topic_map": ["a=c", "b=c"]}, "bad_topic_map"),
        ({"groups": []}, "no_group"),
        ({"all_groups": True}, "two_group_choices"),
        ({"topics": ["orders:0", "orders:0"]}, "duplicate_partition"),
        ({"out_of_range": "wrap"}, "bad_out_of_range"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict[str, Any], rule: str) -> None:
    """Before any cluster or table is read, with the rule's name."""
    with pytest.raises(ChangeRefused) as refused:
        request(**changes)
    assert refused.value.rule == rule


@given(
    offset=st.one_of(st.none(), st.integers(0, 130)),
    log=st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: (pair[0], sum(pair))),
    clamp=st.booleans(),
)
def test_a_target_is_the_translated_offset_or_refused(offset: int | None, log: tuple[int, int], clamp: bool) -> None:
    """Within the log it is taken as it is; outside it is refused, or with --out-of-range clamp the nearest end."""
    made = plan((facts(offset, log), carried()), **({"out_of_range": OutOfRange.CLAMP} if clamp else {}))
    (row,), rules = made.partitions, {notice.rule for notice in made.refusals}
    if offset is None:
        assert (row.target_offset, rules) == (None, {"no_offset_given"})
    elif log[0] <= offset <= log[1]:
        assert (row.target_offset, rules) == (offset, set())
    elif clamp:
        assert (row.target_offset, rules) == (min(max(offset, log[0]), log[1]), set())
        assert (made.carried[0].delivered_again is None) == (offset < log[0])
    else:
        assert (row.target_offset, rules) == (None, {"out_of_range"})


def test_sums_are_of_what_is_carried() -> None:
    """Refused share partitions are not in them; where one number is not known the sum is not, its bound is."""
    open_ = carried(passed=None, passed_most=5, reason="why")
    made = plan((facts(40), carried()), (facts(30), open_), (facts(None), carried()))
    assert made.kind == "migration"
    found = {notice.rule for notice in made.notices if notice.partition == 1}
    assert found == {"archived_not_carried", "acknowledgements_not_carried", "passed_not_known", "passed_before"}
    text = MIGRATION.text(made)
    assert "finished on the source, delivered again: <=13 (not known exactly of 1)" in text
    assert "refused" in text
    assert re.findall(r": +(\S+)", text)[-5:] == ["2", "<=13", "6", "2", "4"]
    sums = [line.rsplit(":", 1) for line in plan_text(made).splitlines() if re.search(r": +\d+$", line)]
    labels = [label.strip() for label, _ in sums]
    assert len(labels) == len(set(labels)) > 5, "no label stands for two numbers"


def test_a_plan_in_a_file_is_shown_without_a_client(tmp_path: Path) -> None:
    """Neither is what makes plans loaded, nor what stores them."""
    (tmp_path / "plan.json").write_text(plan_json(plan((facts(40), carried()))))
    (code,), modules = loaded(f"change show {tmp_path}/plan.json")
    assert (code, modules & {"numpy", "pyarrow", "pandas", "kafka.net.manager"}) == (0, set())


def states(*parts: tuple[str, str, CarriedState]) -> SourceStates:
    found = (
        SourcePartition(group_id=group, partition=0, recorded_start=0, carried=replace(state, topic=topic, passed=None))
        for group, topic, state in parts
    )
    return SourceStates(cluster_id="old", partitions=tuple(found), partition_counts={}, notices=())


def test_every_share_partition_has_an_offset_or_a_reason() -> None:
    """That of its group's start offset, under the target's name; two topics may not become one."""
    translations: Translations = {
        SourceOffset(topic="a", partition=0, offset=40): TranslatedOffset(offset=44, passed_most=0),
        SourceOffset(topic="a", partition=0, offset=50): TranslatedOffset(offset=48, passed_most=7),
        SourceOffset(topic="b", partition=0, offset=40): "no pair",
    }
    migration = Migration(way=TranslationWay.MM2, topic_prefix="eu.")
    unknown = carried(None, reason="a gap")
    found = carry(
        states(("g", "a", carried()), ("h", "a", carried(50)), ("g", "b", carried()), ("g", "c", unknown)),
        translations,
        migration,
    )
    assert {(group, place): own.offset for group, parts in found.items() for place, (own, _) in parts.items()} == {
        ("g", ("eu.a", 0)): 44,
        ("h", ("eu.a", 0)): 48,
        ("g", ("eu.b", 0)): None,
        ("g", ("eu.c", 0)): None,
    }
    assert [found["g"][name, 0][0].reason for name in ("eu.a", "eu.b", "eu.c")] == [None, "no pair", "a gap"]
    exact, bounded = found["g"]["eu.a", 0][1], found["h"]["eu.a", 0][1]
    assert (exact.delivered_again, bounded.delivered_again, bounded.delivered_again_most) == (4, None, 11)
    twice = states(("g", "a", carried()), ("g", "b", carried()))
    with pytest.raises(ChangeRefused, match="two_topics_one_name"):
        carry(twice, translations, Migration(way=TranslationWay.SAME, topic_map=(("a", "b"),)))


STATE_TOPIC = topic_id_text(b"S" * 16)
ORDERS, NEW_ORDERS, LOST = (topic_id_text(name * 16) for name in (b"A", b"B", b"C"))
AT = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)


def snapshot(start: int | None, batches: Sequence[tuple[int, int, int, int]] = (), **key: Any) -> ShareSnapshot:
    named = {"group_id": GroupId("g"), "topic_id": TopicId(ORDERS), "partition": 0, **key}
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    found = tuple(StateBatch(**dict(zip(names, batch, strict=True))) for batch in batches)
    return replace(scenes.snapshot(start), key=SharePartition(**named), batches=found)


class Source:
    """Tables of one state partition, as an exporter leaves them; the n-th record was written at n seconds."""

    def __init__(self, folder: Path) -> None:
        self.config = TablesConfig(uri=str(folder))
        self.tables = Tables(self.config)
        create_records_for(self.tables, CLUSTER, STATE_TOPIC, "4.2")
        create_for(self.tables, "export_ranges", CLUSTER)
        self.offset = 0
        self.topic(ORDERS, "orders", 2, seen=1)

    def topic(self, topic_id: str, name: str, partitions: int, *, seen: int) -> None:
        row = {"cluster_id": CLUSTER, "topic_id": topic_id, "topic": name, "partition_count": partitions}
        at = AT + dt.timedelta(hours=seen)
        self.tables.append("topics", [{**row, "first_seen_at": at, "last_seen_at": at, "status": "present"}])

    def write(self, *records: ShareSnapshot, gap: int = 0) -> None:
        """Export records, after `gap` records that were pruned before."""
        first, rows = self.offset + gap, []
        for offset, record in enumerate(records, start=first):
            key, value = encode(record)
            rows.append({"partition": 0, "offset": offset, "timestamp": 1000 * offset, "key": key, "value": value})
        if rows:
            self.tables.append("state_records", from_raw(rows))
        self.offset = first + len(rows)
        found = {"first_offset": first, "last_offset": self.offset - 1, "records_read": len(rows)} if rows else {}
        lost = {"gap_first": first - gap, "gap_last": first - 1, "gap_reason": "pruned"} if gap else {}
        about = {"cluster_id": CLUSTER, "run_id": "r", "state_topic_id": STATE_TOPIC, "state_partition": 0}
        self.tables.append("export_ranges", [{**about, **found, **lost, "exported_at": AT}])

    def read(self, at_s: int | None = None, **asked: Any) -> SourceStates:
        at_ms = None if at_s is None else 1000 * at_s
        params = {"way": "same", "groups": [] if "group_globs" in asked or "all_groups" in asked else ["g"]}
        return read_source(self.config, parse_migration({**params, **asked}, asks_source=False)[0], at_ms)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


def starts(states: SourceStates) -> list[tuple[str, int, int | None]]:
    return [(part.carried.topic, part.partition, part.carried.start_offset) for part in states.partitions]


def test_every_moment_has_its_own_state(source: Source) -> None:
    """The start offset is the first unfinished record as of then; what is finished from there on is counted by kind."""
    source.write(
        snapshot(10),
        snapshot(10, [(10, 12, 2, 1), (13, 13, 0, 2), (14, 16, 2, 1), (17, 17, 4, 3), (19, 20, 3, 1)]),
        snapshot(18, [(18, 18, 4, 1)]),
    )
    for at, expected in ((0, (10, 0, 0, 0)), (1, (13, 3, 1, 3)), (2, (19, 0, 0, 0)), (None, (19, 0, 0, 0))):
        (part,) = source.read(at).partitions
        found = part.carried
        assert (found.start_offset, found.acknowledged, found.archived, found.in_flight) == expected
        assert found.reason is None
    assert source.read(1).cluster_id == CLUSTER
    assert source.read(1).partition_counts == {"orders": 2}


def test_what_the_tables_do_not_show_has_a_reason(source: Source) -> None:
    """A share partition that was never initialized, and one whose records were pruned before they were exported: no
    start offset and no count; a group that had no state at the moment is not there."""
    source.write(snapshot(None), snapshot(5, partition=1))
    assert [part.carried.reason for part in source.read().partitions] == [
        "it had no start offset: it was not initialized",
        None,
    ]
    source.write(gap=3)
    for part in source.read().partitions:
        assert (part.carried.start_offset, part.carried.acknowledged, part.recorded_start) == (None, None, None)
        assert "were not exported" in (part.carried.reason or "")
    source.write(snapshot(6, partition=1))
    assert starts(source.read()) == [("orders", 0, None), ("orders", 1, 6)]
    source.write(snapshot(0, group_id=GroupId("later")))
    with pytest.raises(ChangeRefused, match=r"no share group 'later' at 1970-01-01T00:00:01\.000Z"):
        source.read(1, groups=["later"])


def test_groups_and_topics_are_chosen(source: Source) -> None:
    """By name, pattern, all, and topic with partitions; what matches nothing is refused, and so are all of nothing and
    tables into which nothing was exported."""
    with pytest.raises(ConfigurationError, match="no tables at"):
        read_source(TablesConfig(uri=f"{source.config.uri}/none"), request()[0], None)
    source.write(gap=3)
    for at_s, hint in ((None, "acktrail run export"), (0, "a later --at")):
        with pytest.raises(ChangeRefused, match="the tables have no share group") as caught:
            source.read(at_s, all_groups=True)
        assert (caught.value.rule, hint in caught.value.hint) == ("nothing_to_migrate", True)
    source.write(snapshot(1), snapshot(2, partition=1), snapshot(3, group_id=GroupId("h")))
    assert source.read(group_globs=["*"]).group_ids == source.read(all_groups=True).group_ids == ("g", "h")
    assert starts(source.read(topics=["orders:1"])) == [("orders", 1, 2)]
    with pytest.raises(ChangeRefused, match="nothing_to_migrate"):
        source.read(topics=["others"])
    for asked in ({"groups": ["gg"]}, {"group_globs": ["x*"]}):
        with pytest.raises(ChangeRefused, match="no_such_group"):
            source.read(**asked)


def test_topics_are_named_by_their_newest_life(source: Source) -> None:
    """Of two topics with one name the one that was written last counts; one without a name is left out, with a
    notice."""
    source.write(snapshot(50), snapshot(3, topic_id=NEW_ORDERS), snapshot(8, topic_id=LOST))
    source.topic(NEW_ORDERS, "orders", 6, seen=2)
    found = source.read()
    assert starts(found) == [("orders", 0, 3)]
    assert found.partition_counts == {"orders": 6}
    assert [notice.rule for notice in found.notices] == ["exported_until", "unnamed_topic"]
    assert LOST in found.notices[1].text


def test_a_moment_after_the_export_is_warned_of(source: Source) -> None:
    """What came later is not in the tables; a moment before the export began may lack share partitions."""
    source.write(snapshot(1))
    after = int(AT.timestamp()) + 60
    assert [notice.severity.value for notice in source.read(after).notices] == ["warning"]
    assert [notice.severity.value for notice in source.read().notices] == ["info"]


GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "support/golden/mirror_maker/records.json").read_text("ascii")
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
