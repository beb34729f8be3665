"""The evidence of a run: what was read, checked and found, and hashes of the tables' files behind it, under a hash of
its own; and whether a pack is still what the tables show. What cannot be compared is unknown, never passed."""

from __future__ import annotations

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail import __version__
from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, InputError, MalformedFile, UnknownName
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot, chosen_columns
from acktrail.times import utc_text
from acktrail.view.run_summary import as_json, summarize, summary_form
from acktrail.view.run_tables import RunTables, rows_of_run, shown_run
from acktrail_dashboard.file_hashes import ComparedFile, FileFate, FileHash, HashedTable, compare, hash_table
from acktrail_dashboard.report import file_name, prune, write_whole

EVIDENCE: Final = "acktrail-evidence"
"""The stem of a pack's file, before the run."""
SCHEMA: Final = "acktrail-evidence/1"
_LARGEST: Final = 256 << 20
_NAMED: Final = 5
_ENGINES: Final = {"spark": "pyspark", "great_expectations": "great_expectations", "deltalake": "deltalake"}
_OF_THE_RUN: Final = (
    *("share_partition_states", "reconciliations", "findings", "quality_results", "group_observations"),
    "queue_statuses",
)
_OF_ALL: Final = ("export_ranges", "topics")
_TABLES: Final = (*_OF_THE_RUN, *_OF_ALL, "state_records", "offset_observations", "status_changes")
"""The tables that a run reads or writes."""
_FACTS: Final = ("head", "totals", "exports", "gaps", "expectations", "findings")
_RESULTS: Final = ("share_partition_states", "reconciliations")
Pack = dict[str, Any]
Known = dict[str, dict[tuple[str, int], str]]
"""Hashes of data files by table, path and size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartVerdict:
    """One part of a pack: `same`, `different` or `unknown`, and why. `table` and `file`: where, if it is about one."""

    part: str
    fate: FileFate
    reason: str = ""
    table: str | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PackVerdict:
    """All parts of one pack. `files`: how many files of tables have each fate."""

    pack: str
    run_id: str
    sha256: str
    parts: tuple[PartVerdict, ...]
    files: dict[str, int]

    @property
    def fate(self) -> FileFate:
        """The worst of the parts."""
        fates = {part.fate for part in self.parts}
        return next((fate for fate in (FileFate.DIFFERENT, FileFate.UNKNOWN) if fate in fates), FileFate.SAME)

    @property
    def named(self) -> tuple[PartVerdict, ...]:
        """The parts that are not the same; of many of one table and reason the first few."""
        seen: Counter[tuple[str | None, str]] = Counter()
        found = []
        for part in self.parts:
            seen[part.table, part.reason] += 1
            if part.fate is not FileFate.SAME and seen[part.table, part.reason] <= _NAMED:
                found.append(part)
        return tuple(found)


def write_evidence(
    config: TablesConfig, run_id: str | None, folder: Path, *, kept: int, broker: str | None = None
) -> tuple[Path, Pack]:
    """Write the pack of `run_id` (None: the run observed last) to `folder`, and remove all but the `kept` packs written
    last. A data file that an earlier pack there has is not read again: its first hash stays. Raises as
    `acktrail_dashboard.report.publish`."""
    tables = Tables(config)
    chosen = shown_run(tables, run_id)
    pack = make_pack(tables, chosen, known=_known(folder), broker=broker)
    file = write_whole(json.dumps(pack, indent=1) + "\n", folder / f"{EVIDENCE}-{file_name(chosen)}.json")
    prune(folder, EVIDENCE, kept=kept)
    return file, pack


def make_pack(tables: Tables, run_id: str, *, known: Known | None = None, broker: str | None = None) -> Pack:
    """The pack of a run as of the tables' present versions."""
    found = {name: snapshot for name in _TABLES if (snapshot := tables.snapshot(name)) is not None}
    pack = {
        "schema": SCHEMA,
        "written_at": utc_text(datetime.now(UTC), "auto"),
        "broker": broker,
        "versions": {
            "acktrail": __version__,
            "python": platform.python_version(),
            "kafka": None,  # no table holds it
            **{name: _installed(package) for name, package in _ENGINES.items()},
        },
        "facts": run_facts(found, run_id),
        "tables": [asdict(hash_table(of, (known or {}).get(name, {}))) for name, of in found.items()],
    }
    return json.loads(json.dumps({**pack, "sha256": digest(pack)}))  # type: ignore[no-any-return]  # an object


def run_facts(snapshots: Mapping[str, TableSnapshot], run_id: str) -> dict[str, Any]:
    """What tables at fixed versions hold of a run, as a report says it, and hashes of its rows as sets: the same
    versions always give the same. A table that was never created is not among `snapshots`."""

    def of(name: str, where: pc.Expression | None) -> pa.Table:
        snapshot = snapshots.get(name)
        return chosen_columns(name, None).empty_table() if snapshot is None else snapshot.read(where=where)

    is_own = pc.field("run_id") == run_id
    tables = RunTables(**{name: of(name, is_own) for name in _OF_THE_RUN}, **{name: of(name, None) for name in _OF_ALL})
    form, own = summary_form(summarize(tables, run_id)), rows_of_run(tables, run_id)
    rows = {name: _rows_digest(getattr(own, name)) for name in _RESULTS}
    found: dict[str, Any] = json.loads(as_json({**{name: form[name] for name in _FACTS}, "rows_sha256": rows}))
    return found


def _rows_digest(table: pa.Table) -> str:
    lines = sorted(as_json(dict(sorted(row.items()))) for row in table.to_pylist())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def digest(pack: Mapping[str, Any]) -> str:
    """The hash of a pack without the one that it has."""
    own = {name: value for name, value in pack.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(own, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def read_pack(file: Path) -> Pack:
    """A pack from its file. Raises MalformedFile: it is none, or cannot be read."""
    try:
        if file.stat().st_size > _LARGEST:
            raise MalformedFile("is too large for an evidence pack", file=str(file))
        pack = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise MalformedFile(f"cannot be read: {error.strerror}", file=str(file)) from error
    except (ValueError, RecursionError) as error:
        raise MalformedFile("is no JSON", file=str(file), hint="name the .json file of a pack") from error
    if not isinstance(pack, dict) or pack.get("schema") != SCHEMA:
        raise MalformedFile(f"is no evidence pack of the form {SCHEMA}", file=str(file))
    return pack


def packs_in(place: Path) -> list[Path]:
    """The file itself, or the packs of a folder, the oldest first. Raises InputError: there is none."""
    if not place.is_dir():
        if not place.is_file():
            raise InputError(f"no such file or folder: {place}", hint="name a pack or its folder")
        return [place]
    found = sorted(place.glob(f"{EVIDENCE}-*.json"), key=lambda file: (file.stat().st_mtime, file.name))
    if not found:
        raise InputError(f"no evidence pack in {place}", hint="acktrail dashboard evidence write RUN --out FOLDER")
    return found


def verify_pack(config: TablesConfig, file: Path) -> PackVerdict:
    """Compare a pack with its own hash, the files of the tables, and what they give when read again.

    Raises MalformedFile: it is no pack. ConfigurationError, RetryableError: the storage refused.
    """
    pack, counts = read_pack(file), Counter[str]()
    is_own = digest(pack) == pack.get("sha256")
    parts = [_part("pack", "" if is_own else "it was edited: its hash is another")]
    try:
        hashed, facts = _hashed_tables(pack), dict(pack["facts"])
        run_id = str(facts["head"]["run_id"])
    except (KeyError, TypeError, ValueError):
        parts.append(_part("pack", "parts of it are missing"))
        return PackVerdict(pack=str(file), run_id="", sha256=digest(pack), parts=tuple(parts), files={})
    tables = Tables(config)
    for each in (each for of in hashed for each in _files_of(tables, of)):
        counts[each.fate.value] += 1
        if each.fate is not FileFate.SAME:
            place = {"table": each.table, "file": each.path or None}
            parts.append(PartVerdict(part="files", fate=each.fate, reason=each.reason, **place))
    parts.append(_facts_again(tables, hashed, run_id, facts, is_whole=counts[FileFate.DIFFERENT.value] == 0))
    return PackVerdict(pack=str(file), run_id=run_id, sha256=digest(pack), parts=tuple(parts), files=dict(counts))


def _part(part: str, reason: str) -> PartVerdict:
    return PartVerdict(part=part, fate=FileFate.DIFFERENT if reason else FileFate.SAME, reason=reason)


def _files_of(tables: Tables, hashed: HashedTable) -> Iterator[ComparedFile]:
    """The files of one table; one line where the table is gone, or another one is in its place."""
    reason = ""
    try:
        snapshot = tables.snapshot(hashed.table)
        if snapshot is None or snapshot.table_id != hashed.table_id:
            reason = "the table is gone" if snapshot is None else "another table is in its place"
    except UnknownName:
        reason = "no table has this name"
    except ConfigurationError:
        pass  # a damaged one: its files show what is wrong
    if reason:
        yield ComparedFile(table=hashed.table, path="", fate=FileFate.DIFFERENT, reason=reason)
        return
    yield from compare(tables.place(hashed.table), hashed)


def _facts_again(
    tables: Tables, hashed: list[HashedTable], run_id: str, facts: dict[str, object], *, is_whole: bool
) -> PartVerdict:
    """What the same versions of the tables give when they are read again."""
    if not is_whole:
        return PartVerdict(part="facts", fate=FileFate.UNKNOWN, reason="files of the tables are not those of the pack")
    try:
        again = run_facts({of.table: _at(tables, of) for of in hashed}, run_id)
    except ConfigurationError as error:
        reason = f"the versions cannot be read any more: {error.message}"
        return PartVerdict(part="facts", fate=FileFate.UNKNOWN, reason=reason)
    different = [name for name in {**facts, **again} if facts.get(name) != again.get(name)]
    return _part("facts", f"the tables give something else: {', '.join(different)}" if different else "")


def _at(tables: Tables, hashed: HashedTable) -> TableSnapshot:
    """A table at its version. Raises ConfigurationError: the log does not have that one."""
    found = tables.snapshot(hashed.table, version=hashed.version)
    if found is None:
        raise ConfigurationError(f"{hashed.table} is gone")
    return found


def _hashed_tables(pack: Pack) -> list[HashedTable]:
    """The hashes in a pack. Raises KeyError, TypeError, ValueError: something else stands there."""
    return [
        HashedTable(
            table=str(of["table"]),
            table_id=str(of["table_id"]),
            version=int(of["version"]),
            log=tuple(FileHash(**each) for each in of["log"]),
            data=tuple(FileHash(**each) for each in of["data"]),
        )
        for of in pack["tables"]
    ]


def _known(folder: Path) -> Known:
    """The hashes in the newest pack of a folder that is whole; none where there is no such pack."""
    files = sorted(folder.glob(f"{EVIDENCE}-*.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in files[:3]:
        with suppress(MalformedFile, KeyError, TypeError, ValueError):
            pack = read_pack(file)
            if digest(pack) == pack["sha256"]:
                return {
                    of.table: {(each.path, each.size_bytes): each.sha256 for each in of.data}
                    for of in _hashed_tables(pack)
                }
    return {}


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
