"""Every strategy on brokers of each release that resets: a new share consumer starts where the plan says."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from change.world import BASE_MS, Delivery, Fates, World
from confluent_kafka import AcknowledgeType
from drivers.own_process import printed
from kafka_messages import coordinator_states
from samples.history_tables import build
from servers.real_broker import broker_of_release, kafka_tool, releases

from acktrail.change.request.offsets_csv import offset_rows
from acktrail.cli.change.report_commands import write_offsets
from acktrail.errors import ChangeRefused
from acktrail.kafka.client.error_codes import NONE
from acktrail.tables.delta.store import Tables
from acktrail_connect.export.export_run import export
from acktrail_embedded import EmbeddedBroker
from acktrail_embedded.kafka.installation import DEFAULT_VERSION

pytestmark = [pytest.mark.broker, pytest.mark.slow]

RECORDS = 40
PARTITIONS = 2
TOPIC = f"strategies-{uuid4().hex[:8]}"


def moment(offset: int, zone: str = "Z") -> str:
    at = dt.datetime.fromtimestamp(BASE_MS / 1000 + offset, dt.UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.000") + zone


CASES: dict[str, tuple[dict[str, Any], bool, tuple[int, int] | None]] = {
    "to-earliest": ({"to-earliest": None}, False, (0, 0)),
    "to-latest": ({"to-latest": None}, True, (40, 40)),
    "to-offset": ({"to-offset": "25"}, True, (25, 25)),
    "to-offset-beyond": ({"to-offset": "4711"}, True, (40, 40)),
    "to-datetime": ({"to-datetime": moment(12)}, True, (12, 12)),
    "to-datetime-late": ({"to-datetime": moment(100_000)}, True, (40, 40)),
    "by-duration": ({"by-duration": "PT2H"}, False, (0, 0)),
    "shift-by": ({"shift-by": "-7"}, False, None),
    "to-current": ({"to-current": None}, False, None),
    "from-file": ({}, True, (5, 31)),
    "to-history": ({}, False, (10, 10)),
}
"""Strategies by value, whether records may be skipped, and the targets, where they are the same in every run."""


@dataclass(frozen=True)
class Outcome:
    """One group: what it had done, the plan, and what a new consumer got after it."""

    fates: Fates
    plan: dict[str, Any]
    got: list[Delivery]


def decide(part: tuple[int, int]) -> AcknowledgeType:
    """Accepted or rejected from the start on; then rejected, released and accepted, mixed."""
    _, offset = part
    if offset < 10:
        return AcknowledgeType.REJECT if offset in (3, 4) else AcknowledgeType.ACCEPT
    return (AcknowledgeType.REJECT, AcknowledgeType.RELEASE, AcknowledgeType.ACCEPT)[offset % 3]


def in_parallel(calls: Iterable[Callable[[], Any]]) -> list[Any]:
    """The results of calls that wait for the broker most of the time, in order."""
    with ThreadPoolExecutor(len(CASES)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def group_of(case: str) -> str:
    return f"{TOPIC}-{case}"


@pytest.fixture(scope="module", params=releases(DEFAULT_VERSION, "4.2.1", "4.4.0"))
def chosen(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with broker_of_release(request) as found:
        yield found


@pytest.fixture(scope="module")
def world(chosen: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A broker of the release, and tables of its own."""
    return World.at(chosen.config(), tmp_path_factory.mktemp("reset"))


def planned_by_kafka(chosen: EmbeddedBroker, kind: str, *options: str) -> str:
    """What the dry run of one of Kafka's own tools prints."""
    reset = ("--bootstrap-server", chosen.bootstrap_servers, "--reset-offsets", "--dry-run", *options)
    command = kafka_tool(f"org.apache.kafka.tools.consumer.group.{kind}GroupCommand", *reset, version=chosen.version)
    return printed(*command)


@pytest.fixture(scope="module")
def outcomes(world: World, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """All cases, each in a group of its own: worked, reset one after the other, then consumed anew."""
    world.make_topic(TOPIC, PARTITIONS, RECORDS)
    total = RECORDS * PARTITIONS
    fates = in_parallel(lambda case=case: world.settle(group_of(case), TOPIC, total, decide) for case in CASES)
    export(world.kafka, world.tables)
    build(Tables(world.tables))
    file = tmp_path_factory.mktemp("csv") / "offsets.csv"
    file.write_text(f"{TOPIC},1,31\r\n{TOPIC},0,5\r\n", encoding="utf-8-sig")
    given = {"from-file": {"from-file": str(file)}, "to-history": {"to-history": _instant()}}
    plans = {}
    for case, (strategies, allow_skip, _) in CASES.items():
        scope = {} if case == "from-file" else {"topics": [TOPIC]}
        if case == "to-history":
            world.reset(groups=[group_of(case)], topics=[TOPIC], strategies={"to-earliest": None})
        chosen = {"strategies": strategies or given[case], **scope, "allow_skip": allow_skip}
        plans[case] = world.reset(groups=[group_of(case)], **chosen)
    wanted = {case: plan["totals"]["to_deliver"] for case, plan in plans.items()}
    got = in_parallel(lambda case=case: world.deliveries(group_of(case), TOPIC, wanted[case]) for case in CASES)
    return {case: Outcome(fates=f, plan=plans[case], got=g) for case, f, g in zip(CASES, fates, got, strict=True)}


def _instant() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@pytest.mark.parametrize("case", CASES)
def test_a_new_consumer_starts_exactly_at_the_target(outcomes: dict[str, Outcome], case: str) -> None:
    """R004-01, R004-02, R004-08: from the target on every record comes, once, as if for the first time; none before.
    The target is what was asked for: times by the record's time, files by line, the history by the first record that
    was not finished then."""
    outcome = outcomes[case]
    targets = tuple(row["target_offset"] for row in outcome.plan["partitions"])
    assert targets == (CASES[case][2] or targets)
    expected = [
        Delivery(row["partition"], offset, 1)
        for row in outcome.plan["partitions"]
        for offset in range(row["target_offset"], RECORDS)
    ]
    assert outcome.got == sorted(expected)


@pytest.mark.parametrize("case", [case for case in CASES if case != "to-history"])
def test_the_number_delivered_again_is_the_plans(outcomes: dict[str, Outcome], case: str) -> None:
    """What came although the group was done with it, what never came although it was not: counted at the consumer."""
    outcome = outcomes[case]
    done = {part for part, fate in outcome.fates.items() if fate is not AcknowledgeType.RELEASE}
    archived = {part for part, fate in outcome.fates.items() if fate is AcknowledgeType.REJECT}
    got = {(delivery.partition, delivery.offset) for delivery in outcome.got}
    totals = outcome.plan["totals"]

    assert totals["delivered_again"] == len(got & done)
    assert totals["archived_forgotten"] == len(got & archived)
    assert totals["acknowledgements_forgotten"] == len(got & (done - archived))
    assert totals["skipped"] == len(outcome.fates.keys() - done - got)
    assert totals["in_flight_discarded"] == len(outcome.fates.keys() - done)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "options", [["--to-datetime", moment(17, "")], ["--to-latest"], ["--to-earliest"]], ids=lambda o: o[0]
)
def test_targets_are_those_of_the_jvm_tool(
    world: World, outcomes: dict[str, Outcome], chosen: EmbeddedBroker, options: list[str]
) -> None:
    """R004-07: the same command line, the same new start offset for every share partition, in its own dry run."""
    group = group_of("to-current")
    said = planned_by_kafka(chosen, "Share", "--group", group, "--topic", TOPIC, *options)
    theirs = {int(found[1]): int(found[2]) for found in re.finditer(rf"{re.escape(TOPIC)}\s+(\d+)\s+(\d+)", said)}
    name, value = options[0].removeprefix("--"), f"{options[1]}Z" if len(options) > 1 else None
    plan = world.plan(groups=[group], topics=[TOPIC], strategies={name: value})
    assert theirs == {row["partition"]: row["target_offset"] for row in plan["partitions"]}
    assert len(theirs) == PARTITIONS


def test_what_is_exported_kafkas_tools_read(
    outcomes: dict[str, Outcome], chosen: EmbeddedBroker, tmp_path: Path
) -> None:
    """Our CSV is taken by kafka-consumer-groups.sh, and what it exports is taken by us: the offsets survive."""
    rows = outcomes["from-file"].plan["partitions"]
    file = tmp_path / "offsets.csv"
    file.write_text(write_offsets((None, row["topic"], row["partition"], row["target_offset"]) for row in rows))
    asked = ("--export", "--group", f"consumers-{TOPIC}", "--from-file", str(file))
    file.write_text(planned_by_kafka(chosen, "Consumer", *asked))
    found = {(row.topic, row.partition): row.offset for row in offset_rows(file)}
    assert found == {(TOPIC, 0): 5, (TOPIC, 1): 31}


def held_of(world: World, group: str) -> tuple[int | None, tuple[tuple[int, int, int, int], ...]]:
    """Start offset and batches of a group's one share partition, as its share coordinator says."""
    (held,) = (held for key, held in coordinator_states(world.kafka).items() if key.group_id == group)
    assert held.error_code == NONE
    return held.start_offset, held.batches


def test_a_reset_and_its_undo(world: World) -> None:
    """R004-01: planned, done, verified in the state topic, taken back; a new consumer gets what the plan says. The
    share coordinator itself holds the target and not one batch after it."""
    topic, group = f"undone-{TOPIC}", group_of("undone")
    world.make_topic(topic, 1, RECORDS)

    def first_four(part: tuple[int, int]) -> AcknowledgeType:
        return AcknowledgeType.ACCEPT if part[1] < 4 else AcknowledgeType.RELEASE

    world.settle(group, topic, RECORDS, first_four)
    plan = world.reset(groups=[group], topics=[topic], strategies={"to-earliest": None})
    assert (plan["totals"]["delivered_again"], plan["totals"]["to_deliver"]) == (4, RECORDS)
    assert held_of(world, group) == (0, ())
    undo = world.undo(plan)
    world.execute(undo)
    assert held_of(world, group) == (4, ())
    assert {row["status"] for row in world.verify(undo)} == {"OK_EPOCH_NOT_BUMPED"}
    assert [delivery.offset for delivery in world.deliveries(group, topic, RECORDS - 4)] == list(range(4, RECORDS))


@pytest.mark.full
def test_a_release_that_drops_resets_is_refused(tmp_path: Path) -> None:
    """R004-32: Kafka 4.1 answers a reset without an error and does nothing: there is no plan for it."""
    with EmbeddedBroker("4.1.2") as broker:
        world = World.at(broker.config(), tmp_path)
        world.make_topic("orders", 1, RECORDS)
        plan = world.plan(groups=["g"], topics=["orders"], strategies={"to-earliest": None}, allow_create=True)
        assert {n["rule"] for n in plan["notices"] if n["severity"] == "refusal"} == {"unsupported_release"}
        with pytest.raises(ChangeRefused, match="unsupported_release"):
            world.execute(plan)
