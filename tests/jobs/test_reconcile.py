"""The reconciliation job on real Delta tables: on Spark, and in this process where what is judged is all there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from drivers.command_line import run
from jobs.world import Topic, World, batch, busy, key_of, snapshot, topic_id, update

from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, ConcurrentCommit, ConfigurationError, InputError
from acktrail.model.share_partition import SharePartition, state_partition_of
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import reconciliation_commit
from acktrail_jobs.api import reconcile
from acktrail_jobs.reconcile import frames_of_run

on_spark = pytest.mark.usefixtures("spark")

WRITTEN = ("share_partition_states", "reconciliations", "findings")


@pytest.mark.spark
@on_spark
def test_the_same_run_again_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a row and not a commit, however many buckets there are; and a run that was stopped is completed."""
    monkeypatch.setattr(frames_of_run, "_ROWS_OF_A_BUCKET", 5)
    busy(world, 7)
    orphan = key_of("orphan")
    world.write(snapshot(orphan))
    world.groups["orphan"] = "Dead"
    world.observe("r1")
    commit_files = Tables.commit_files

    def refusing(self: Tables, name: str, *arguments: Any, **options: Any) -> int:
        if name == "reconciliations":
            raise ConcurrentCommit("refused")
        return commit_files(self, name, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Tables, "commit_files", refusing)
        with pytest.raises(ConcurrentCommit):
            reconcile(world.config)
    first = reconcile(world.config)
    assert first.share_partitions == len(world.states) == len(world.rows("share_partition_states"))
    assert len(world.verdicts("r1")) == first.share_partitions > 10
    assert world.verdicts("r1")[orphan.coordinator_key] == "orphan_state"
    rows = {name: sorted(world.rows(name), key=str) for name in WRITTEN}
    versions = _versions(world.tables)
    again = reconcile(world.config, "r1")
    assert (again, again.ran_on) == (first, None)
    assert _versions(world.tables) == versions
    assert {name: sorted(world.rows(name), key=str) for name in WRITTEN} == rows


def test_each_verdict_with_its_finding(world: World) -> None:
    """Every way in which durable and described state differ is reported by its name, with the record that shows it."""
    world.topics[topic_id(1)].partitions = dict.fromkeys(range(9), (5, 100))
    world.topics[topic_id(2)] = Topic(name="gone", status="deleted")
    keys = {
        "match": key_of("g", partition=0),
        "live_ahead": key_of("g", partition=1),
        "durable_ahead": key_of("g", partition=2),
        "missing_state": key_of("g", partition=3),
        "past_log_end": key_of("g", partition=4),
        "before_log_start": key_of("g", partition=5),
        "orphan_state": key_of("g", topic=2),
        "unknown": key_of("g", partition=6),
        "not_authorized": key_of("g", partition=7),
    }
    starts = {"past_log_end": 101, "before_log_start": 4}
    places = {
        name: world.write(snapshot(key, starts.get(name, 10))) for name, key in keys.items() if name != "missing_state"
    }
    world.described[keys["live_ahead"]] = {"start_offset": 10, "lag": 80}
    world.described[keys["durable_ahead"]] = {"start_offset": 10, "lag": 91}
    world.described[keys["missing_state"]] = {"start_offset": 10, "lag": 90}
    world.described[keys["unknown"]] = {"error_code": 3, "error": "UNKNOWN_TOPIC_OR_PARTITION"}
    world.described[keys["not_authorized"]] = {"error_code": 29, "error": "TOPIC_AUTHORIZATION_FAILED"}
    world.observe("r1")
    summary = reconcile(world.config)
    assert world.verdicts("r1") == {key.coordinator_key: name for name, key in keys.items()}
    assert summary.verdicts == dict.fromkeys(sorted(keys), 1)
    assert world.findings("r1") == {(name, key.coordinator_key) for name, key in keys.items() if name != "match"}
    for row in world.rows("findings"):
        place = places.get(row["rule"])
        assert place is None or place == (row["evidence_state_partition"], row["evidence_offset"])
    severities = {row["rule"]: row["severity"] for row in world.rows("findings")}
    assert {rule for rule, severity in severities.items() if severity == "critical"} == {
        "durable_ahead",
        "missing_state",
        "past_log_end",
    }


def test_what_moves_during_the_observation_is_no_alarm(world: World) -> None:
    """A group that works, one that is created and one that is deleted while the state topic is read."""
    busy_key, new, old = key_of("busy"), key_of("new"), key_of("old")
    world.write(snapshot(busy_key, 0), snapshot(old, 0))
    world.sample("r1", "before")
    world.write(update(busy_key, 0, 10, (batch(0, 9),)), snapshot(new, 0))
    world.export("r1")
    world.write(update(busy_key, 10, 20, (batch(10, 29),)))
    world.delete_group("old")
    world.sample("r1", "after")
    summary = reconcile(world.config)
    assert summary.verdicts == {"match": 3}
    assert summary.moved == 3
    assert not world.findings("r1")


def test_an_export_that_lacks_records_leaves_no_verdict(world: World) -> None:
    """Behind the log end the observation began with, or damaged after the last snapshot, or pruned unread: unknown and
    why, with no lag; a share partition with a snapshot since is judged."""
    behind, damaged, healed = (_key_on(world, partition, "a") for partition in (0, 1, 2))
    lost, found_again = _key_on(world, 3, "b"), _key_on(world, 3, "c")
    world.write(snapshot(behind), snapshot(damaged), snapshot(healed), snapshot(lost), snapshot(found_again))
    world.export("r0")
    world.write(update(lost, 5, 0, ()), update(found_again, 5, 0, ()), snapshot(found_again, 6))
    world.damage(damaged)
    world.damage(healed)
    world.write(snapshot(healed, 3), update(damaged, 4, 0, ()))
    world.write(update(behind, 7, 0, ()), update(behind, 8, 0, ()), update(behind, 9, 0, ()))
    world.sample("r1", "before")
    world.export("r1", lost={3: 4}, at_most=2)
    world.sample("r1", "after")
    reconcile(world.config)
    rows = {row["group_id"]: row for row in world.rows("reconciliations")}
    completeness = {row["group_id"]: row["completeness"] for row in world.rows("share_partition_states")}
    for key, whole, why in (
        *((behind, "complete", "export"), (damaged, "unreadable", "decoded"), (lost, "gap", "not exported")),
        *((healed, "complete", None), (found_again, "complete", None)),
    ):
        row = rows[key.group_id]
        assert (row["verdict"], completeness[key.group_id]) == ("match" if why is None else "unknown", whole), row
        assert why is None or (why in row["reason"] and row["durable_lag"] is None)
    rules = {(rule, subject.partition(",")[0]) for rule, subject in world.findings("r1")}
    assert rules >= {
        ("export_complete", "state partition 0"),
        ("export_complete", "state partition 3"),
        ("records_quarantined", "state partition 1"),
        ("records_quarantined", "state partition 2"),
    }


def test_what_cannot_be_known_is_unknown(world: World) -> None:
    """A described share partition without state beside a record without a readable key, state
    of a topic that is not visible: each unknown, with its reason. A group that may not be asked is not authorized."""
    refused, missing, unseen = key_of("refused"), key_of("missing"), key_of("unseen", topic=7)
    world.write(snapshot(refused), snapshot(unseen))
    world.groups["missing"] = "Stable"
    world.described[missing] = {"start_offset": 3, "lag": 97}
    world.write_bytes(_place(world, missing), b"\x00\x00\x7f", b"")
    world.refused["refused"] = "GROUP_AUTHORIZATION_FAILED"
    world.observe("r1")
    reconcile(world.config)
    verdicts = {row["group_id"]: row["verdict"] for row in world.rows("reconciliations")}
    assert verdicts == {"refused": "not_authorized", "missing": "unknown", "unseen": "unknown"}
    reasons = {row["group_id"]: row["reason"] for row in world.rows("reconciliations")}
    assert "GROUP_AUTHORIZATION_FAILED" in reasons["refused"]
    assert "names no share partition" in reasons["missing"]
    assert "no topic with this id" in reasons["unseen"]


def test_without_the_state_topics_ends_nothing_is_claimed(world: World) -> None:
    """When the state topic was not seen before the export, it is unknown whether the export is whole."""
    world.has_state_topic = False
    world.write(snapshot(key_of("a")))
    world.observe("r1")
    assert reconcile(world.config).verdicts == {"unknown": 1}
    assert not {rule for rule, _ in world.findings("r1")} - {"unknown"}


def test_a_state_counts_where_a_broker_looks_for_it(world: World) -> None:
    """Records of a share partition on another state partition are a finding, and its state is not theirs, though they
    are more and newer."""
    key = key_of("s")
    world.write(snapshot(key, 2))
    world.write(*[snapshot(key, 3)] * 9, on=(_place(world, key) + 1) % 4)
    world.described[key] = {"start_offset": 2, "lag": 98}
    world.observe("r1")
    reconcile(world.config)
    (state,) = world.rows("share_partition_states")
    assert (state["state_partition"], state["start_offset"]) == (_place(world, key), 2)
    assert set(world.verdicts("r1").values()) == {"match"}
    assert world.findings("r1") == {("one_state_partition_per_key", key.coordinator_key)}


def test_hostile_names_stay_what_they_are(world: World) -> None:
    """Group ids are data: quotes, separators, markup and line ends come out of the tables as they went in."""
    names = ["a:b:0", "'; DROP TABLE findings; --", "../../etc", "<script>", "x\ny\x00z", "ü𝄞", ""]
    world.write(*(snapshot(key_of(name), 0, (batch(0, 0, 4, 1),)) for name in names))
    world.observe("r1")
    summary = reconcile(world.config)
    assert summary.verdicts == {"match": len(names)}
    assert {row["group_id"] for row in world.rows("findings")} == set(names)


def test_the_newest_complete_observation_is_taken(world: World) -> None:
    """An observation without a second sample is skipped, and refused by name."""
    world.write(snapshot(key_of("a")))
    world.observe("z-older")
    world.observe("a-newer")
    world.sample("half", "before")
    assert reconcile(world.config).run_id == "a-newer"
    with pytest.raises(InputError, match="no answers of the brokers from after"):
        reconcile(world.config, "half")


@pytest.mark.spark
@on_spark
def test_a_reconciliation_without_share_partitions_leaves_its_commit(world: World) -> None:
    """A cluster without share partitions was reconciled: the gate can distinguish that from a run that was not. So can
    the same run again, although nothing was found: it does no work."""
    world.observe("r1")
    reconcile(world.config)
    assert reconcile(world.config, "r1").ran_on is None
    cluster_id = world.rows("offset_observations", "r1")[0]["cluster_id"]
    commit = reconciliation_commit(cluster_id, "r1")
    assert Tables(world.config).transaction_version("reconciliations", commit) == 1


def test_tables_without_an_observation_are_refused(tmp_path: Path) -> None:
    """Nothing to reconcile is an error that says what to do, and nothing is written."""
    with pytest.raises(ConfigurationError, match="there is no such folder"):
        reconcile(TablesConfig(uri=str(tmp_path / "tables")))
    assert not (tmp_path / "tables").exists()


@pytest.mark.spark
@on_spark
@pytest.mark.parametrize("table", ["state_records", "offset_observations", "topics"])
def test_files_that_cannot_be_read_are_one_line(world: World, table: str) -> None:
    """Broken files under the tables, found by the driver or in a worker: the error names the cause, no traceback."""
    world.write(snapshot(key_of("a")))
    world.observe("r1")
    for file in (Path(world.config.uri) / table).rglob("*.parquet"):
        file.write_bytes(b"not parquet" * 100)
    with pytest.raises(AcktrailError) as failure:
        reconcile(world.config)
    assert "\n" not in failure.value.message
    assert "parquet" in failure.value.message.lower()


def test_what_a_person_reads(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A line about the run and a table of counts, with names that cannot steer a terminal. An observation that does not
    exist is one line with the nearest name, exit code 2, and nothing on stdout."""
    world.write(snapshot(key_of("a")))
    world.observe("r\x1b[2J")
    done = run(capsys, "run", "reconcile", "--tables", world.config.uri)
    assert (done.code, "1 share partitions" in done.stdout, "match" in done.stdout) == (0, True, True)
    assert "\x1b" not in done.stdout
    wrong = run(capsys, "run", "reconcile", "--tables", world.config.uri, "--run-id", "r[2J").complaint(2)
    assert wrong.startswith("acktrail: unknown observation 'r[2J' (did you mean 'r\\x1b[2J'?)")


def _key_on(world: World, state_partition: int, prefix: str) -> SharePartition:
    """A share partition whose records a broker puts on `state_partition`."""
    candidates = (key_of(f"{prefix}{number}") for number in range(1_000))
    return next(key for key in candidates if _place(world, key) == state_partition)


def _place(world: World, key: SharePartition) -> int:
    return state_partition_of(key, len(world.logs))


def _versions(tables: Tables) -> dict[str, int]:
    return {name: snapshot.version for name in WRITTEN if (snapshot := tables.snapshot(name)) is not None}
