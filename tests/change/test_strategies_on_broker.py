"""Every strategy on brokers of each release that resets: a new share consumer starts where the plan says."""

from __future__ import annotations

import datetime as dt
import re
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from change.world import BASE_MS, Delivery, Fates, World, in_parallel
from confluent_kafka import AcknowledgeType
from samples.history_tables import build
from servers.real_broker import kafka_tool
from servers.releases import releases

from acktrail.embedded import EmbeddedBroker
from acktrail.embedded.kafka.installation import DEFAULT_VERSION
from acktrail.export.export_run import export
from acktrail.tables.delta.store import Tables

pytestmark = [pytest.mark.broker, pytest.mark.slow]

RECORDS = 40
PARTITIONS = 2
TOPIC = f"strategies-{uuid4().hex[:8]}"


def moment(offset: int, zone: str = "Z") -> str:
    at = dt.datetime.fromtimestamp(BASE_MS / 1000 + offset, dt.UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.000") + zone


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "to-earliest": ({"to-earliest": None}, {}),
    "to-latest": ({"to-latest": None}, {"allow_skip": True}),
    "to-offset": ({"to-offset": "25"}, {"allow_skip": True}),
    "to-offset-beyond": ({"to-offset": "4711"}, {"allow_skip": True}),
    "to-datetime": ({"to-datetime": moment(12)}, {"allow_skip": True}),
    "to-datetime-late": ({"to-datetime": moment(100_000)}, {"allow_skip": True}),
    "by-duration": ({"by-duration": "PT2H"}, {}),
    "shift-by": ({"shift-by": "-7"}, {}),
    "to-current": ({"to-current": None}, {}),
    "from-file": ({}, {"allow_skip": True}),
    "to-history": ({}, {}),
}
"""Strategies by value, and what is allowed with them."""


@dataclass(frozen=True)
class Outcome:
    """One group: what it had done, the plan, and what a new consumer got after it."""

    fates: Fates
    plan: dict[str, Any]
    got: list[Delivery]


TARGETS = {
    "to-earliest": (0, 0),
    "to-latest": (40, 40),
    "to-offset": (25, 25),
    "to-offset-beyond": (40, 40),
    "to-datetime": (12, 12),
    "to-datetime-late": (40, 40),
    "by-duration": (0, 0),
    "from-file": (5, 31),
    "to-history": (10, 10),
}


def decide(part: tuple[int, int]) -> AcknowledgeType:
    """Accepted or rejected from the start on; then rejected, released and accepted, mixed."""
    _, offset = part
    if offset < 10:
        return AcknowledgeType.REJECT if offset in (3, 4) else AcknowledgeType.ACCEPT
    return (AcknowledgeType.REJECT, AcknowledgeType.RELEASE, AcknowledgeType.ACCEPT)[offset % 3]


def group_of(case: str) -> str:
    return f"{TOPIC}-{case}"


@pytest.fixture(scope="module", params=releases(DEFAULT_VERSION, "4.2.1", "4.4.0"))
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def world(release: str, broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A broker of the release, and tables of its own."""
    with nullcontext(broker) if release == broker.version else EmbeddedBroker(release) as chosen:
        yield World.at(chosen.config(), tmp_path_factory.mktemp("reset"))


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
    for case, (strategies, allowed) in CASES.items():
        scope = {} if case == "from-file" else {"topics": [TOPIC]}
        if case == "to-history":
            world.reset(groups=[group_of(case)], topics=[TOPIC], strategies={"to-earliest": None})
        chosen = {"strategies": strategies or given[case], **scope, **allowed}
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
    assert targets == TARGETS.get(case, targets)
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


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "options", [["--to-earliest"], ["--to-latest"], ["--to-datetime", moment(17, "")]], ids=lambda o: o[0]
)
def test_targets_are_those_of_the_jvm_tool(
    world: World, outcomes: dict[str, Outcome], release: str, options: list[str]
) -> None:
    """R004-07: the same command line, the same new start offset for every share partition, in its own dry run."""
    group = group_of("to-current")
    command = kafka_tool(
        "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
        *("--bootstrap-server", world.kafka.bootstrap_servers, "--reset-offsets", "--dry-run"),
        *("--group", group, "--topic", TOPIC, *options),
        version=release,
    )
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    theirs = {int(found[1]): int(found[2]) for found in re.finditer(rf"{re.escape(TOPIC)}\s+(\d+)\s+(\d+)", printed)}
    name, value = options[0].removeprefix("--"), f"{options[1]}Z" if len(options) > 1 else None
    plan = world.plan(groups=[group], topics=[TOPIC], strategies={name: value})
    assert theirs == {row["partition"]: row["target_offset"] for row in plan["partitions"]}
    assert len(theirs) == PARTITIONS


def test_what_is_exported_kafkas_tools_read(
    world: World, outcomes: dict[str, Outcome], release: str, tmp_path: Path
) -> None:
    """Our CSV is taken by kafka-consumer-groups.sh, and what it exports is taken by us: the offsets survive."""
    from acktrail.change.request.offsets_csv import offset_rows, write_offsets

    rows = outcomes["from-file"].plan["partitions"]
    text = write_offsets((None, row["topic"], row["partition"], row["target_offset"]) for row in rows)
    ours = tmp_path / "ours.csv"
    ours.write_text(text)
    command = kafka_tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", world.kafka.bootstrap_servers, "--reset-offsets", "--dry-run", "--export"),
        *("--group", f"consumers-{TOPIC}", "--from-file", str(ours)),
        version=release,
    )
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    theirs = tmp_path / "theirs.csv"
    theirs.write_text(printed)
    found = {(row.topic, row.partition): row.offset for row in offset_rows(theirs)}
    assert found == {(TOPIC, 0): 5, (TOPIC, 1): 31}
