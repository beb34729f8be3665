"""Statuses of groups made sick, out of real tables: what is wrong has a name while it is wrong, and no longer."""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from drivers.command_line import run
from jobs.test_statuses import Clock
from jobs.world import Topic, batch, key_of, snapshot, topic_id, update

from acktrail.model.records import StateRecord
from acktrail.model.share_partition import SharePartition
from acktrail.reconcile.findings import note_seen
from acktrail_jobs.commands.pipeline_commands import reconcile

KEY = key_of("billing")


class Sick(Clock):
    """One group, `billing`, whose share partition is written by each test; or more groups, each with a topic."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.states.clear()
        self.groups.clear()
        self.logs = {number: [] for number in self.logs}
        self.runs = 0

    def log(self, start: int, end: int, topic: int = 1) -> None:
        self.topics.setdefault(topic_id(topic), Topic(name=f"topic-{topic}")).partitions = {0: (start, end)}

    def look(self, members: int | None = 1, *, after: dt.timedelta = dt.timedelta(minutes=5)) -> dict[str, Any]:
        """The row of the share partition after one more run."""
        (row,) = self.look_at({"billing": members}, after)
        return row

    def look_at(self, members: dict[str, int | None], after: dt.timedelta) -> list[dict[str, Any]]:
        """The rows of all share partitions after one more run."""
        self.now += after
        self.runs += 1
        self.members.update(members)
        self.observe(f"r{self.runs}")
        reconcile(self.config, f"r{self.runs}", with_history=True)
        return self.rows("queue_statuses")

    def found(self, group: str = "billing") -> dict[str, str]:
        own = (row for row in self.rows("findings", f"r{self.runs}") if row["group_id"] == group)
        return {row["rule"]: row["severity"] for row in own}


@pytest.fixture
def world(tmp_path: Path) -> Sick:
    return Sick(tmp_path / "tables")


@dataclass(frozen=True)
class Scene:
    """One group with a topic of its own in a world that several share."""

    world: Sick
    group: str
    topic: int

    @property
    def key(self) -> SharePartition:
        return key_of(self.group, topic=self.topic)

    def log(self, start: int, end: int) -> None:
        self.world.log(start, end, self.topic)

    def write(self, *records: StateRecord) -> None:
        self.world.write(*records)

    def found(self) -> dict[str, str]:
        return self.world.found(self.group)


Looks = Generator[int, dict[str, Any], None]
"""A scene says how many members its group has, and gets the row of its share partition after the next run."""
TIMES = [dt.timedelta(hours=2), dt.timedelta(minutes=5), dt.timedelta(minutes=5), dt.timedelta(hours=9)]
"""From run to run."""


def records_that_wait_without_members(scene: Scene) -> Looks:
    """Unattended at the first look and every later one, since the same time; not with members."""
    scene.log(0, 400)
    scene.write(snapshot(scene.key, 0))
    first = yield 0
    assert first["status"] == "unattended"
    assert first["reason"].startswith("400 records wait, no members since the first look, 2026-03-01T")
    scene.log(0, 404)
    second = yield 0
    assert (second["status"], second["no_members_since"]) == ("unattended", first["observed_at"])
    assert second["reason"].startswith("404 records wait, no members since the first look, ")
    attended = yield 2
    assert attended["status"] == "stuck"
    left = yield 0
    assert left["status"] == "unattended"
    assert f"404 records wait, no members since {left['observed_at']:%Y-%m-%dT%H:%M:%SZ}" == left["reason"]


def a_share_partition_that_was_never_delivered_from(scene: Scene) -> Looks:
    """Without members unattended, from the first look on; what the retention takes then is counted, look after look."""
    scene.log(0, 200)
    scene.write(snapshot(scene.key, None))
    row = yield 0
    assert row["status"] == "unattended"
    for lost in (70, 120):
        scene.log(lost, 200)
        row = yield 0
        assert (row["status"], row["lost_records"]) == ("retention_risk", lost)
    assert row["reason"].startswith("120 records were removed that were never delivered: the log starts at 120; 80 are")
    late = yield 0
    assert (late["status"], late["lost_records"]) == ("retention_risk", 120)


def unfinished_records_that_the_retention_took(scene: Scene) -> Looks:
    """Finished ones below the log start are not lost, unfinished ones are, and counted: the lag counts them."""
    scene.log(0, 200)
    scene.write(snapshot(scene.key, 0, (batch(10, 49), batch(60, 69, state=4))))
    row = yield 1
    assert row["lost_records"] == 0
    scene.log(120, 200)
    row = yield 1
    assert (row["status"], row["verdict"], row["lost_records"]) == ("retention_risk", "before_log_start", 70)
    assert row["reason"].startswith(
        "70 records were removed unfinished: the log starts at 120, above first unfinished offset 0; 80"
    )


def finished_records_that_the_retention_took_are_no_loss(scene: Scene) -> Looks:
    """The start offset moves lazily: below the log start it is no finding where everything there is finished."""
    scene.log(0, 100)
    scene.write(snapshot(scene.key, 0, (batch(0, 99),)))
    yield 1
    scene.log(90, 100)
    row = yield 1
    assert (row["status"], row["verdict"], row["lost_records"]) == ("idle", "match", 0)


def a_log_that_ends_below_the_start_offset(scene: Scene) -> Looks:
    """The status says what the critical finding says."""
    scene.log(0, 100)
    scene.write(snapshot(scene.key, 100))
    row = yield 1
    assert row["status"] == "idle"
    scene.log(0, 90)
    row = yield 1
    assert row["verdict"] == "past_log_end"
    assert (row["status"], row["reason"]) == (
        "inconsistent",
        "past_log_end: the state ends at offset 100, the log at 90",
    )
    scene.log(0, 101)
    row = yield 1
    assert row["status"] == "ok"


def every_critical_finding_is_a_status(scene: Scene) -> Looks:
    """Also of a rule that no verdict is about, and where the verdict is a match."""
    scene.log(0, 100)
    scene.write(snapshot(scene.key, 50, (batch(20, 40), batch(50, 99))))
    row = yield 1
    critical = {rule for rule, severity in scene.found().items() if severity == "critical"}
    assert critical == {"batches_not_below_start"}
    assert (row["status"], row["verdict"]) == ("inconsistent", "match")
    assert row["reason"] == "batches_not_below_start: a batch lies below the start offset"


def the_first_look_does_not_tell_of_the_past(scene: Scene) -> Looks:
    """Deliveries that ended before the window have no colour, however new the observation is."""
    scene.log(0, 40)
    scene.write(snapshot(scene.key, 0))
    scene.write(update(scene.key, 0, 0, (batch(0, 39, state=0, count=3),)))
    row = yield 1
    assert (row["status"], row["released"]) == ("new", None)


SCENES = (
    records_that_wait_without_members,
    a_share_partition_that_was_never_delivered_from,
    unfinished_records_that_the_retention_took,
    finished_records_that_the_retention_took_are_no_loss,
    a_log_that_ends_below_the_start_offset,
    every_critical_finding_is_a_status,
    the_first_look_does_not_tell_of_the_past,
)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, BaseException]:
    """All scenes in one world, look by look; how those ended that are over."""
    world = Sick(tmp_path_factory.mktemp("scenes") / "tables")
    scenes = {scene.__name__: scene(Scene(world, scene.__name__, topic)) for topic, scene in enumerate(SCENES, 1)}
    members = {name: next(scene) for name, scene in scenes.items()}
    ended: dict[str, BaseException] = {}
    for after in TIMES:
        for row in world.look_at(dict(members), after):
            name = row["group_id"]
            if name not in ended:
                try:
                    members[name] = scenes[name].send(row)
                except (StopIteration, AssertionError) as end:
                    ended[name] = end
    return ended


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_what_is_wrong_has_a_name_while_it_is_wrong(scene: Any, played: dict[str, BaseException]) -> None:
    """Each scene of its own says how."""
    end = played[scene.__name__]
    if not isinstance(end, StopIteration):
        raise end


def test_rejected_records_stay_until_somebody_has_seen_them(world: Sick, capsys: pytest.CaptureFixture[str]) -> None:
    """A storm while it lasts; then the same in the past, with all that comes, until a name acknowledges it: then
    finding and status go, and come back with the next archived record."""
    world.log(0, 0)
    world.write(snapshot(KEY, 0))
    world.look()
    world.log(0, 400)
    world.write(update(KEY, 0, 400, (batch(0, 399, state=4),)))
    assert world.look()["status"] == "reject_storm"
    assert world.found()["poison_records_archived"] == "warning"
    for members in (0, 1):
        row = world.look(members, after=dt.timedelta(hours=1))
        assert row["status"] == "archived_unseen"
        assert "400 records are archived in all, and not acknowledged" in row["reason"]
    said = run(capsys, "findings", "--group", "bill*", "--seen-by", "Ada", "--tables", world.config.uri)
    assert "billing orders 0: 400 archived record(s), seen by Ada" in said.stdout
    note_seen(world.tables, ["bill*"], "Ada", world.now)
    assert world.look()["status"] == "idle"
    assert "poison_records_archived" not in world.found()
    world.log(0, 401)
    world.write(update(KEY, 0, 401, (batch(400, 400, state=4),)))
    assert world.look()["status"] == "reject_storm"
    assert world.found()["poison_records_archived"] == "warning"


def test_archived_records_are_shown_for_a_time(world: Sick, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a name they go when the configured time is over, finding and status alike."""
    monkeypatch.setenv("ACKTRAIL_UNSEEN", "3h")
    world.log(0, 400)
    world.write(snapshot(KEY, 0), update(KEY, 0, 400, (batch(0, 399, state=4),)))
    world.look()
    assert world.look(after=dt.timedelta(hours=2))["status"] == "archived_unseen"
    assert "poison_records_archived" in world.found()
    assert world.look(after=dt.timedelta(hours=2))["status"] == "idle"
    assert "poison_records_archived" not in world.found()


def test_acknowledging_needs_a_group_and_something_to_acknowledge(
    world: Sick, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is noted for a group without archived records, nor without naming groups."""
    world.log(0, 10)
    world.write(snapshot(KEY, 0))
    world.look()
    for more in ((), ("--group", "billing"), ("--group", "nobody")):
        done = run(capsys, "findings", "--seen-by", "Ada", *more, "--tables", world.config.uri)
        assert done.code == 2
        assert "Traceback" not in done.stderr
    assert world.tables.read("status_changes", where=pc.field("archived_seen").is_valid()).num_rows == 0
