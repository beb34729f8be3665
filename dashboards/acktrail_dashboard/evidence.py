"""The evidence of a run: what was read, checked and found, and hashes of the tables' files behind it, under a hash of
its own; and whether a pack is still what the tables show. What cannot be compared is unknown, never passed.

Data files and commits are written once and never changed. A maintenance may remove them: data files that the table's
newest version does not have any more, and commits that the table is read without. Nothing else may be missing.

Example: a pack has the files ``a`` and ``b`` at version 7. The table is at version 9 now, which has ``b`` and ``c``.

    a missing    unknown: a later version removed it, and nothing can be compared
    b missing    different: the newest version still has it
    b changed    different: its bytes are others
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as fs

from acktrail import __version__
from acktrail.atomic_files import read_text, write_whole
from acktrail.config import TablesConfig
from acktrail.dataclass_json import json_object
from acktrail.errors import ConfigurationError, DamagedTables, InputError, MalformedFile, UnknownName
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_root import files_of
from acktrail.tables.delta.table_snapshot import TableSnapshot, chosen_columns
from acktrail.text_parsing import parse_json
from acktrail.times import utc_text
from acktrail.view.run_summary import OF_THE_RUN, RunTables, as_json, rows_of_run, shown_run, summarize
from acktrail_dashboard.report import file_name, prune

EVIDENCE: Final = "acktrail-evidence"
"""The stem of a pack's file, before the run."""
SCHEMA: Final = "acktrail-evidence/1"
_LARGEST: Final = 256 << 20
_LOG: Final = "_delta_log/"
_VERSIONED: Final = len(_LOG) + 20
"""So much of a path of the log names a version."""
_NUMBERED: Final = re.compile(r"^(\d{20})\.(json|checkpoint\.(?:.*\.)?parquet)$")
_NAMED: Final = 5
_ENGINES: Final = {"spark": "pyspark", "great_expectations": "great_expectations", "deltalake": "deltalake"}
_OF_THE_RUN: Final = (*OF_THE_RUN, "findings", "queue_statuses")
_OF_ALL: Final = ("export_ranges", "topics", "archived_offsets")
_TABLES: Final = (*_OF_THE_RUN, *_OF_ALL, "state_records", "offset_observations", "status_changes")
"""The tables that a run reads or writes."""
_FACTS: Final = ("head", "totals", "exports", "gaps", "expectations", "findings")
_RESULTS: Final = ("share_partition_states", "reconciliations")
Pack = dict[str, Any]
Known = Mapping[str, Mapping[str, str]]
"""Hashes of data files by table and path."""


class FileFate(StrEnum):
    """What a comparison shows: the same; another one, or gone without a trace; removed as a maintenance may, so that
    nothing can be compared."""

    SAME = "same"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedTable:
    """A version of a table: the hash in hex of each file by its path. These are the newest checkpoint with all commits
    since, or all commits, and the data files."""

    table: str
    table_id: str
    version: int
    files: dict[str, str]


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
        "tables": [asdict(_hashed_table(of, (known or {}).get(name, {}))) for name, of in found.items()],
    }
    return parse_json(json.dumps({**pack, "sha256": digest(pack)}))  # type: ignore[no-any-return]  # an object


def _hashed_table(snapshot: TableSnapshot, known: Mapping[str, str]) -> HashedTable:
    """The hashes of a version. A data file that is `known` is not read again, so that what changed since its first hash
    shows."""
    place, newest = snapshot.place, snapshot.version
    with place.translated():
        storage = place.storage()
        files = {path: _hashed(storage, path) for path in _log_of(storage, newest)}
        files |= {path: known.get(path) or _hashed(storage, path) for path in sorted(_data_of(snapshot))}
    return HashedTable(table=snapshot.name, table_id=snapshot.table_id, version=newest, files=files)


def _log_of(storage: fs.FileSystem, newest: int) -> list[str]:
    """What a version is read from: the newest checkpoint up to it with that version's commit and all since, or all
    commits. Names have twenty digits, so that they sort as their versions do."""
    found = (_NUMBERED.match(each.base_name) for each in files_of(storage, _LOG, recursive=False))
    log = sorted(_LOG + each[0] for each in found if each and int(each[1]) <= newest)
    base = max((path[:_VERSIONED] for path in log if not path.endswith(".json")), default="")
    return [path for path in log if path >= base]


def _data_of(snapshot: TableSnapshot) -> set[str]:
    return {each.path for each in snapshot.files()}


def _hashed(storage: fs.FileSystem, path: str) -> str:
    with storage.open_input_stream(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def run_facts(snapshots: Mapping[str, TableSnapshot], run_id: str) -> dict[str, Any]:
    """What tables at fixed versions hold of a run, as a report says it, and hashes of its rows as sets: the same
    versions always give the same. A table that was never created is not among `snapshots`."""

    def of(name: str, where: pc.Expression | None) -> pa.Table:
        snapshot = snapshots.get(name)
        return chosen_columns(name, None).empty_table() if snapshot is None else snapshot.read(where=where)

    is_own = pc.field("run_id") == run_id
    tables = RunTables(**{name: of(name, is_own) for name in _OF_THE_RUN}, **{name: of(name, None) for name in _OF_ALL})
    form, own = asdict(summarize(tables, run_id)), rows_of_run(tables, run_id)
    rows = {name: _rows_digest(getattr(own, name)) for name in _RESULTS}
    found: dict[str, Any] = parse_json(as_json({**{name: form[name] for name in _FACTS}, "rows_sha256": rows}))
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
    if file.is_file() and file.stat().st_size > _LARGEST:
        raise MalformedFile("is too large for an evidence pack", file=str(file))
    what, hint = f"evidence pack of the form {SCHEMA}", "name the .json file of a pack"
    return json_object(read_text(file, hint=hint), str(file), what, {"schema": SCHEMA}, hint=hint)


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
    for each in (each for of in hashed for each in _compared(tables, of)):
        counts[each.fate.value] += 1
        parts += [each] if each.fate is not FileFate.SAME else []
    parts.append(_facts_again(tables, hashed, run_id, facts, is_whole=counts[FileFate.DIFFERENT.value] == 0))
    return PackVerdict(pack=str(file), run_id=run_id, sha256=digest(pack), parts=tuple(parts), files=dict(counts))


def _part(part: str, reason: str) -> PartVerdict:
    return PartVerdict(part=part, fate=FileFate.DIFFERENT if reason else FileFate.SAME, reason=reason)


def _compared(tables: Tables, hashed: HashedTable) -> Iterator[PartVerdict]:
    """Every file of a table as the storage has it now; one line where the table is gone, or another one is there.
    Nothing may be missing of a damaged table, nor of one that lost its newest commits."""
    needed, reason = set(hashed.files), ""
    try:
        snapshot = tables.snapshot(hashed.table)
        if snapshot is None or snapshot.table_id != hashed.table_id:
            reason = "the table is gone" if snapshot is None else "another table is in its place"
        elif snapshot.version >= hashed.version:
            with snapshot.place.translated():
                log, data = _log_of(snapshot.place.storage(), snapshot.version), _data_of(snapshot)
            base = min(log, default="")[:_VERSIONED]
            needed = {path for path in needed if path.startswith(_LOG) and path >= base} | data
    except UnknownName:
        reason = "no table has this name"
    except DamagedTables:
        pass  # a damaged one: its files show what is wrong
    if reason:
        yield PartVerdict(part="files", fate=FileFate.DIFFERENT, reason=reason, table=hashed.table)
        return
    place = tables.place(hashed.table)
    with place.translated():
        storage = place.storage()
        for path, expected in hashed.files.items():
            fate, reason = _fate(storage, path, expected, is_needed=path in needed)
            yield PartVerdict(part="files", fate=fate, reason=reason, table=hashed.table, file=path)


def _fate(storage: fs.FileSystem, path: str, expected: str, *, is_needed: bool) -> tuple[FileFate, str]:
    if storage.get_file_info(path).type == fs.FileType.File:
        is_same = _hashed(storage, path) == expected
        return (FileFate.SAME, "") if is_same else (FileFate.DIFFERENT, "its bytes are others")
    if is_needed:
        return FileFate.DIFFERENT, "it is missing, and no commit removed it"
    how = "the log was cleaned up" if path.startswith(_LOG) else "a later version of the table removed it"
    return FileFate.UNKNOWN, how


def _facts_again(
    tables: Tables, hashed: list[HashedTable], run_id: str, facts: dict[str, object], *, is_whole: bool
) -> PartVerdict:
    """What the same versions of the tables give when they are read again."""
    if not is_whole:
        return PartVerdict(part="facts", fate=FileFate.UNKNOWN, reason="files of the tables are not those of the pack")
    try:
        found = {of.table: tables.snapshot(of.table, version=of.version) for of in hashed}
        again = run_facts({name: each for name, each in found.items() if each is not None}, run_id)
    except ConfigurationError as error:
        reason = f"the versions cannot be read any more: {error.message}"
        return PartVerdict(part="facts", fate=FileFate.UNKNOWN, reason=reason)
    different = [name for name in {**facts, **again} if facts.get(name) != again.get(name)]
    return _part("facts", f"the tables give something else: {', '.join(different)}" if different else "")


def _hashed_tables(pack: Pack) -> list[HashedTable]:
    """The hashes in a pack. Raises KeyError, TypeError, ValueError: something else stands there."""
    return [HashedTable(**{**of, "files": dict(of["files"]), "version": int(of["version"])}) for of in pack["tables"]]


def _known(folder: Path) -> Known:
    """The hashes in the newest pack of a folder that is whole; none where there is no such pack."""
    files = sorted(folder.glob(f"{EVIDENCE}-*.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in files[:3]:
        with suppress(MalformedFile, KeyError, TypeError, ValueError):
            pack = read_pack(file)
            if digest(pack) == pack["sha256"]:
                return {
                    of.table: {path: each for path, each in of.files.items() if not path.startswith(_LOG)}
                    for of in _hashed_tables(pack)
                }
    return {}


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
