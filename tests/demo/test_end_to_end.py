"""The main job on real brokers of three releases: what the tables say is what the broker says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from coordinator_messages import CoordinatorState, coordinator_states
from demo.workload_report import Fate, SharePartitionRun, WorkloadReport, report_of
from samples.dump_lines import write_dump
from servers.real_broker import kafka_tool, releases
from state_topics.filled_topic import read_all

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.embedded import EmbeddedBroker
from acktrail.export.export_run import observe
from acktrail.format.columns.model_values import changes_of, replayed_state_of
from acktrail.format.wire.raw_record import RawRecord
from acktrail.kafka.client.error_codes import NONE
from acktrail.model.share_partition import SharePartition
from acktrail.model.status_changes import OffsetStatusKind, StatusChange, status_ranges
from acktrail.reconcile.past.history_reader import HistoryReader
from acktrail.tables.delta.store import Tables
from acktrail_demo.workload.scenario import HOSTILE_GROUP, Action
from acktrail_demo.workload.workload_run import run_workload

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

Key = tuple[str, str, int]


RUN_ID: Final = "end-to-end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A finished workload, its export, and what the broker itself says afterwards."""

    version: str
    workload: WorkloadReport
    tables: TablesConfig
    described_by_kafka: str
    """Output of Kafka's own tool, all groups."""
    coordinator_states: Mapping[SharePartition, CoordinatorState]
    """What the share coordinator answers its brokers."""
    records: tuple[RawRecord, ...]
    """The state topic as an ordinary consumer read it."""
    progress: tuple[tuple[str, int, int], ...]


@pytest.fixture(scope="module", params=releases("4.4.0", "4.3.1", "4.2.1"))
def observed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Observed:
    """The main job up to the tables, on a broker of each release; the broker is gone when the tests look."""
    version, shown = request.param, list[tuple[str, int, int]]()
    tables = TablesConfig(uri=str(tmp_path_factory.mktemp("tables")))
    with EmbeddedBroker(version) as broker:
        workload = report_of(run_workload(broker.bootstrap_servers, progress=lambda *step: shown.append(step)))
        kafka = KafkaConfig(bootstrap_servers=broker.bootstrap_servers)
        observe(kafka, tables, run_id=RUN_ID)
        command = kafka_tool(
            "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
            *("--bootstrap-server", broker.bootstrap_servers, "--describe", "--all-groups"),
            version=version,
        )
        described = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
        records = tuple(read_all(broker))
        held = coordinator_states(kafka)
    return Observed(
        version=version,
        workload=workload,
        tables=tables,
        described_by_kafka=described,
        coordinator_states=held,
        records=records,
        progress=tuple(shown),
    )


@pytest.fixture(scope="module")
def reconciled(observed: Observed) -> list[dict[str, Any]]:
    """The reconciliation's rows; the history is built too."""
    from acktrail_jobs.commands.pipeline_commands import reconcile

    reconcile(observed.tables, RUN_ID, "local[2]", with_history=True)
    return [row for row in Tables(observed.tables).read("reconciliations").to_pylist() if row["run_id"] == RUN_ID]


def kafkas_rows(text: str) -> dict[Key, tuple[str, str]]:
    """START-OFFSET and LAG by group, topic, partition, from the output of kafka-share-groups.sh."""
    rows = {}
    for line in text.splitlines():
        parts = line.rsplit(None, 4)
        if len(parts) == 5 and parts[0] != "GROUP":
            rows[parts[0].strip(), parts[1], int(parts[2])] = (parts[3], parts[4])
    return rows


def shown(number: int | None) -> str:
    return "-" if number is None else str(number)


def of_group(report: WorkloadReport, name: str) -> list[SharePartitionRun]:
    return [run for run in report.share_partitions if run.group_id == name]


def test_every_promised_state_is_there(observed: Observed) -> None:
    """Retries, rejections, exhausted records, a window with gaps, lag, unknown starts, one name with two ids."""
    report = observed.workload
    by_group = {group.group_id: group for group in report.groups}
    poisoned = of_group(report, "fraud-scoring")
    limit = by_group["fraud-scoring"].delivery_count_limit
    assert any((Fate.ARCHIVED, limit) in run.fates for run in poisoned)
    assert all(run.acted_on(Action.REJECT) for run in poisoned)
    retried = of_group(report, HOSTILE_GROUP)
    assert all(run.acted_on(Action.RELEASE) & run.offsets(Fate.ACKNOWLEDGED) for run in retried)
    lagging = of_group(report, "order-analytics")
    assert all(run.lag and run.offsets(Fate.NEVER_DELIVERED) for run in lagging)
    assert any(
        run.first_unfinished_offset in run.offsets(Fate.AVAILABLE)
        and max(run.offsets(Fate.ARCHIVED), default=0) > (run.first_unfinished_offset or 0)
        for run in lagging
    )
    unstarted = [run for run in report.share_partitions if not run.deleted and run.first_unfinished_offset is None]
    assert {run.topic for run in unstarted} == {"newsletters", "shipments"}
    assert len({topic_id for (name, _), topic_id in report.topic_ids.items() if name == "price-changes"}) == 2


def test_progress_ascends_to_its_end(observed: Observed) -> None:
    """Steps never go back and end at all steps."""
    done = [step for _, step, _ in observed.progress]
    assert done == sorted(done)
    assert {steps for _, _, steps in observed.progress} == {done[-1]}


def test_every_share_partition_matches(reconciled: list[dict[str, Any]]) -> None:
    """Nothing moved after the workload, so every verdict is a match, and nothing is said to have moved."""
    assert len(reconciled) > 10
    assert {row["verdict"] for row in reconciled} == {"match"}, [r for r in reconciled if r["verdict"] != "match"]
    assert {row["moved"] for row in reconciled} == {False}


def test_start_offset_and_lag_are_the_brokers(observed: Observed, reconciled: list[dict[str, Any]]) -> None:
    """Replayed start offset and lag of every share partition equal what Kafka's own tool says, no more and no less."""
    ours = {
        (row["group_id"], row["topic"], row["partition"]): (
            shown(row["durable_start_offset"]),
            shown(row["durable_lag"]),
        )
        for row in reconciled
    }

    assert ours == kafkas_rows(observed.described_by_kafka)


def test_states_are_those_that_the_coordinator_holds(observed: Observed, reconciled: list[dict[str, Any]]) -> None:
    """R000-09: what a share coordinator answers the brokers that may ask it (state epoch, start offset, every batch
    with its delivery state and count) is what replay of the state topic gives, share partition by share partition."""
    del reconciled  # it wrote the states
    replayed = {
        state.key: (
            NONE,
            state.state_epoch,
            state.start_offset,
            tuple((b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in state.batches),
        )
        for state in map(replayed_state_of, Tables(observed.tables).read("share_partition_states").to_pylist())
    }
    held = {
        key: (said.error_code, said.state_epoch, said.start_offset, said.batches)
        for key, said in observed.coordinator_states.items()
    }

    assert {key: replayed[key] for key in held} == held
    assert sum(len(batches) for *_, batches in held.values()) > 10


def test_fates_are_what_the_consumers_did(observed: Observed, reconciled: list[dict[str, Any]]) -> None:
    """Archived and acknowledged records of every living share partition are those of the workload's own ledger."""
    del reconciled  # it wrote the states
    states = {
        (row["group_id"], row["topic_id"], row["partition"]): row
        for row in Tables(observed.tables).read("share_partition_states").to_pylist()
    }
    living = [run for run in observed.workload.share_partitions if not run.deleted and run.actions]
    assert len(living) > 8
    for run in living:
        state = states[run.group_id, run.topic_id, run.partition]
        assert state["archived_seen"] == len(run.offsets(Fate.ARCHIVED)), run.key
        assert state["first_unfinished_offset"] == run.first_unfinished_offset, run.key
    assert sum(len(run.offsets(Fate.ARCHIVED)) for run in living) > 0


def test_deleted_groups_and_topics_left_nothing(observed: Observed, reconciled: list[dict[str, Any]]) -> None:
    """A deleted group's or topic's share partitions are gone from the state and from the verdicts."""
    there = {(row["group_id"], row["topic_id"], row["partition"]) for row in reconciled}
    deleted = {(run.group_id, run.topic_id, run.partition) for run in observed.workload.share_partitions if run.deleted}

    assert deleted
    assert not there & deleted


def test_the_history_ends_with_the_states(observed: Observed, reconciled: list[dict[str, Any]]) -> None:
    """Laid over each other, the changes give every share partition's state; of those deleted, that they are absent. All
    of them happened with the record that shows them: a broker's log was read from its beginning."""
    del reconciled  # it built the history
    rows = Tables(observed.tables).read("delivery_history")
    of_key: dict[Any, list[StatusChange]] = {}
    for change in sorted(changes_of(rows), key=lambda change: (change.at.offset, change.first_offset)):
        of_key.setdefault(change.key, []).append(change)
    states = {
        state.key: state
        for state in map(replayed_state_of, Tables(observed.tables).read("share_partition_states").to_pylist())
    }
    assert states.keys() <= of_key.keys()
    for key, changes in of_key.items():
        for tile in status_ranges(states.get(key, OffsetStatusKind.ABSENT)):
            for offset in (tile.first_offset, tile.last_offset):
                assert next(each for each in reversed(changes) if each.covers(offset)).after == tile.status
    assert {run.key for run in observed.workload.share_partitions if run.deleted} <= of_key.keys() - states.keys()
    assert set(rows["is_dated"].to_pylist()) == {True}


def test_every_records_fate_is_what_the_consumers_did(observed: Observed, reconciled: list[dict[str, Any]]) -> None:
    """Of every record that a consumer answered for: its recorded states and counts are the confirmed acknowledgements,
    in their order, a release at the delivery count limit being an archiving; no ending is missing."""
    del reconciled  # it built the history
    limits = {group.group_id: group.delivery_count_limit for group in observed.workload.groups}
    told = _told(observed)
    answered = 0
    for run in observed.workload.share_partitions:
        for offset, deeds in _deeds(run, limits[run.group_id]).items():
            found = [(each.after.delivery_state, each.after.delivery_count) for each in told[run.key, offset]]
            assert found == deeds, (run.key, offset)
            answered += 1
    assert answered > 1_000


def test_a_poisoned_records_fate_at_the_command_line(observed: Observed, reconciled: list[dict[str, Any]]) -> None:
    """`acktrail record show` on a record that was released until it was archived: each delivery's ending, each shown by
    a record of the state topic that an ordinary consumer read at that place."""
    del reconciled  # it built the history
    limits = {group.group_id: group.delivery_count_limit for group in observed.workload.groups}
    run, offset, deeds = next(
        (run, offset, deeds)
        for run in observed.workload.share_partitions
        for offset, deeds in _deeds(run, limits[run.group_id]).items()
        if len(deeds) == limits[run.group_id]
    )
    acktrail, record = str(Path(sys.executable).with_name("acktrail")), (run.group_id, run.topic_id, str(run.partition))
    done = subprocess.run(
        [acktrail, "record", "show", *record, str(offset), "--tables", observed.tables.uri, "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    found = json.loads(done.stdout)
    (life,) = found["lives"]
    recorded = [i for i in life["intervals"] if i["standing"] == "recorded"]
    states = ["available"] * (len(deeds) - 1) + ["archived"]
    assert [(i["delivery_state"], i["delivery_count"]) for i in recorded] == list(
        zip(states, range(1, len(deeds) + 1), strict=True)
    )
    read = {(raw.state_partition, raw.offset): raw for raw in observed.records}
    for interval in recorded:
        raw = read[interval["since"]["state_partition"], interval["since"]["offset"]]
        assert (raw.timestamp_ms, run.group_id.encode() in (raw.key or b"")) == (interval["since"]["timestamp"], True)
    assert [blank["reason"] for blank in life["not_known"]] == ["deliveries"]
    assert found["is_current"] is True


def test_archived_records_and_rates_are_what_the_consumers_did(
    observed: Observed, reconciled: list[dict[str, Any]]
) -> None:
    """The list of poison records and the counts of all that happened are those of the ledger, of every share partition
    there ever was."""
    del reconciled  # it built the history
    reader = HistoryReader(Tables(observed.tables))
    limits = {group.group_id: group.delivery_count_limit for group in observed.workload.groups}
    counted = {(r["group_id"], r["topic_id"], r["partition"]): r for r in reader.rates(10**12).to_pylist()}
    for run in observed.workload.share_partitions:
        deeds = [deed for several in _deeds(run, limits[run.group_id]).values() for deed in several]
        own = counted.pop((run.group_id, run.topic_id, run.partition), None)
        if not deeds:
            assert own is None
            continue
        states = [state for state, _ in deeds]
        expected = {"released": states.count(0), "acknowledged": states.count(2), "archived": states.count(4)}
        assert own is not None
        assert {name: own[name] for name in expected} == expected, run.key
        assert (own["deliveries"], own["undated"]) == (len(deeds), 0)
        assert own["redeliveries"] == sum(count > 1 for _, count in deeds)
        archived = [each for each in reader.archived(run.group_id) if each.key == run.key]
        offsets = {offset for each in archived for offset in range(each.first_offset, each.last_offset + 1)}
        assert offsets == run.offsets(Fate.ARCHIVED)
        assert sum(each.records for each in archived) == len(offsets)
    assert counted == {}


def _told(observed: Observed) -> dict[Any, list[StatusChange]]:
    """The changes to a recorded status of every offset that has some."""
    of_key: dict[Any, list[StatusChange]] = {}
    for change in changes_of(Tables(observed.tables).read("delivery_history")):
        of_key.setdefault(change.key, []).append(change)
    found: dict[Any, list[StatusChange]] = {}
    for key, changes in of_key.items():
        for change in sorted(changes, key=lambda change: (change.at.offset, change.first_offset)):
            if change.after.kind is OffsetStatusKind.RECORDED:
                for offset in range(change.first_offset, change.last_offset + 1):
                    found.setdefault((key, offset), []).append(change)
    return found


def _deeds(run: SharePartitionRun, limit: int) -> dict[int, list[tuple[int, int]]]:
    """Delivery state and count after every confirmed acknowledgement, by offset."""
    states = {Action.ACCEPT: 2, Action.REJECT: 4, Action.RELEASE: 0}
    deeds: dict[int, list[tuple[int, int]]] = {}
    for ack in run.actions:
        is_last = ack.action is Action.RELEASE and ack.delivery_count >= limit
        deeds.setdefault(ack.offset, []).append((4 if is_last else states[ack.action], ack.delivery_count))
    return deeds


def test_every_record_was_exported(observed: Observed) -> None:
    """The table holds exactly the records that an ordinary consumer reads, byte for byte, all of them decoded."""
    rows = Tables(observed.tables).read("state_records").to_pylist()
    exported = {(r["state_partition"], r["offset"]): (r["timestamp_ms"], r["key"], r["value"]) for r in rows}

    for raw in observed.records:
        assert exported[raw.state_partition, raw.offset] == (raw.timestamp_ms, raw.key, raw.value)
    assert {r["decode_status"] for r in rows} == {"decoded"}


def test_a_dump_replays_to_the_tables(observed: Observed, reconciled: list[dict[str, Any]], tmp_path: Path) -> None:
    """`acktrail record replay` on a dump of the topic gives the states that the reconciliation wrote."""
    del reconciled  # it wrote the states
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("acktrail")),
            "record",
            "replay",
            str(write_dump(observed.records, tmp_path / "state.jsonl")),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    replayed = {(s["group"], s["topic_id"], s["partition"]): s for s in map(json.loads, done.stdout.splitlines())}
    states = Tables(observed.tables).read("share_partition_states").to_pylist()

    assert {(s["group_id"], s["topic_id"], s["partition"]) for s in states} == replayed.keys()
    for state in states:
        mine = replayed[state["group_id"], state["topic_id"], state["partition"]]
        start = -1 if state["start_offset"] is None else state["start_offset"]
        assert mine["start_offset"] == start
        for name in ("state_epoch", "snapshot_epoch", "leader_epoch", "delivery_complete_count"):
            assert mine[name] == state[name], name
        assert mine["batches"] == [
            [b["first_offset"], b["last_offset"], b["delivery_state"], b["delivery_count"]] for b in state["batches"]
        ]


def test_the_gate_passes(observed: Observed, reconciled: list[dict[str, Any]]) -> None:
    """A healthy cluster breaks no expectation; what is only for information may show."""
    del reconciled  # the suites look at what it wrote
    from acktrail_expectations.gate import pass_gate, validate_run

    pass_gate(validate_run(Tables(observed.tables), RUN_ID))
    results = Tables(observed.tables).read("quality_results").to_pylist()

    assert len(results) > 20
    assert [r for r in results if r["success"] is False and r["severity"] != "info"] == []
    open_ = {(r["suite"], r["expectation"]) for r in results if r["state"] == "not_evaluated"}
    assert {expectation for suite, expectation in open_ if suite == "export_ranges"} <= {
        "gap_first_le_last", "records_follow_gap", "export_contiguous",
    }  # fmt: skip
