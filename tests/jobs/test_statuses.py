"""Statuses of queues, run after run, out of real tables."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from drivers.command_line import run
from jobs.world import Topic, World, batch, key_of, snapshot, topic_id, update

from acktrail.errors import AcktrailError, UnknownName
from acktrail.history.observed_run import newest_run
from acktrail.model.share_partition import SharePartition
from acktrail.tables.acknowledged_losses import acknowledge_losses
from acktrail.tables.commit_order import newest_rows
from acktrail.tables.upkeep.maintenance import MaintenancePolicy, maintain
from acktrail.view.cluster_health import cluster_health
from acktrail.view.run_summary import shown_run
from acktrail_expectations.known_runs import choose_run
from acktrail_jobs.api import build_history, reconcile
from acktrail_jobs.frames import in_process
from acktrail_jobs.statuses.status_run import write_statuses

TABLES = ("queue_statuses", "status_changes", "queue_trends", "run_totals")
HEALTHY, RELEASING, STUCK, IDLE = (key_of(name) for name in ("healthy", "releasing", "stuck", "idle"))


class Clock(World):
    """A world at work, five minutes from observation to observation: one group that finishes everything, one
    that releases everything, one whose first record stays, one without work."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.topics[topic_id(2)] = self.topics[topic_id(1)].__class__(name="quiet", partitions={0: (0, 0)})
        self.ends = 0
        self.step = 0
        idle = key_of("idle", topic=2)
        self.write(*(snapshot(key, 0) for key in (HEALTHY, RELEASING, STUCK)), snapshot(idle, None))

    def write_bytes(self, *args: Any, **named: Any) -> tuple[int, int]:
        place = super().write_bytes(*args, **named)
        self.times[place] = int(self.now.timestamp() * 1_000)
        return place

    def work(self, run_id: str) -> None:
        """What happens until the next observation, and the observation."""
        begin, self.ends, self.step = self.ends, self.ends + 10, self.step + 1
        self.topics[topic_id(1)].partitions[0] = (0, self.ends)
        self.write(update(HEALTHY, begin, self.ends - begin, (batch(begin, self.ends - 1),)))
        self.write(update(HEALTHY, self.ends, 0, ()))
        self.write(update(RELEASING, 0, 0, (batch(0, 5, 0, self.step),)))
        self.write(update(STUCK, 0, self.ends - 1, (batch(1, self.ends - 1),)))
        self.now += dt.timedelta(minutes=5)
        self.observe(run_id)

    def statuses(self) -> dict[str, str]:
        return {row["group_id"]: row["status"] for row in self.rows("queue_statuses")}


def contents(world: World) -> dict[str, list[str]]:
    """All rows of the tables of statuses, in an order of their own."""
    return {name: world.plain(name, {"chunk"}) for name in TABLES}


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path / "tables")


def test_statuses_run_after_run(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that releases everything shows where a record comes back twice, one whose first record stays with the
    third run; an idle one is idle from the first run on; each change is a row, each run has totals. The
    counts of all windows together are those of the history, however it is compacted, or built again. A failure of the
    statuses fails the run and leaves the reconciliation, and the next attempt completes it. What is gone is a change.
    """
    expected = []
    for number in range(4):
        clock.work(f"r{number}")
        if number == 0:
            _fails_once(clock, monkeypatch)
        if number == 3:
            for table in ("delivery_history", "held_states"):
                shutil.rmtree(Path(clock.config.uri) / table)
        reconcile(clock.config, f"r{number}", with_history=True)
        expected.append(clock.statuses())
        if number == 2:
            maintain(clock.config, MaintenancePolicy(small_files=0))
    assert [found["healthy"] for found in expected] == ["ok"] * 4
    assert [found["idle"] for found in expected] == ["idle"] * 4
    assert [found["releasing"] for found in expected] == ["not_judged", *["release_loop"] * 3]
    assert [found["stuck"] for found in expected] == ["not_judged", "not_judged", "stuck", "stuck"]
    found = {row["group_id"]: row for row in clock.rows("queue_statuses")}
    _is_stuck(clock, found["stuck"], "r3")
    assert [each["released"] for each in found["releasing"]["window"]] == [6] * 4
    assert found["releasing"]["released"] == 24
    finished = [each["acknowledged"] for each in found["healthy"]["window"]]
    assert sum(finished) == found["healthy"]["acknowledged"] == clock.ends
    totals = sorted(clock.rows("run_totals"), key=lambda row: row["run_id"])
    assert [dict(row["statuses"]).get("stuck", 0) for row in totals] == [0, 0, 1, 1]
    assert sum(dict(totals[-1]["group_statuses"]).values()) == totals[-1]["groups"] == 4

    clock.delete_group("stuck")
    clock.observe("gone")
    reconcile(clock.config, "gone", with_history=True)
    assert "stuck" not in clock.statuses()
    (gone,) = [row for row in clock.rows("status_changes") if row["after"] is None]
    assert (gone["group_id"], gone["before"], gone["run_id"]) == ("stuck", "stuck", "gone")


@pytest.mark.parametrize(
    "ahead",
    [
        dt.timedelta(hours=2),
        pytest.param(-dt.timedelta(hours=2), marks=pytest.mark.full),
        pytest.param(dt.timedelta(days=86_000), marks=pytest.mark.full),
    ],
)
def test_runs_are_ordered_by_commits_whatever_the_clocks_say(tmp_path: Path, ahead: dt.timedelta) -> None:
    """Of two worlds in which the same happens one has a run on a machine whose clock is wrong: two hours ahead or
    behind, or in the year 2261. Each later run is the newest, with the same statuses, verdicts and totals."""
    right, wrong = Clock(tmp_path / "right"), Clock(tmp_path / "wrong")
    for number in range(4):
        for world in (right, wrong):
            is_off = world is wrong and number == 1
            world.now += ahead * is_off
            world.work(f"r{number}")
            world.now -= ahead * is_off
            assert newest_run(world.tables) == f"r{number}"
            reconcile(world.config, None, with_history=True)
            assert {row["run_id"] for row in world.rows("queue_statuses")} == {f"r{number}"}
            assert shown_run(world.tables, None) == choose_run(world.tables, None) == f"r{number}"
            totals = newest_rows(world.tables, "run_totals", ["run_id"])
            assert totals["run_id"].to_pylist() == [f"r{number}"]
        assert wrong.statuses() == right.statuses()
        assert wrong.verdicts(f"r{number}") == right.verdicts(f"r{number}")
        (mine,), (theirs,) = (world.rows("run_totals", f"r{number}") for world in (wrong, right))
        assert {**mine, **dict.fromkeys(("observed_at", "run_number"))} == {
            **theirs,
            **dict.fromkeys(("observed_at", "run_number")),
        }
    health = cluster_health(wrong.tables, wrong.now)
    assert health.exported_at is not None
    assert health.exported_at <= wrong.now
    assert list(health.ahead or {}) == (["r1"] if ahead > dt.timedelta() else [])


def _is_stuck(clock: Clock, row: dict[str, Any], run_id: str) -> None:
    """Its reason, since when, how often delivered, how far, and the changes that led there."""
    assert "Offset 0 has blocked orders 0 since " in row["reason"]
    assert row["status_since"] == row["window"][2]["observed_at"]
    assert row["delivery_counts"] == [{"delivery_count": 1, "records": clock.ends - 1}]
    replayed = {own["group_id"]: own["end_offset"] for own in clock.rows("share_partition_states", run_id)}
    assert row["end_offset"] == replayed["stuck"] == clock.ends
    shown = [own for own in clock.rows("queue_trends") if own["group_id"] == "stuck" and own["partition"] is not None]
    assert max(own["end_offset"] for own in shown) == clock.ends
    changes = [(own["before"], own["after"]) for own in clock.rows("status_changes") if own["group_id"] == "stuck"]
    assert sorted(changes, key=str) == [("not_judged", "stuck"), (None, "not_judged")]


def _fails_once(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdicts are there, and the run is not noted as reconciled."""

    def fail(*_: Any) -> None:
        raise AcktrailError("no statuses")

    with monkeypatch.context() as patch:
        patch.setattr("acktrail_jobs.statuses.status_run.read_run_rows", fail)
        with pytest.raises(AcktrailError, match="no statuses"):
            reconcile(clock.config, "r0", with_history=True)
    assert len(clock.rows("reconciliations", "r0")) == 4
    assert [row["run_id"] for row in clock.rows("reconcile_checks")] == [None]


def test_a_run_again_changes_nothing_and_an_older_one_neither(clock: Clock) -> None:
    """Whichever run is reconciled again."""
    for number in range(3):
        clock.work(f"r{number}")
    for run_id in ("r0", "r2"):
        reconcile(clock.config, run_id, with_history=True)
    before = contents(clock)
    for run_id in ("r2", "r0", "r1"):
        reconcile(clock.config, run_id, with_history=True)
        assert contents(clock) == before
    write_statuses(clock.config, in_process(), "r1")
    assert contents(clock) == before
    with pytest.raises(UnknownName, match="unknown observation 'never'"):
        write_statuses(clock.config, in_process(), "never")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("stopped_before", "goes_on_with"), [("run_totals", "r2"), ("queue_trends", "r1"), ("queue_statuses", "r2")]
)
def test_a_run_that_was_stopped_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped_before: str, goes_on_with: str
) -> None:
    """Stopped between two commits, then run again or followed by the next run: the tables are those of runs that were
    never stopped."""
    whole, stopped = Clock(tmp_path / "whole"), World(tmp_path / "stopped")
    for number in range(3):
        whole.work(f"r{number}")
        reconcile(whole.config, f"r{number}")
    shutil.copytree(whole.config.uri, stopped.config.uri)
    for run_id in ("r0", "r1", "r2"):
        _judge(whole, run_id)
    _judge(stopped, "r0")
    with monkeypatch.context() as patch:
        patch.setattr("acktrail.tables.delta.store.Tables.append", _failing("append", stopped_before))
        patch.setattr("acktrail.tables.delta.store.Tables.replace", _failing("replace", stopped_before))
        with pytest.raises(KeyboardInterrupt):
            _judge(stopped, "r1")
    for run_id in ("r1", "r2") if goes_on_with == "r1" else ("r2",):
        _judge(stopped, run_id)
    assert contents(stopped) == contents(whole)


def _judge(world: World, run: str) -> None:
    build_history(world.config, "in-process")
    write_statuses(world.config, in_process(), run)


def _failing(method: str, table: str) -> Callable[..., Any]:
    from acktrail.tables.delta.store import Tables

    original = getattr(Tables, method)

    def call(self: Tables, name: str, *args: Any, **named: Any) -> Any:
        if name == table:
            raise KeyboardInterrupt
        return original(self, name, *args, **named)

    return call


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

    def ask_the_log(self, first: int, last: int, *, is_record: bool) -> None:
        """What an observation with READ on the topic finds at archived offsets."""
        about = {"cluster_id": "c1", "group_id": "billing", "topic_id": KEY.topic_id, "partition": 0, "run_id": "asked"}
        known = {"observed_at": self.now, "first_offset": first, "last_offset": last, "is_record": is_record}
        self.tables.append("archived_offsets", [{**about, **known, "reason": None}])

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


Looks = Generator[int, dict[str, Any], None]
"""A scene says how many members its group has, and gets the row of its share partition after the next run."""
TIMES = [dt.timedelta(hours=2), dt.timedelta(minutes=5), dt.timedelta(minutes=5), dt.timedelta(hours=9)]
"""From run to run."""


def records_that_wait_without_members(scene: Scene) -> Looks:
    """Unattended at the first look and every later one, since the same time; not with members."""
    scene.log(0, 400)
    scene.world.write(snapshot(scene.key, 0))
    first = yield 0
    assert first["status"] == "unattended"
    assert first["reason"].startswith("400 records wait, and no member in any observation since 2026-03-01 ")
    scene.log(0, 404)
    second = yield 0
    assert (second["status"], second["no_members_since"]) == ("unattended", first["observed_at"])
    attended = yield 2
    assert attended["status"] == "stuck"
    left = yield 0
    assert left["status"] == "not_judged"  # consumers that restart are away for a moment


def a_share_partition_that_was_never_delivered_from(scene: Scene) -> Looks:
    """Without members unattended, from the first look on; what the retention takes then is counted, look after look."""
    scene.log(0, 200)
    scene.world.write(snapshot(scene.key, None))
    row = yield 0
    assert row["status"] == "unattended"
    for lost in (70, 120):
        scene.log(lost, 200)
        row = yield 0
        assert (row["status"], row["lost_records"]) == ("retention_risk", lost)
    assert row["reason"].startswith("The retention removed 120 records of quiet 0 that were never delivered: the log ")
    late = yield 0
    assert (late["status"], late["lost_records"]) == ("retention_risk", 120)


def unfinished_records_that_the_retention_took(scene: Scene) -> Looks:
    """Finished ones below the log start are not lost, unfinished ones are, and counted: the lag counts them."""
    scene.log(0, 200)
    scene.world.write(snapshot(scene.key, 0, (batch(10, 49), batch(60, 69, state=4))))
    row = yield 1
    assert row["lost_records"] == 0
    scene.log(120, 200)
    row = yield 1
    assert (row["status"], row["verdict"], row["lost_records"]) == ("retention_risk", "before_log_start", 70)
    assert row["reason"].startswith("The retention removed 70 records of topic-3 0 before they were finished: the log ")
    scene.world.write(snapshot(scene.key, 120), update(scene.key, 120, 80, (batch(120, 199),)))
    row = yield 1
    assert (row["status"], row["lost_records"], row["removed_records"]) == ("loss_unseen", 70, 70)
    acknowledge_losses(scene.world.tables, [scene.group], "Ada", scene.world.now)
    row = yield 1
    assert (row["status"], row["lost_records"]) == ("ok", 70)


def unfinished_records_that_a_reset_skipped(scene: Scene) -> Looks:
    """They are lost until a reset goes back to them, and shown until somebody has acknowledged it."""
    scene.log(0, 100)
    scene.world.write(snapshot(scene.key, 0, (batch(5, 9),)))
    yield 1
    scene.world.write(snapshot(scene.key, 40, state_epoch=2))
    row = yield 1
    assert (row["status"], row["skipped_records"]) == ("loss_unseen", 35)
    assert "35 skipped by a reset. No one has acknowledged this yet" in row["reason"]
    scene.world.write(snapshot(scene.key, 0, state_epoch=3))
    row = yield 1
    assert (row["skipped_records"], row["unseen_at"]) == (0, None)


def finished_records_that_the_retention_took_are_no_loss(scene: Scene) -> Looks:
    """The start offset moves lazily: below the log start it is no finding where everything there is finished."""
    scene.log(0, 100)
    scene.world.write(snapshot(scene.key, 0, (batch(0, 99),)))
    yield 1
    scene.log(90, 100)
    row = yield 1
    assert (row["status"], row["verdict"], row["lost_records"]) == ("idle", "match", 0)


def every_critical_finding_is_a_status(scene: Scene) -> Looks:
    """Also of a rule that no verdict is about, and where the verdict is a match."""
    scene.log(0, 100)
    scene.world.write(snapshot(scene.key, 50, (batch(20, 40), batch(50, 99))))
    row = yield 1
    critical = {rule for rule, severity in scene.world.found(scene.group).items() if severity == "critical"}
    assert critical == {"batches_not_below_start"}
    assert (row["status"], row["verdict"]) == ("inconsistent", "match")
    assert row["reason"] == "batches_not_below_start: a batch lies below the start offset"


SCENES = (
    records_that_wait_without_members,
    a_share_partition_that_was_never_delivered_from,
    unfinished_records_that_the_retention_took,
    unfinished_records_that_a_reset_skipped,
    finished_records_that_the_retention_took_are_no_loss,
    every_critical_finding_is_a_status,
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
    """A storm while it lasts; then the same in the past, with all that comes, until a name acknowledges it, whenever
    that is: then finding and status go, and come back with the next archived record."""
    world.log(0, 400)
    world.write(snapshot(KEY, 0), update(KEY, 0, 400, (batch(0, 399, state=4),)))
    assert world.look()["status"] == "reject_storm"
    assert world.found()["poison_records_archived"] == "warning"
    row = world.look(0, after=dt.timedelta(hours=1))
    assert row["status"] == "loss_unseen"
    assert row["reason"].startswith("Permanently lost: 400 archived. No one has acknowledged this yet")
    said = run(capsys, "findings", "--group", "bill*", "--seen-by", "Ada", "--tables", world.config.uri)
    assert "billing orders 0: permanently lost records: 400 archived; acknowledged by Ada" in said.stdout
    acknowledge_losses(world.tables, ["bill*"], "Ada", world.now)
    assert world.look()["status"] == "idle"
    assert "poison_records_archived" not in world.found()
    world.log(0, 401)
    world.write(update(KEY, 0, 401, (batch(400, 400, state=4),)))
    assert world.look()["status"] == "reject_storm"
    assert world.look(after=dt.timedelta(days=30))["status"] == "loss_unseen"
    assert world.found()["poison_records_archived"] == "warning"


def test_one_archived_record_among_many_is_a_loss(world: Sick) -> None:
    """Beside others, or where its log was asked. Alone, and not asked, it may be a marker of a transaction: a finding
    says so, and no status."""
    world.log(0, 400)
    world.write(snapshot(KEY, 0), update(KEY, 0, 400, (batch(0, 99), batch(100, 100, state=4), batch(101, 399))))
    row = world.look()
    assert (row["status"], row["unseen_at"], row["archived_seen"]) == ("ok", None, 1)
    (said,) = (each["detail"] for each in world.rows("findings", "r1") if each["rule"] == "poison_records_archived")
    assert "may not be records" in said
    world.ask_the_log(100, 100, is_record=True)
    row = world.look()
    assert (row["status"], row["unseen_at"]) == ("loss_unseen", row["observed_at"])
    assert row["reason"].startswith("Permanently lost: 1 archived. No one has acknowledged this yet")
    acknowledge_losses(world.tables, ["bill*"], "Ada", world.now)
    assert world.look()["status"] == "ok"
    world.log(0, 402)
    world.write(update(KEY, 0, 402, (batch(400, 401, state=4),)))
    row = world.look()
    assert (row["status"], row["unseen_at"], row["archived_seen"]) == ("loss_unseen", row["observed_at"], 3)


def test_archived_offsets_without_a_record_count_nowhere(world: Sick) -> None:
    """More markers of transactions than records: a storm as long as nobody asked the log, and a finding that says so.
    Once it is known, also later, they are in no number: a status, a window, a finding; the record among them is."""
    world.log(0, 8)
    markers = tuple(batch(at, at, state=4) for at in (1, 3, 5))
    world.write(snapshot(KEY, 0), update(KEY, 0, 8, (batch(0, 0), *markers, batch(2, 2), batch(7, 7, state=4))))
    assert world.look()["archived_seen"] == 4
    (said,) = (row["detail"] for row in world.rows("findings", "r1") if row["rule"] == "poison_records_archived")
    assert said.startswith("4 record(s) were archived, no two of them adjacent: they may not be records")
    for at in (1, 3, 5, 7):
        world.ask_the_log(at, at, is_record=at == 7)
    world.write(update(KEY, 8, 0, ()))
    assert world.look()["archived_seen"] == 1
    (said,) = (row["detail"] for row in world.rows("findings", "r2") if row["rule"] == "poison_records_archived")
    assert said == "1 record(s) were archived"
    world.log(0, 12)
    world.ask_the_log(9, 10, is_record=False)
    world.write(update(KEY, 8, 4, (batch(8, 8), batch(9, 11, state=4))))
    row = world.look()
    assert (row["archived_seen"], row["window"][-1]["acknowledged"], row["window"][-1]["archived"]) == (2, 1, 1)


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
