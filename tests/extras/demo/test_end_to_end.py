"""The main job on real brokers of three releases: what the tables say is what the broker says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from definitions.status_history import edges_of
from drivers import command_line
from drivers.own_process import printed
from kafka_messages import CoordinatorState, coordinator_states
from samples.dump_lines import write_dump
from servers.real_broker import kafka_tool, releases
from state_topics.filled_topic import read_all

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.format.columns.record_columns import changes_of, replayed_state_of
from acktrail.format.wire.raw_record import RawRecord
from acktrail.history.history_reader import HistoryReader
from acktrail.kafka.client.error_codes import NONE
from acktrail.model.batches import DeliveryState
from acktrail.model.offset_changes import LAST_OFFSET, OffsetStatusKind, StatusChange, status_at
from acktrail.model.share_partition import KEY_COLUMNS, GroupId, SharePartition
from acktrail.tables.delta.store import Tables
from acktrail_connect.export.export_run import observe
from acktrail_demo.workload.scenario import HOSTILE_GROUP, Action, GroupScript, PartitionLog
from acktrail_demo.workload.workload_run import ConfirmedAck, WorkloadRun, run_workload
from acktrail_embedded import EmbeddedBroker

_ENDS = {
    Action.ACCEPT: DeliveryState.ACKNOWLEDGED,
    Action.REJECT: DeliveryState.ARCHIVED,
    Action.RELEASE: DeliveryState.AVAILABLE,
}
Deed = tuple[DeliveryState, int]
"""The delivery state and count after a confirmed acknowledgement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionRun:
    """What one group did with one partition of one incarnation of a topic; no member is left.

    `deeds`: of every record that was answered for, in their order; a release at the delivery count `limit` is an
    archiving. `rejected`: records that were rejected. `deleted`: its state was deleted, with the group or with the
    topic.
    """

    topic: str
    key: SharePartition
    limit: int
    log_end_offset: int
    deleted: bool
    deeds: Mapping[int, list[Deed]]
    rejected: frozenset[int]

    def ended(self, state: DeliveryState) -> frozenset[int]:
        """The offsets that ended in a delivery state."""
        return frozenset(offset for offset, deeds in self.deeds.items() if deeds[-1][0] is state)

    @property
    def finished(self) -> frozenset[int]:
        """The offsets that are acknowledged or archived."""
        return self.ended(DeliveryState.ACKNOWLEDGED) | self.ended(DeliveryState.ARCHIVED)

    @property
    def first_unfinished_offset(self) -> int | None:
        """None when nothing was ever acknowledged. A broker's record of it may lie lower: it moves lazily."""
        if not self.deeds:
            return None
        return next(offset for offset in range(self.log_end_offset + 1) if offset not in self.finished)


def report_of(run: WorkloadRun) -> list[SharePartitionRun]:
    """All share partitions of a finished run, those that are deleted among them."""
    found = []
    for ledger in run.ledgers:
        plan = ledger.plan
        confirmed: dict[PartitionLog, list[ConfirmedAck]] = defaultdict(list)
        for entry in ledger.confirmed:
            confirmed[entry.log].append(entry)
        for topic, log in ((each, log) for each in plan.topics for log in each.logs):
            topic_id = run.topic_ids[topic.name, topic.incarnation]
            found.append(
                SharePartitionRun(
                    topic=topic.name,
                    key=SharePartition(group_id=GroupId(plan.group_id), topic_id=topic_id, partition=log.partition),
                    limit=ledger.limit,
                    log_end_offset=topic.end_offset(log.partition),
                    deleted=plan.script is GroupScript.DELETE_GROUP or topic in plan.deleted_topics,
                    deeds=_deeds(confirmed[log], ledger.limit),
                    rejected=frozenset(each.offset for each in confirmed[log] if each.action is Action.REJECT),
                )
            )
    return found


def _deeds(confirmed: list[ConfirmedAck], limit: int) -> dict[int, list[Deed]]:
    found: dict[int, list[Deed]] = {}
    for ack in sorted(confirmed, key=lambda ack: (ack.delivery_count, ack.offset)):
        is_last = ack.action is Action.RELEASE and ack.delivery_count >= limit
        state = DeliveryState.ARCHIVED if is_last else _ENDS[ack.action]
        found.setdefault(ack.offset, []).append((state, ack.delivery_count))
    return found


pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(1200)]

RUN_ID: Final = "end-to-end"
AVAILABLE, ACKNOWLEDGED, ARCHIVED = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A finished workload, its export, and what the broker itself says afterwards."""

    workload: list[SharePartitionRun]
    tables: TablesConfig
    described_by_kafka: str
    """Output of Kafka's own tool, all groups."""
    coordinator_states: Mapping[SharePartition, CoordinatorState]
    """What the share coordinator answers its brokers."""
    records: tuple[RawRecord, ...]
    """The state topic as an ordinary consumer read it."""

    @property
    def stored(self) -> Tables:
        return Tables(self.tables)

    @property
    def living(self) -> list[SharePartitionRun]:
        return [run for run in self.workload if not run.deleted]


@pytest.fixture(scope="module", params=releases("4.4.0", "4.3.1", "4.2.1"))
def observed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Observed:
    """The main job up to the tables, on a broker of each release; the broker is gone when the tests look."""
    version = request.param
    tables = TablesConfig(uri=str(tmp_path_factory.mktemp("tables")))
    with EmbeddedBroker(version) as broker:
        workload = report_of(run_workload(broker.bootstrap_servers))
        kafka = KafkaConfig(bootstrap_servers=broker.bootstrap_servers)
        observe(kafka, tables, run_id=RUN_ID)
        command = kafka_tool(
            "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
            *("--bootstrap-server", broker.bootstrap_servers, "--describe", "--all-groups"),
            version=version,
        )
        described = printed(*command)
        records = tuple(read_all(broker))
        held = coordinator_states(kafka)
    return Observed(
        workload=workload,
        tables=tables,
        described_by_kafka=described,
        coordinator_states=held,
        records=records,
    )


@pytest.fixture(scope="module")
def reconciled(observed: Observed) -> list[Row]:
    """The reconciliation's rows; the states are written and the history is built, too."""
    from acktrail_jobs.api import reconcile

    reconcile(observed.tables, RUN_ID, "local[2]", with_history=True)
    return observed.stored.rows("reconciliations", {"run_id": RUN_ID})


@pytest.fixture(scope="module")
def states(observed: Observed, reconciled: list[Row]) -> dict[SharePartition, Row]:
    del reconciled  # it wrote them
    return {key_of(row): row for row in observed.stored.rows("share_partition_states")}


@pytest.fixture(scope="module")
def history(observed: Observed, reconciled: list[Row]) -> dict[SharePartition, list[StatusChange]]:
    """The changes of each share partition, in their order."""
    del reconciled  # it built them
    found: dict[SharePartition, list[StatusChange]] = {}
    changes = changes_of(observed.stored.read("delivery_history"))
    for change in sorted(changes, key=lambda change: (change.at.offset, change.first_offset)):
        found.setdefault(change.key, []).append(change)
    return found


def key_of(row: Row) -> SharePartition:
    return SharePartition(**{name: row[name] for name in KEY_COLUMNS})


def kafkas_rows(text: str) -> dict[tuple[str, str, int], tuple[str, str]]:
    """START-OFFSET and LAG by group, topic, partition, from the output of kafka-share-groups.sh."""
    rows = {}
    for line in text.splitlines():
        parts = line.rsplit(None, 4)
        if len(parts) == 5 and parts[0] != "GROUP":
            rows[parts[0].strip(), parts[1], int(parts[2])] = (parts[3], parts[4])
    return rows


def shown(number: int | None) -> str:
    return "-" if number is None else str(number)


def test_every_promised_state_is_there(observed: Observed) -> None:
    """Retries, rejections, exhausted records, a window with gaps, lag, unknown starts, one name with two ids."""
    poisoned, retried, lagging = (
        [run for run in observed.workload if run.key.group_id == name]
        for name in ("fraud-scoring", HOSTILE_GROUP, "order-analytics")
    )
    assert any((ARCHIVED, run.limit) == deeds[-1] for run in poisoned for deeds in run.deeds.values())
    assert all(run.rejected for run in poisoned)
    assert all(any(run.deeds[offset][0][0] is AVAILABLE for offset in run.ended(ACKNOWLEDGED)) for run in retried)
    assert all(0 < len(run.deeds) < run.log_end_offset > len(run.finished) for run in lagging)
    assert any(
        run.first_unfinished_offset in run.ended(AVAILABLE)
        and max(run.ended(ARCHIVED), default=0) > (run.first_unfinished_offset or 0)
        for run in lagging
    )
    assert {run.topic for run in observed.living if not run.deeds} == {"newsletters", "shipments"}
    assert len({run.key.topic_id for run in observed.workload if run.topic == "price-changes"}) == 2


def test_every_share_partition_matches(reconciled: list[Row]) -> None:
    """Nothing moved after the workload, so every verdict is a match, and nothing is said to have moved."""
    assert len(reconciled) > 10
    assert {row["verdict"] for row in reconciled} == {"match"}, [r for r in reconciled if r["verdict"] != "match"]
    assert {row["moved"] for row in reconciled} == {False}


def test_start_offset_and_lag_are_the_brokers(observed: Observed, reconciled: list[Row]) -> None:
    """Replayed start offset and lag of every share partition equal what Kafka's own tool says, no more and no less:
    deleted groups and topics left nothing."""
    ours = {
        (row["group_id"], row["topic"], row["partition"]): (
            shown(row["durable_start_offset"]),
            shown(row["durable_lag"]),
        )
        for row in reconciled
    }

    assert ours == kafkas_rows(observed.described_by_kafka)
    assert len(observed.workload) > len(observed.living)


def test_states_are_those_that_the_coordinator_holds(observed: Observed, states: dict[SharePartition, Row]) -> None:
    """R000-09: what a share coordinator answers the brokers that may ask it (state epoch, start offset, every batch
    with its delivery state and count) is what replay of the state topic gives, share partition by share partition."""
    replayed = {}
    for key, row in states.items():
        state = replayed_state_of(row)
        batches = tuple((b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in state.batches)
        replayed[key] = (NONE, state.state_epoch, state.start_offset, batches)
    held = observed.coordinator_states

    assert {key: replayed[key] for key in held} == held
    assert sum(len(batches) for *_, batches in held.values()) > 10


def test_fates_are_what_the_consumers_did(observed: Observed, states: dict[SharePartition, Row]) -> None:
    """Archived and acknowledged records of every living share partition are those of the workload's own ledger."""
    living = [run for run in observed.living if run.deeds]
    assert len(living) > 8
    for run in living:
        assert states[run.key]["archived_seen"] == len(run.ended(ARCHIVED)), run.key
        assert states[run.key]["first_unfinished_offset"] == run.first_unfinished_offset, run.key
    assert any(run.ended(ARCHIVED) for run in living)


def test_the_history_ends_with_the_states(
    observed: Observed, states: dict[SharePartition, Row], history: dict[SharePartition, list[StatusChange]]
) -> None:
    """Laid over each other, the changes give every share partition's state; of those deleted, that they are absent. All
    of them happened with the record that shows them: a broker's log was read from its beginning."""
    assert states.keys() <= history.keys()
    for key, changes in history.items():
        there = replayed_state_of(states[key]) if key in states else OffsetStatusKind.ABSENT
        edges = edges_of(there)
        for offset in {0, *edges, *(edge - 1 for edge in edges), LAST_OFFSET}:
            assert next(each for each in reversed(changes) if each.covers(offset)).after == status_at(there, offset)
    assert {run.key for run in observed.workload if run.deleted} <= history.keys() - states.keys()
    assert set(observed.stored.read("delivery_history")["is_dated"].to_pylist()) == {True}


def test_every_records_fate_is_what_the_consumers_did(
    observed: Observed, history: dict[SharePartition, list[StatusChange]]
) -> None:
    """Of every record that a consumer answered for: its recorded states and counts are the confirmed acknowledgements,
    in their order, a release at the delivery count limit being an archiving; no ending is missing."""
    for run in observed.workload:
        recorded = [each for each in history.get(run.key, ()) if each.after.kind is OffsetStatusKind.RECORDED]
        for offset, deeds in run.deeds.items():
            found = [(e.after.delivery_state, e.after.delivery_count) for e in recorded if e.covers(offset)]
            assert found == deeds, (run.key, offset)
    assert sum(len(run.deeds) for run in observed.workload) > 1_000


@pytest.mark.usefixtures("history")
def test_a_poisoned_records_fate_at_the_command_line(observed: Observed, capsys: pytest.CaptureFixture[str]) -> None:
    """`acktrail record show` on a record that was released until it was archived: each delivery's ending, each shown by
    a record of the state topic that an ordinary consumer read at that place."""
    key, offset, limit = next(
        (run.key, offset, run.limit)
        for run in observed.workload
        for offset, deeds in run.deeds.items()
        if len(deeds) == run.limit
    )
    place = (key.group_id, key.topic_id, str(key.partition), str(offset))
    found = command_line.run(capsys, "record", "show", *place, "--tables", observed.tables.uri, "--json").answer
    (life,) = found["lives"]
    recorded = [i for i in life["intervals"] if i["standing"] == "recorded"]
    ends = [*(["available"] * (limit - 1)), "archived"]
    assert [(i["delivery_state"], i["delivery_count"]) for i in recorded] == [
        *zip(ends, range(1, limit + 1), strict=True)
    ]
    read = {(raw.state_partition, raw.offset): raw for raw in observed.records}
    for interval in recorded:
        raw = read[interval["since"]["state_partition"], interval["since"]["offset"]]
        assert (raw.timestamp_ms, key.group_id.encode() in (raw.key or b"")) == (interval["since"]["timestamp"], True)
    assert [blank["reason"] for blank in life["not_known"]] == ["deliveries"]
    assert found["is_current"] is True


@pytest.mark.usefixtures("history")
def test_archived_records_and_rates_are_what_the_consumers_did(observed: Observed) -> None:
    """The list of poison records and the counts of all that happened are those of the ledger, of every share partition
    there ever was."""
    reader = HistoryReader(observed.stored)
    counted = {key_of(row): row for row in reader.rates(10**12).to_pylist()}
    names = {"released": AVAILABLE, "acknowledged": ACKNOWLEDGED, "archived": ARCHIVED}
    for run in observed.workload:
        deeds = [deed for several in run.deeds.values() for deed in several]
        own = counted.pop(run.key, None)
        if not deeds:
            assert own is None
            continue
        assert own is not None
        states = [state for state, _ in deeds]
        assert {name: own[name] for name in names} == {n: states.count(state) for n, state in names.items()}, run.key
        assert (own["deliveries"], own["undated"]) == (len(deeds), 0)
        assert own["redeliveries"] == sum(count > 1 for _, count in deeds)
        archived = [each for each in reader.archived(run.key.group_id) if each.key == run.key]
        offsets = {offset for each in archived for offset in range(each.first_offset, each.last_offset + 1)}
        assert offsets == run.ended(ARCHIVED)
        assert sum(each.records for each in archived) == len(offsets)
    assert counted == {}


def test_every_record_was_exported(observed: Observed) -> None:
    """The table holds exactly the records that an ordinary consumer reads, byte for byte, all of them decoded."""
    rows = observed.stored.read("state_records").to_pylist()
    exported = {(r["state_partition"], r["offset"]): (r["timestamp_ms"], r["key"], r["value"]) for r in rows}

    for raw in observed.records:
        assert exported[raw.state_partition, raw.offset] == (raw.timestamp_ms, raw.key, raw.value)
    assert {r["decode_status"] for r in rows} == {"decoded"}


def test_a_dump_replays_to_the_tables(
    observed: Observed, states: dict[SharePartition, Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`acktrail record replay` on a dump of the topic gives the states that the reconciliation wrote."""
    rows = command_line.run(capsys, "record", "replay", write_dump(observed.records, tmp_path / "state.jsonl")).rows
    replayed = {key_of({**row, "group_id": row["group"]}): row for row in rows}

    assert states.keys() == replayed.keys()
    for key, state in states.items():
        expected = {name: state[name] for name in ("state_epoch", "snapshot_epoch", "leader_epoch")}
        offsets = ("start_offset", "first_unfinished_offset", "end_offset")
        expected |= {name: -1 if state[name] is None else state[name] for name in offsets}
        names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
        batches = [[batch[name] for name in names] for batch in state["batches"]]
        expected |= {"delivery_complete_count": state["delivery_complete_count"], "batches": batches}
        assert {name: replayed[key][name] for name in expected} == expected


@pytest.mark.usefixtures("reconciled")
def test_the_gate_passes(observed: Observed) -> None:
    """A healthy cluster breaks no expectation; what is only for information may show."""
    from acktrail_expectations.gate import pass_gate, validate_run

    pass_gate(validate_run(observed.stored, RUN_ID))
    results = observed.stored.read("quality_results").to_pylist()

    assert len(results) > 20
    assert [r for r in results if r["success"] is False and r["severity"] != "info"] == []
    open_ = {(r["suite"], r["expectation"]) for r in results if r["state"] == "not_evaluated"}
    assert {expectation for suite, expectation in open_ if suite == "export_ranges"} <= {
        "gap_first_le_last", "records_follow_gap", "export_contiguous",
    }  # fmt: skip
