"""Maintenance: the same rows in fewer files, only what was asked is dropped, and others may work meanwhile. Killed at
any moment and started again, it and an exporter lose nothing and double nothing."""

from __future__ import annotations

import datetime as dt
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from connect.test_sink import NOON, ensure_accounted
from hypothesis import given, settings
from hypothesis import strategies as st
from samples.memory_source import MemoryLog, MemoryTask
from tables.exporter_process import pairs

from acktrail.config import TablesConfig
from acktrail.errors import DamagedTables
from acktrail.format.columns.schemas.table_schemas import EXPORT_RANGES, STATE_RECORDS
from acktrail.model.log_positions import DROPPED_BY_RETENTION
from acktrail.tables.delta import table_layout
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import DataFile
from acktrail.tables.records.continuity import ensure_whole
from acktrail.tables.upkeep import file_rewrite
from acktrail.tables.upkeep.file_rewrite import commit_rewrite, compaction_bins, rewrite
from acktrail.tables.upkeep.maintenance import MaintenancePolicy, MaintenanceReport, maintain, preview
from acktrail.tables.upkeep.retention import merged_ranges
from acktrail_connect.contract import SourceTaskContext
from acktrail_connect.sinks.delta_sink import DeltaSink

RECORDS = "state_records"
RANGES = "export_ranges"
AT_ONCE = MaintenancePolicy(vacuum_after_ms=0)
FIRST_MS = 1_700_000_000_000
"""The time of a ``MemoryLog``'s record at offset 0; each is a ms later than the one before."""
MAINTENANCE = (
    "import sys; from acktrail.config import TablesConfig; from acktrail.tables.upkeep.maintenance import *\n"
    "policy = MaintenancePolicy(keep_ms=1_000, small_files=2, vacuum_after_ms=0)\n"
    "maintain(TablesConfig(uri=sys.argv[1]), policy, now_ms=int(sys.argv[2]), "
    "progress=lambda text: print(text, flush=True))\n"
)
spans = st.lists(
    st.tuples(st.integers(1, 9), st.sampled_from(["records", "gap", "both", "file", "break"]), st.integers(0, 50)),
    min_size=1,
    max_size=30,
)
PROCESS = Path(__file__).with_name("exporter_process.py")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")}
END_OFFSET = 6_000
FLUSH_ROWS = 500
KILLS = 4


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(TablesConfig(uri=str(tmp_path / "tables")))


class Exporter:
    """Commits of one exporter that stays up, each with as many records of a state partition as its pace. They are old
    but the newest one, of the time `newest`, by default now, from which ages are counted."""

    def __init__(self, tables: Tables, *paces: int, newest: dt.datetime | None = None) -> None:
        self._at, self._newest = NOON, newest
        self._sink = DeltaSink(tables, cluster_id="c1", run_id="run", clock=lambda: self._at)
        self.logs = [MemoryLog(pairs=pairs(), partition=number) for number in range(len(paces))]
        self._paces = paces
        self._tasks = [
            MemoryTask([log], cluster_id="c1", batch_rows=pace, is_continuous=True)
            for log, pace in zip(self.logs, paces, strict=True)
        ]
        for task in self._tasks:
            task.start(SourceTaskContext(position=self._sink.position))

    def commit(self, commits: int) -> None:
        for left in reversed(range(commits)):
            self._at = NOON if left else self._newest or dt.datetime.now(dt.UTC)
            for log, task, pace in zip(self.logs, self._tasks, self._paces, strict=True):
                log.end_offset += pace
                for batch in task.poll(0):
                    self._sink.put(batch)
            self._sink.flush()

    @property
    def positions(self) -> list[int | None]:
        """As a new exporter would find them."""
        snapshot = self._sink._tables.snapshot(RECORDS)
        assert snapshot is not None
        return [snapshot.transaction_version(task.source_partition) for task in self._tasks]


def rows_of(tables: Tables) -> pa.Table:
    """Every record, in order."""
    return tables.read(RECORDS).sort_by([("state_partition", "ascending"), ("offset", "ascending")]).combine_chunks()


def files_of(tables: Tables, name: str = RECORDS) -> tuple[DataFile, ...]:
    snapshot = tables.snapshot(name)
    assert snapshot is not None
    return snapshot.files()


def upkeep(report: MaintenanceReport, name: str = RECORDS) -> tuple[int, int | None]:
    (own,) = (each for each in report.tables if each.table == name)
    return own.files, own.files_after


def test_rows_before_are_rows_after(tables: Tables) -> None:
    """One file in the place of many: the same rows byte for byte, in the order of lookups; positions, properties and
    the exporter's next commit as if nothing was done; a preview shows it and changes nothing."""
    exporter = Exporter(tables, 7, 90, 1)
    exporter.commit(12)
    before, at = rows_of(tables), exporter.positions
    versions = [tables.snapshot(name).version for name in (RECORDS, RANGES)]  # type: ignore[union-attr]  # both exist

    shown = preview(tables.config, AT_ONCE)
    assert upkeep(shown)[0] == 12
    assert versions == [tables.snapshot(name).version for name in (RECORDS, RANGES)]  # type: ignore[union-attr]
    done = maintain(tables.config, AT_ONCE)

    assert upkeep(done) == (12, 1)
    assert rows_of(tables).equals(before)
    assert tables.read_files(RECORDS, [files_of(tables)[0].path]).equals(before)
    assert exporter.positions == at
    assert len(tables.read(RANGES)) == 3 + 3  # one of all commits but the newest, and that one
    ensure_accounted(tables)
    ensure_whole(tables)
    exporter.commit(1)
    assert rows_of(tables).num_rows == before.num_rows + 98
    ensure_accounted(tables)
    folder = Path(tables.root, RECORDS)
    assert len(list(folder.glob("*.parquet"))) == 2


def test_a_lookup_reads_one_row_group(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of files that were written again, the bounds of row groups leave one or two that may hold a record."""
    _, _, numbers = table_layout._MASSES["state_records"]
    monkeypatch.setitem(table_layout._MASSES, "state_records", (STATE_RECORDS, 64, numbers))
    monkeypatch.setattr(file_rewrite, "SMALL_ROWS", 512)
    monkeypatch.setattr(file_rewrite, "MOST_ROWS", 1_024)
    monkeypatch.setattr(file_rewrite, "LEAST_GROUP", 8)
    Exporter(tables, 10, 90, 1, 12).commit(36)
    before = rows_of(tables)
    maintain(tables.config, AT_ONCE)
    assert rows_of(tables).equals(before)
    groups = []
    for file in files_of(tables):
        opened = pq.ParquetFile(Path(tables.root, RECORDS, file.path))
        columns = {name: opened.schema_arrow.names.index(name) for name in ("state_partition", "offset")}
        for number in range(opened.num_row_groups):
            group = opened.metadata.row_group(number)
            bounds = [group.column(index).statistics for index in columns.values()]
            groups.append([(each.min, each.max) for each in bounds])
    assert len(groups) > 20
    for row in random.Random(3).sample(before.select(["state_partition", "offset"]).to_pylist(), 200):
        address = (row["state_partition"], row["offset"])
        found = [
            own for own in groups if all(low <= value <= high for value, (low, high) in zip(address, own, strict=True))
        ]
        assert 1 <= len(found) <= 3


def test_files_that_others_replaced_are_left_to_them(tables: Tables) -> None:
    """A compaction whose files another engine compacted meanwhile is dropped; one beside which records came lands."""
    exporter = Exporter(tables, 7)
    exporter.commit(4)
    snapshot = tables.snapshot(RECORDS)
    assert snapshot is not None
    first, second = (rewrite(snapshot, snapshot.files()) for _ in range(2))
    exporter.commit(1)
    assert commit_rewrite(tables, RECORDS, first, what="compact")
    assert not commit_rewrite(tables, RECORDS, second, what="compact")
    snapshot = tables.snapshot(RECORDS)
    assert snapshot is not None
    third = rewrite(snapshot, snapshot.files())
    snapshot.delta.optimize.compact()
    assert not commit_rewrite(tables, RECORDS, third, what="compact")
    assert rows_of(tables)["offset"].to_pylist() == list(range(35))
    ensure_accounted(tables)


def test_two_at_once_beside_an_exporter(tables: Tables) -> None:
    """In threads, which share what they opened of a table: no record is lost, doubled or twice in a range."""
    exporter = Exporter(tables, 10, 20)
    exporter.commit(8)
    with ThreadPoolExecutor(2) as others:
        for _ in range(4):
            both = [others.submit(maintain, tables.config, MaintenancePolicy(small_files=2)) for _ in range(2)]
            exporter.commit(4)
            for each in both:
                each.result()
    assert Counter(rows_of(tables)["offset"].to_pylist()) == Counter([*range(240), *range(480)])
    ensure_accounted(tables)


def test_damaged_tables_are_left_alone(tables: Tables) -> None:
    """Where a commit is lost nothing is rewritten or removed."""
    Exporter(tables, 7).commit(12)
    newest = max(Path(tables.root, RECORDS, "_delta_log").glob("*.json"))
    newest.unlink()
    with pytest.raises(DamagedTables):
        maintain(tables.config, AT_ONCE)
    assert len(files_of(tables)) == 11


@settings(max_examples=20, deadline=None)
@given(spans, st.randoms(use_true_random=False))
def test_merged_ranges_have_every_offset_and_count(parts: list[tuple[int, str, int]], dice: random.Random) -> None:
    """Any ranges of one log, of any days, in any order: offsets, gaps by reason, and counts are those of before; ranges
    of files, breaks and the newest one stay."""
    rows, at = [], 0
    for length, kind, day in sorted(parts, key=lambda part: part[2]):
        row = dict.fromkeys(EXPORT_RANGES.names) | {"cluster_id": "c", "state_partition": 0, "run_id": f"r{at}"}
        row |= {"exported_at": NOON + dt.timedelta(days=day), "source_file": "f" if kind == "file" else None}
        row |= dict.fromkeys(("records_read", "records_decoded", "records_quarantined"), 0)
        if kind in ("gap", "both", "break"):
            size = 1 if kind == "break" else length
            reason = "log_replaced" if kind == "break" else dice.choice(["pruned", DROPPED_BY_RETENTION])
            row |= {"gap_first": at, "gap_last": at + size - 1, "gap_reason": reason}
            at += size
        if kind in ("records", "both", "file"):
            row |= {"first_offset": at, "last_offset": at + length - 1, "records_read": length}
            at += length
        rows.append(row)
    mixed = dice.sample(rows, len(rows))
    merged = merged_ranges(pa.Table.from_pylist(mixed, schema=EXPORT_RANGES), NOON + dt.timedelta(days=51)).to_pylist()

    def facts(of: list[dict[str, object]]) -> Counter[object]:
        found: Counter[object] = Counter()
        for row in of:
            for first, last, reason in (
                ("first_offset", "last_offset", row["source_file"]),
                ("gap_first", "gap_last", row["gap_reason"]),
            ):
                if row[first] is not None:
                    found.update((reason, offset) for offset in range(row[first], row[last] + 1))  # type: ignore[call-overload]
            found["read"] += row["records_read"]  # type: ignore[assignment]
        return found

    assert facts(merged) == facts(rows)
    assert [row for row in merged if row["source_file"]] == [row for row in rows if row["source_file"]]
    assert (
        max(row["exported_at"] for row in merged) == max(row["exported_at"] for row in rows)
        or rows[-1]["first_offset"] is None
    )
    again = merged_ranges(pa.Table.from_pylist(merged, schema=EXPORT_RANGES), NOON + dt.timedelta(days=51))
    assert again.to_pylist() == merged


def test_a_log_is_cut_before_an_old_checkpoint(tables: Tables) -> None:
    """Commits of a day ago lie behind a checkpoint and go; younger ones stay, and every row is read as before."""
    exporter = Exporter(tables, 7)
    exporter.commit(28)
    before, log = rows_of(tables), Path(tables.root, RECORDS, "_delta_log")
    then = time.time() - 90_000
    for file in log.glob("*.*"):
        if file.name[:20] <= f"{25:020d}":
            os.utime(file, (then, then))
    maintain(tables.config, MaintenancePolicy(small_files=100))
    versions = sorted({int(file.name[:20]) for file in log.glob("*.json")})
    assert versions == list(range(24, 29))
    assert rows_of(tables).equals(before)
    exporter.commit(1)


def test_compaction_writes_a_row_few_times() -> None:
    """A table that grows by small files, compacted once a day: few files, and each row written about twice more."""
    files: list[DataFile] = []
    written = rows = 0
    for day in range(60):
        files += [DataFile(path=f"{day}/{n}", size_bytes=60 * 700, rows=700, modified_ms=day) for n in range(144)]
        rows += 144 * 700
        for own in compaction_bins(files, more_than=8):
            total = sum(file.rows or 0 for file in own)
            written += total
            files = [file for file in files if file not in own]
            files.append(DataFile(path=f"{day}/{written}", size_bytes=60 * total, rows=total, modified_ms=day))
    assert len(files) <= 2 + rows // file_rewrite.SMALL_ROWS
    assert written <= 2 * rows


def start(*arguments: object) -> subprocess.Popen[str]:
    """Python with `arguments`; of `Tables` their root."""
    words = [each.root if isinstance(each, Tables) else str(each) for each in arguments]
    return subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)


def kill_after(process: subprocess.Popen[str], lines: int, seconds: float) -> bool:
    """Kill `process` `seconds` after `lines` of progress; whether it still ran."""
    assert process.stdout is not None
    with process:
        for _ in range(lines):
            if not process.stdout.readline():
                break
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
    return process.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_killed_again_and_again_every_offset_is_there_once(tables: Tables) -> None:
    """SIGKILL of exporter and maintenance at random moments, while one log is pruned ahead of the export: every offset
    is exported or in a gap, once; of all logs the records that are kept are there, and no others."""
    seed = random.SystemRandom().randrange(2**32)
    chance, pruned, killed, cut = random.Random(seed), 0, Counter[str](), 0
    for cut in range(400, 400 * (KILLS + 1), 400):
        exporter = start(PROCESS, tables, END_OFFSET, FLUSH_ROWS, 0, pruned, 0)
        killed["exporter"] += kill_after(exporter, chance.randrange(1, 12), chance.random() * 0.05)
        maintenance = start("-c", MAINTENANCE, tables, FIRST_MS + 1_000 + cut)
        killed["maintenance"] += kill_after(maintenance, chance.randrange(1, 6), chance.random() * 0.1)
        pruned = min(END_OFFSET, pruned + chance.randrange(1_000))
    assert killed["exporter"] > 1, f"seed {seed}: too few kills hit a living process"
    assert killed["maintenance"] > 1, f"seed {seed}: too few kills hit a living process"
    for last in (
        (PROCESS, tables, END_OFFSET, FLUSH_ROWS, 0, pruned, 0),
        ("-c", MAINTENANCE, tables, FIRST_MS + 1_000 + cut),
    ):
        with start(*last) as process:
            process.communicate()
        assert process.returncode == 0, f"seed {seed}"
    ends = [ensure_accounted(tables, is_pruned=True)[number] for number in range(3)]
    assert [last for _, last in ends] == [END_OFFSET - 1] * 3, f"seed {seed}"
    assert ends[0][0] == ends[2][0] == 0, f"seed {seed}"
    kept = rows_of(tables).select(["state_partition", "offset"]).filter(pc.field("state_partition") != 1)
    assert [*kept["offset"].to_pylist()] == [*range(cut, END_OFFSET)] * 2, f"seed {seed}"
    assert pc.sum(tables.read(RANGES)["records_quarantined"]).as_py() > 0
    configuration = tables.snapshot(RANGES).delta.metadata().configuration  # type: ignore[union-attr]  # it exists
    assert configuration["delta.appendOnly"] == "true"


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    """An export of a hundred flushes needs hardly more memory than one of ten."""
    peaks = []
    for number, end_offset in enumerate((100_000, 400_000)):
        command = [sys.executable, str(PROCESS), str(tmp_path / str(number)), str(end_offset), "20000", "0"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=ENVIRONMENT)
        peaks.append(int(done.stdout.rsplit("peak ", 1)[1].split()[0]))
    assert peaks[1] < peaks[0] * 1.3
    assert peaks[1] < 500


def no_large_files() -> None:
    """A disk that takes no more than 64 kB of a file, as a full one would: every write beyond fails."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))


def test_a_write_that_fails_says_one_line(tmp_path: Path) -> None:
    """A full disk: nothing that the storage's library prints by itself, no panic and no trace, the error alone."""
    command = [sys.executable, str(PROCESS), str(tmp_path / "tables"), "120000", "120000", "0"]
    options = {"capture_output": True, "text": True, "env": ENVIRONMENT, "timeout": 120}
    done = subprocess.run(command, preexec_fn=no_large_files, check=False, **options)  # no thread runs here
    assert re.fullmatch(r"[34] tables at .*\n", done.stderr), done.stderr
