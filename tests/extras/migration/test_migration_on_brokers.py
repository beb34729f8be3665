"""Share groups carried from a real 4.2.1 cluster to a real 4.3.1 one: a consumer there starts where the plan said."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, Final

import pytest
from change.world import BASE_MS, Fates, Part, World
from confluent_kafka import AcknowledgeType, Producer
from definitions.mirror_encoders import encode_pair
from drivers.command_line import Done, run
from drivers.whole_topic import messages_of
from servers.workload import start_at, until

from acktrail.change.cluster import Cluster
from acktrail.change.reset_planner import NOT_INITIALIZED
from acktrail.cli.main import _run
from acktrail.errors import ConfigurationError
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail_migration.migration_kind import CarriedState, Migration, TranslationWay
from acktrail_migration.mirror_evidence import MirrorPair, SourceOffset, TranslatedOffset, find_translations
from acktrail_migration.new_migration import SourcePartition, SourceStates, _begun, carry

pytestmark = pytest.mark.slow

GROUP: Final = "carried"
TOPIC: Final = "carried-orders"
RECORDS: Final = 12
RELEASED: Final = {(0, 4), (1, 6), (1, 9)}
REJECTED: Final = {(0, 2), (0, 7), (1, 8)}
STARTS: Final = {0: 4, 1: 6}
"""The first record of each partition that the source did not finish."""
FILLERS: Final = {0: 3, 1: 5}
"""Records that mirrors under another name begin with: their offsets are shifted by as many."""
SYNCS: Final = "mm2-offset-syncs.eu.internal"
CHECKPOINTS: Final = "eu.checkpoints.internal"
ACKNOWLEDGED: Final = 6 + 3
ARCHIVED: Final = 1 + 1


@dataclass(frozen=True)
class Clusters:
    """The source, stopped or not, with what its group did; the target; the folder of both clusters' tables."""

    source: World
    broker: EmbeddedBroker
    fates: Fates
    target: World
    source_tables: str

    def migrate(self, capsys: pytest.CaptureFixture[str], name: str, *words: str) -> Done:
        tables, brokers = self.target.tables.uri, self.target.kafka.bootstrap_servers
        if name == "plan":
            where = ["--target-tables", tables, "--target-bootstrap-server", brokers]
            where += ["--group", GROUP, "--tables", self.source_tables, "--json"]
            return run(capsys, "change", "plan", "migration", *words, *where)
        where = ["--tables", tables] if name == "show" else ["--tables", tables, "--bootstrap-server", brokers]
        return run(capsys, "change", name, *words, *where)

    def plan(self, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
        done = self.migrate(capsys, "plan", *words)
        assert done.code == 0, done
        return dict(json.loads(done.stdout))

    def carry_out(self, capsys: pytest.CaptureFixture[str], plan: dict[str, Any]) -> None:
        done = self.migrate(capsys, "apply", plan["plan_id"], "--execute", "--watch", "0", "--json")
        assert done.code == 0, done
        statuses = [row["status"] for row in json.loads(done.stdout)["partitions"]]
        assert len(statuses) == len(plan["partitions"])
        assert all(status.startswith("OK") for status in statuses)


@pytest.fixture(scope="module")
def clusters(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """A group on 4.2.1 that finished some records, rejected some and released some; everything exported; the topic
    mirrored to 4.3.1 three times, under its own name with the same offsets and with shifted ones."""
    folder = tmp_path_factory.mktemp("migration")
    target = World.at(broker.config(), folder / "target")
    with EmbeddedBroker("4.2.1") as old:
        source = World.at(old.config(), folder / "source")
        source.make_topic(TOPIC, len(STARTS), RECORDS)
        fates = source.settle(GROUP, TOPIC, len(STARTS) * RECORDS, _decide)
        assert _run(["run", "export", "--bootstrap-server", old.bootstrap_servers, "--tables", source.tables.uri]) == 0
        records = sorted(messages_of(to_librdkafka(source.kafka), TOPIC), key=lambda m: (m.partition(), m.offset()))
        for name, fillers in ((TOPIC, {}), (f"eu.{TOPIC}", FILLERS), (f"mm.{TOPIC}", FILLERS)):
            target.workload.create_topic(name, len(STARTS))
            _mirror(target, name, records, fillers)
        _write_mirror_topics(target)
        yield Clusters(source, old, fates, target, source.tables.uri)


def _decide(part: Part) -> AcknowledgeType:
    if part in RELEASED:
        return AcknowledgeType.RELEASE
    return AcknowledgeType.REJECT if part in REJECTED else AcknowledgeType.ACCEPT


def _produce(world: World, topic: str, rows: Iterable[dict[str, Any]]) -> None:
    producer = Producer(to_librdkafka(world.kafka))
    for row in rows:
        producer.produce(topic, **row)
    assert producer.flush(30) == 0


def _mirror(world: World, topic: str, records: Sequence[Any], fillers: dict[int, int]) -> None:
    """Write records as a mirror does: partition, time, key and value stay."""
    first = [{"value": b"filler", "partition": p, "timestamp": 1_000} for p, n in fillers.items() for _ in range(n)]
    copies = (
        {"partition": one.partition(), "timestamp": one.timestamp()[1], "value": one.value(), "key": one.key()}
        for one in records
    )
    _produce(world, topic, [*first, *copies])


def _write_mirror_topics(world: World) -> None:
    """What MirrorMaker 2 would write: partition 0 has a sync at its start offset, partition 1 one below, and a consumer
    group's checkpoint between both."""
    syncs = [_pair(*at) for at in ((0, 0), (0, 4), (0, 11), (1, 2), (1, 10))]
    checkpoint = replace(_pair(1, 4), group_id="consumers", topic=f"mm.{TOPIC}")
    for topic, pairs in ((SYNCS, syncs), (CHECKPOINTS, [checkpoint])):
        world.workload.create_topic(topic)
        _write_pairs(world, topic, pairs)


def _write_pairs(world: World, topic: str, pairs: Iterable[MirrorPair]) -> None:
    _produce(world, topic, [dict(zip(("key", "value"), encode_pair(pair), strict=True), partition=0) for pair in pairs])


def _pair(partition: int, upstream: int) -> MirrorPair:
    downstream = upstream + FILLERS[partition]
    return MirrorPair(topic=TOPIC, partition=partition, upstream_offset=upstream, downstream_offset=downstream)


def _check_consumer(clusters: Clusters, plan: dict[str, Any], topic: str, fillers: dict[int, int]) -> int:
    """A share consumer on the target gets exactly what lies from the plan's start offsets on, each record for the first
    time; how many of them the source had finished, and that nothing unfinished is missing."""
    starts = {row["partition"]: row["target_offset"] for row in plan["partitions"]}
    ends = {partition: RECORDS + fillers.get(partition, 0) for partition in starts}
    expected = [(p, offset, 1) for p in sorted(starts) for offset in range(starts[p], ends[p])]
    found = clusters.target.deliveries(GROUP, topic, len(expected))
    clusters.target.wait_empty(GROUP)
    assert [(one.partition, one.offset, one.count) for one in found] == expected
    on_source = {(one.partition, one.offset - fillers.get(one.partition, 0)) for one in found}
    assert on_source >= RELEASED
    return sum(clusters.fates[part] != AcknowledgeType.RELEASE for part in on_source)


def _numbers(plan: dict[str, Any]) -> tuple[int, ...]:
    """Acknowledged, archived, and how many finished records below the start offsets may come again."""
    return tuple(sum(row[name] for row in plan["carried"]) for name in ("acknowledged", "archived", "passed_most"))


def test_the_same_offsets_are_carried(clusters: Clusters, capsys: pytest.CaptureFixture[str]) -> None:
    """The source is not asked. The group is created on the target; what it gets there is what the plan counted. A
    second plan while a member is there is refused."""
    assert {part[0]: part[1] for part in sorted(RELEASED, reverse=True)} == STARTS
    plan = clusters.plan(capsys, "--translate", "same")
    assert (plan["kind"], plan["migration"]["asks_source"]) == ("migration", False)
    assert {row["partition"]: row["target_offset"] for row in plan["partitions"]} == STARTS
    assert _numbers(plan) == (ACKNOWLEDGED, ARCHIVED, 0)
    shown = clusters.migrate(capsys, "show", plan["plan_id"]).stdout
    assert f"acknowledged on the source:            {ACKNOWLEDGED}\n" in shown
    assert "[group_is_made]" in shown
    dry = clusters.migrate(capsys, "apply", plan["plan_id"])
    assert (dry.code, "nothing was sent" in dry.stderr) == (0, True)
    with ShareGroupAdmin(clusters.target.kafka) as admin:
        assert GROUP not in {listing.group_id for listing in admin.list_groups()}
    clusters.carry_out(capsys, plan)
    assert _check_consumer(clusters, plan, TOPIC, {}) == ACKNOWLEDGED + ARCHIVED

    with clusters.target.member(GROUP, TOPIC):
        refused = clusters.migrate(capsys, "plan", "--translate", "same")
        assert refused.code == 4
        assert "[group_not_empty]" in refused.stderr


def test_offsets_are_translated_by_time(clusters: Clusters, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the living source shows the first unfinished record, its copy is found on the target by its time; the
    number of records that are delivered again is exact."""
    words = ("--translate", "timestamp", "--topic-prefix", "eu.")
    assert "[source_needed]" in clusters.migrate(capsys, "plan", *words).stderr
    plan = clusters.plan(capsys, *words, "--ask-source", "--bootstrap-server", clusters.source.kafka.bootstrap_servers)
    expected = {partition: start + FILLERS[partition] for partition, start in STARTS.items()}
    assert {row["partition"]: row["target_offset"] for row in plan["partitions"]} == expected
    assert _numbers(plan) == (ACKNOWLEDGED, ARCHIVED, 0)
    clusters.carry_out(capsys, plan)
    assert _check_consumer(clusters, plan, f"eu.{TOPIC}", FILLERS) == ACKNOWLEDGED + ARCHIVED


TIMES: Final = tuple(BASE_MS + ms for ms in (1_000, 2_000, 2_000, 2_000, 1_500, 3_000, 3_000))
"""Of the records of a topic with ties and one late record."""


@pytest.mark.full
def test_times_are_proofs_and_not_guesses(clusters: Clusters) -> None:
    """Every offset of a log, its end included, is exact where times are unique. Ties and late records lead to the
    first record of that time, with a bound; never past the copy of a record from the offset on. A target that stamps
    records itself, a copy with other contents, and one that lacks the record are refused with the reason."""
    _write(clusters.source, "ties", TIMES)
    _write(clusters.target, "eu.ties", (BASE_MS, *TIMES))
    _write(clusters.target, "stamped.ties", TIMES, **{"message.timestamp.type": "LogAppendTime"})
    _write(clusters.target, "changed.ties", TIMES, text="other")
    _write(clusters.target, "short.ties", TIMES[:1])
    unique = [SourceOffset(topic=TOPIC, partition=0, offset=offset) for offset in range(RECORDS + 1)]
    ties = [SourceOffset(topic="ties", partition=0, offset=offset) for offset in range(len(TIMES) + 1)]
    with Cluster(clusters.source.kafka) as source, Cluster(clusters.target.kafka) as target:

        def found(prefix: str, offsets: Sequence[SourceOffset]) -> list[TranslatedOffset | str]:
            migration = Migration(way=TranslationWay.TIMESTAMP, topic_prefix=prefix, asks_source=True)
            translations = find_translations(migration, offsets, source=source, target=target)
            return [translations[each] for each in offsets]

        shift = FILLERS[0]
        assert found("eu.", unique) == [
            TranslatedOffset(offset=offset + shift, passed_most=0) for offset in range(RECORDS + 1)
        ]
        # source offset -> target offset, of the first record with the time: 0 -> 1, 1 -> 2, 5 -> 6
        expected = [(1, 0), (2, 0), (3, 0), (3, 1), (3, 2), (6, 0), (7, 0), (7, 1)]
        assert found("eu.", ties) == [TranslatedOffset(offset=at, passed_most=most) for at, most in expected]
        assert all("times cannot translate this topic" in str(each) for each in found("stamped.", ties))
        assert all("times cannot translate this topic" in str(each) for each in found("changed.", ties))
        assert all("it is not mirrored that far" in str(each) for each in found("short.", ties[1:]))


def test_what_is_not_carried_is_counted_and_begins_where_the_source_says(
    clusters: Clusters, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A group of the source has a start offset in one partition of two. The plan says how many records the other one
    loses where the group begins at `latest` here; none with `earliest`. What the source never initialized begins where
    the source's own setting says."""
    source, target, group = clusters.source, clusters.target, "half"
    start_at(source.kafka, group, {(TOPIC, 0): 4})
    tables = str(tmp_path / "half")
    source_words = ("--bootstrap-server", source.kafka.bootstrap_servers, "--tables", tables)
    assert run(capsys, "run", "export", *source_words).code == 0
    where = ("--target-bootstrap-server", target.kafka.bootstrap_servers, "--tables", tables, "--json")

    def lost() -> list[str]:
        words = ("change", "plan", "migration", "--group", group, "--translate", "same", *where)
        plan = json.loads(run(capsys, *words).stdout)
        return [one["text"] for one in plan["notices"] if one["rule"] == "begins_past_records"]

    (text,) = lost()
    assert f"share.auto.offset.reset=latest says: up to {RECORDS} offsets" in text
    for world in (source, target):
        world.workload.configure_group(group, **{"share.auto.offset.reset": "earliest"})
    until(lambda: lost() == [], what="the setting of the group to be known")

    carried = CarriedState(topic=TOPIC, start_offset=None, reason=NOT_INITIALIZED)
    part = SourcePartition(group_id=group, partition=1, recorded_start=None, carried=carried)
    states = SourceStates(cluster_id="c", partitions=(part,), partition_counts={}, notices=())
    migration = Migration(way=TranslationWay.SAME)
    with Cluster(source.kafka) as old, Cluster(target.kafka) as new:
        begun = _begun(states, migration, old, new)
    ((offset, state),) = carry(states, {}, migration, begun)[group].values()
    assert (offset.offset, offset.reason, state.delivered_again) == (0, None, 0)


def _write(world: World, topic: str, times: Sequence[int], *, text: str = "record", **configs: str) -> None:
    """A topic with one partition and a record for each time; equal times have equal records."""
    world.workload.create_topic(topic, **configs)
    _produce(world, topic, [{"value": f"{text} of {at}".encode(), "partition": 0, "timestamp": at} for at in times])


def test_mirror_topics_are_found_on_either_cluster(clusters: Clusters) -> None:
    """MirrorMaker 2 keeps offset syncs on the source by default: they are found there when the source is asked."""
    clusters.source.workload.create_topic("mm2-offset-syncs.us.internal")
    _write_pairs(clusters.source, "mm2-offset-syncs.us.internal", [_pair(0, 2)])
    offsets = [SourceOffset(topic=TOPIC, partition=0, offset=offset) for offset in (1, 2, 9)]
    migration = Migration(way=TranslationWay.MM2, offset_syncs="mm2-offset-syncs.us.internal")
    with Cluster(clusters.source.kafka) as source, Cluster(clusters.target.kafka) as target:
        found = find_translations(migration, offsets, source=source, target=target)
        with pytest.raises(ConfigurationError, match="it is not on the target"):
            find_translations(migration, offsets, source=None, target=target)
    assert [found[each] for each in offsets] == [
        f"MirrorMaker's oldest known pair of {TOPIC}:0 is at offset 2, after the start offset 1",
        TranslatedOffset(offset=5, passed_most=0),
        TranslatedOffset(offset=6, passed_most=6),
    ]


def test_offsets_are_translated_by_mirror_maker(clusters: Clusters, capsys: pytest.CaptureFixture[str]) -> None:
    """By offset syncs on the target: exact where a sync is at the start offset; elsewhere one past the sync, or where a
    checkpoint is further on, with the most that may be delivered again. Nothing unfinished is skipped."""
    words = ("--translate", "mm2", "--topic-map", f"{TOPIC}=mm.{TOPIC}", "--offset-syncs", SYNCS)
    alone = clusters.plan(capsys, *words)
    assert {row["partition"]: row["target_offset"] for row in alone["partitions"]} == {0: 4 + 3, 1: 2 + 5 + 1}
    plan = clusters.plan(capsys, *words, "--checkpoints", CHECKPOINTS)
    assert {row["partition"]: row["target_offset"] for row in plan["partitions"]} == {0: 4 + 3, 1: 4 + 5}
    finished = ACKNOWLEDGED + ARCHIVED
    assert _numbers(plan) == (ACKNOWLEDGED, ARCHIVED, 3)
    clusters.carry_out(capsys, plan)
    again = _check_consumer(clusters, plan, f"mm.{TOPIC}", FILLERS)
    assert finished <= again <= finished + 3


def test_other_offsets_are_not_taken_for_the_same(clusters: Clusters, capsys: pytest.CaptureFixture[str]) -> None:
    """A mirror with shifted offsets is no mirror with the same ones: where the living source is named this is found; a
    mirror that lacks the records is refused by its log's end. Nothing of it can be applied."""
    words = ("--translate", "same", "--topic-prefix", "eu.", "--ask-source", "--bootstrap-server")
    refused = clusters.migrate(capsys, "plan", *words, clusters.source.kafka.bootstrap_servers)
    assert refused.code == 2
    assert "[no_offset_given]" in refused.stderr
    assert "the offsets are not the same" in refused.stderr
    clusters.target.workload.create_topic(f"late.{TOPIC}", len(STARTS))
    late = clusters.migrate(capsys, "plan", "--translate", "same", "--topic-prefix", "late.")
    assert late.code == 2
    assert "[out_of_range]" in late.stderr


def test_one_cluster_is_no_migration(clusters: Clusters, capsys: pytest.CaptureFixture[str]) -> None:
    """Source and target must differ, the living source must be that of the tables, and MirrorMaker's topic must be
    there."""
    own = clusters.source.kafka.bootstrap_servers
    other = clusters.target.kafka.bootstrap_servers
    tables = ("--group", GROUP, "--tables", clusters.source_tables)
    same = run(capsys, "change", "plan", "migration", "--translate", "same", "--target-bootstrap-server", own, *tables)
    assert "[same_cluster]" in same.complaint(2)
    assert "the tables are of cluster" in clusters.migrate(
        capsys, "plan", "--translate", "same", "--ask-source", "--bootstrap-server", other
    ).complaint(3)
    nothing = clusters.migrate(capsys, "plan", "--translate", "mm2", "--offset-syncs", "no-such-topic")
    assert "there is no topic 'no-such-topic'" in nothing.complaint(3)
    wrong = clusters.migrate(capsys, "plan", "--translate", "mm2", "--checkpoints", SYNCS)
    assert "check that it is the topic of MirrorMaker 2 for this purpose" in wrong.complaint(3)


def test_the_commands_of_the_page_run(
    clusters: Clusters, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/how-to/migrate.md, in its order, on a group that the target has by now: it is taken back to the same
    offsets."""
    monkeypatch.chdir(tmp_path)
    placeholders = {
        "--group billing": f"--group {GROUP}",
        "/data/acktrail": clusters.source_tables,
        "/data/new": str(tmp_path / "new"),
        "new-1:9092": clusters.target.kafka.bootstrap_servers,
    }
    page = (Path(__file__).parents[3] / "docs/how-to/migrate.md").read_text("utf-8")
    lines = [line[2:] for line in page.splitlines() if line.startswith("$ acktrail ")]
    assert len(lines) > 5
    for line in lines:
        here = reduce(lambda text, pair: text.replace(*pair), placeholders.items(), line)
        done = run(capsys, *shlex.split(here, comments=True)[1:])
        assert done.code == 0, (line, done)
    plan = json.loads(Path("plan.json").read_text())
    with ShareGroupAdmin(clusters.target.kafka) as admin:
        found = admin.describe_offsets(GROUP, {TOPIC: list(STARTS)})
    assert {offset.partition: offset.start_offset for offset in found} == STARTS
    assert {row["partition"]: row["target_offset"] for row in plan["partitions"]} == STARTS

    where = ("--bootstrap-server", clusters.target.kafka.bootstrap_servers, "--tables", str(tmp_path / "new"))
    undone = run(capsys, "change", "undo", plan["plan_id"], "--execute", "--allow-moved-on", "--watch", "0", *where)
    assert undone.code == 0, undone
    with ShareGroupAdmin(clusters.target.kafka) as admin:
        found = admin.describe_offsets(GROUP, {TOPIC: list(STARTS)})
    before = {row["partition"]: row["state"]["first_unfinished_offset"] for row in plan["partitions"]}
    assert {offset.partition: offset.start_offset for offset in found} == before == dict.fromkeys(STARTS, RECORDS)


def test_the_source_may_be_gone(clusters: Clusters, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Nothing but the tables is needed of it. The plan as a file is the stored plan; --at before anything was exported
    has nothing to carry."""
    clusters.broker.stop()
    out = tmp_path / "plan.json"
    plan = clusters.plan(capsys, "--translate", "same", "--out", str(out))
    assert json.loads(out.read_text()) == plan
    assert [state["start_offset"] for state in plan["carried"]] == list(STARTS.values())
    assert (
        "[no_such_group]"
        in clusters.migrate(capsys, "plan", "--translate", "same", "--at", "2020-01-01T00:00:00Z").stderr
    )
