"""Tables that lost something are noticed by every user of them, and repaired from the records that Kafka still has."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
import pytest
from jobs.replaying import replayed_again, replayed_here
from jobs.world import batch, key_of, snapshot
from servers.real_broker import releases
from state_topics.filled_topic import create_state_topic, fill

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.embedded import EmbeddedBroker
from acktrail.errors import DamagedTables
from acktrail.export.export_run import export, observe
from acktrail.export.repair_run import preview, repair
from acktrail.format.wire.dialects import encode
from acktrail.model.share_partition import state_partition_of
from acktrail.tables.delta.store import Tables
from acktrail_jobs.commands.pipeline_commands import build_history, reconcile, verify

pytestmark = pytest.mark.broker

PARTITIONS = 2
GROUPS = 12
RUNS = ("r1", "r2", "r3")
ACKTRAIL = str(Path(sys.executable).with_name("acktrail"))


def _write(broker: EmbeddedBroker, number: int) -> None:
    """One snapshot more of every group: that `number` records were acknowledged."""
    states = [snapshot(key_of(f"g{index}"), 0, (batch(0, number),)) for index in range(GROUPS)]
    fill(broker, [(state_partition_of(state.key, PARTITIONS), *encode(state)) for state in states])


@dataclass(frozen=True, kw_only=True)
class Exported:
    """Three observations of a state topic without writers, and what they left: the memory is that of the
    third. `tables` is never changed."""

    broker: EmbeddedBroker
    kafka: KafkaConfig
    tables: TablesConfig

    def copy(self, folder: Path) -> Tables:
        """The tables, to be damaged."""
        shutil.copytree(self.tables.uri, folder / "tables")
        return Tables(TablesConfig(uri=str(folder / "tables")))


@pytest.fixture(scope="module", params=releases("4.3.1", "4.4.0"))
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    folder = tmp_path_factory.mktemp("exported")
    with EmbeddedBroker(request.param) as broker:
        create_state_topic(broker, PARTITIONS)
        tables = TablesConfig(uri=str(folder / "tables"))
        for number, run in enumerate(RUNS):
            _write(broker, number)
            observe(broker.config(), tables, run_id=run)
            replayed_here(Tables(tables), run)
        yield Exported(broker=broker, kafka=broker.config(), tables=tables)


def _log(tables: Tables, table: str = "state_records") -> list[Path]:
    """The commits of a table, oldest first."""
    return sorted(Path(tables.config.uri, table, "_delta_log").glob("*.json"))


def _data(tables: Tables, table: str = "state_records") -> list[Path]:
    """The data files of a table, oldest first."""
    return sorted(Path(tables.config.uri, table).glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)


def _records(tables: Tables) -> list[tuple[int, int, bytes, bytes]]:
    rows = tables.read("state_records", columns=["state_partition", "offset", "key", "value"]).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def _empty(file: Path) -> None:
    file.write_bytes(b"")


LOSSES: dict[str, Callable[[Tables], object]] = {
    "newest commit": lambda tables: _log(tables)[-1].unlink(),
    "newest commit emptied": lambda tables: _empty(_log(tables)[-1]),
    "newest commit cut off": lambda tables: _log(tables)[-1].write_text('{"add":'),
    "two newest commits": lambda tables: [file.unlink() for file in _log(tables)[-2:]],
    "a commit in the middle": lambda tables: _log(tables)[-2].unlink(),
    "the oldest data file": lambda tables: _data(tables)[0].unlink(),
    "the newest data file cut off": lambda tables: _data(tables)[-1].write_bytes(_data(tables)[-1].read_bytes()[:99]),
    "the whole table": lambda tables: shutil.rmtree(Path(tables.config.uri, "state_records")),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_is_refused_and_mended(exported: Exported, tmp_path: Path, loss: str) -> None:
    """Any records may be lost: export, reconciliation, history and verification refuse and name the table. A
    dry run changes nothing. After the repair every record is there once, ranges cover each, and incremental states
    are those of a replay of all, also of what comes later."""
    tables = exported.copy(tmp_path)
    before = _records(tables)
    LOSSES[loss](tables)

    uses: list[Callable[[], object]] = [
        lambda: export(exported.kafka, tables.config, asks_brokers=False),
        lambda: reconcile(tables.config, "r3"),
        lambda: build_history(tables.config),
        lambda: verify(tables.config),
    ]
    for use in uses:
        with pytest.raises(DamagedTables, match="state_records") as caught:
            use()
        assert "acktrail tables repair" in caught.value.hint
    files = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*") if file.is_file()}
    assert not preview(lambda: exported.kafka, tables.config).report.is_sound
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*") if file.is_file()} == files

    done = repair(exported.kafka, tables.config, run_id="repair")
    assert (sum(each.records for each in done.available or ()) > 0, done.gone) == (True, ())
    assert _records(tables) == before
    again = preview(lambda: exported.kafka, tables.config)
    assert again.report.is_sound
    assert repair(exported.kafka, tables.config, run_id="repair-2").available == ()
    assert _ranged(tables) == len(before)
    assert export(exported.kafka, tables.config, asks_brokers=False).records_read == 0
    observe(exported.kafka, tables.config, run_id="r4")
    assert replayed_here(tables, "r4").rows == replayed_again(tables, "r4")
    assert len(replayed_again(tables, "r4")) == GROUPS


def _ranged(tables: Tables) -> int:
    return int(pc.sum(tables.read("export_ranges", columns=["records_read"])["records_read"]).as_py())


def test_what_is_lost_is_said_by_the_command(exported: Exported, tmp_path: Path) -> None:
    """The refusal names the versions and what to do on one line with exit code 3; the dry run is the default and names
    state partitions and offsets."""
    tables = exported.copy(tmp_path)
    _log(tables)[-1].unlink()
    arguments = ("--bootstrap-server", exported.broker.bootstrap_servers, "--tables", tables.config.uri)

    refused = subprocess.run([ACKTRAIL, "run", "export", *arguments], capture_output=True, text=True, check=False)
    assert refused.returncode == 3
    assert "went back to version 2; export_ranges refers to version 3 (`acktrail tables repair`" in refused.stderr
    dry = subprocess.run(
        [ACKTRAIL, "tables", "repair", "--json", *arguments], capture_output=True, text=True, check=False
    )
    assert dry.returncode == 3
    shown = json.loads(dry.stdout)
    ends = {p: sum(1 for row in _records(Tables(exported.tables)) if row[0] == p) for p in range(PARTITIONS)}
    lost = {row["state_partition"]: (row["first_offset"], row["last_offset"]) for row in shown["available"]}
    assert lost == {number: (end * 2 // 3, end - 1) for number, end in ends.items()}
    assert (shown["executed"], shown["gone"]) == (False, [])
    done = subprocess.run(
        [ACKTRAIL, "tables", "repair", "--execute", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("exported again") == PARTITIONS
