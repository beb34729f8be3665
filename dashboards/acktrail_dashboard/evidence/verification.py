"""Is a pack still what the tables show? Every part is compared; one that cannot be is unknown, never passed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jinja2 import TemplateError

from acktrail import __version__
from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, InputError, UnknownName
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail_dashboard.evidence.file_hashes import ComparedFile, FileFate, HashedTable, compare
from acktrail_dashboard.evidence.pack import EVIDENCE, Pack, digest, hashed_tables, pack_page, read_pack
from acktrail_dashboard.evidence.run_facts import run_facts

_NAMED: Final = 5


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
        worst_first = (FileFate.DIFFERENT, FileFate.UNKNOWN)
        return next((fate for fate in worst_first if fate in fates), FileFate.SAME)


def packs_in(place: Path) -> list[Path]:
    """The file itself, or the packs of a folder, the oldest first. Raises InputError: there is none."""
    if place.is_dir():
        found = sorted(place.glob(f"{EVIDENCE}-*.json"), key=lambda file: (file.stat().st_mtime, file.name))
        if not found:
            raise InputError(f"no evidence pack in {place}", hint="acktrail dashboard evidence RUN --out FOLDER")
        return found
    if not place.is_file():
        raise InputError(f"no such file or folder: {place}", hint="name a pack or its folder")
    return [place]


def verify_pack(config: TablesConfig, file: Path) -> PackVerdict:
    """Compare a pack with its own hash, its page, the files of the tables, and what they give when read again.

    Raises MalformedFile: it is no pack. ConfigurationError, RetryableError: the storage refused.
    """
    pack = read_pack(file)
    parts, counts = list(_of_the_pack(pack, file)), Counter[str]()
    try:
        hashed, facts = hashed_tables(pack), dict(pack["facts"])
        run_id = str(facts["run_id"])
    except (KeyError, TypeError, ValueError):
        parts.append(PartVerdict(part="pack", fate=FileFate.DIFFERENT, reason="parts of it are missing"))
        return PackVerdict(pack=str(file), run_id="", sha256=digest(pack), parts=tuple(parts), files={})
    tables = Tables(config)
    for of in hashed:
        for compared in _files_of(tables, of):
            counts[compared.fate.value] += 1
            if compared.fate is not FileFate.SAME:
                parts.append(
                    PartVerdict(
                        part="files",
                        fate=compared.fate,
                        reason=compared.reason,
                        table=compared.table,
                        file=compared.path or None,
                    )
                )
    parts.append(_facts_again(tables, hashed, run_id, facts, is_whole=counts[FileFate.DIFFERENT.value] == 0))
    return PackVerdict(pack=str(file), run_id=run_id, sha256=digest(pack), parts=tuple(parts), files=dict(counts))


def _of_the_pack(pack: Pack, file: Path) -> Iterator[PartVerdict]:
    """Its own hash, and the page beside it."""
    is_own = digest(pack) == pack.get("sha256")
    reason = "" if is_own else "it was edited: its hash is another"
    yield PartVerdict(part="pack", fate=FileFate.SAME if is_own else FileFate.DIFFERENT, reason=reason)
    page = file.with_suffix(".html")
    if not is_own or not page.is_file():
        return
    versions = pack.get("versions")
    if not isinstance(versions, dict) or versions.get("acktrail") != __version__:
        yield PartVerdict(part="page", fate=FileFate.UNKNOWN, reason="another release of acktrail wrote it")
        return
    try:
        is_same = page.read_text(encoding="utf-8", errors="replace") == pack_page(pack)
    except (KeyError, TypeError, ValueError, TemplateError):
        is_same = False  # parts of the pack are of another type
    reason = "" if is_same else "it was edited"
    yield PartVerdict(part="page", fate=FileFate.SAME if is_same else FileFate.DIFFERENT, reason=reason)


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
        return PartVerdict(
            part="facts", fate=FileFate.UNKNOWN, reason=f"the versions cannot be read any more: {error.message}"
        )
    different = [name for name in {**facts, **again} if facts.get(name) != again.get(name)]
    if different:
        return PartVerdict(
            part="facts", fate=FileFate.DIFFERENT, reason=f"the tables give something else: {', '.join(different)}"
        )
    return PartVerdict(part="facts", fate=FileFate.SAME)


def _at(tables: Tables, hashed: HashedTable) -> TableSnapshot:
    """A table at its version. Raises ConfigurationError: the log does not have that one."""
    found = tables.snapshot(hashed.table, version=hashed.version)
    if found is None:
        raise ConfigurationError(f"{hashed.table} is gone")
    return found


def named(parts: tuple[PartVerdict, ...]) -> tuple[PartVerdict, ...]:
    """The parts that are not the same; of many of one table and reason the first few."""
    seen: Counter[tuple[str | None, str]] = Counter()
    found = []
    for part in parts:
        seen[part.table, part.reason] += 1
        if part.fate is not FileFate.SAME and seen[part.table, part.reason] <= _NAMED:
            found.append(part)
    return tuple(found)
