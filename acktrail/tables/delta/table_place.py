"""The files of one table under the root, what is wrong with them, its storage's errors.

delta-rs's ``repair`` was tried: it finds data files that are missing, and neither those of another size nor damage of
the log. What it finds it takes out of the table at once (``TablePlace.leave_out``).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake._internal import DeltaFileSystemHandler
from deltalake.exceptions import TableNotFoundError

from acktrail.errors import AcktrailError, DamagedTables, RetryableError
from acktrail.tables.delta.storage_errors import advice, storage_failure
from acktrail.tables.delta.table_root import LOG, STORAGE_ERRORS, TableRoot, files_of
from acktrail.text_parsing import parse_json

_COMMIT: Final = re.compile(r"^(\d{20})\.json$")
_CHECKPOINT: Final = re.compile(r"^(\d{20})\.checkpoint\..*parquet$")
_NAMED: Final = re.compile(r"(?:chunk=\d+/)?[\w.-]{1,120}\.parquet|\d{20}\.json")
"""Files whose names the writer of tables makes: they hold nothing secret."""
_OUTSIDE: Final = re.compile(r"(?:^|/)\.\.(?:/|$)|^/")
"""In names that lead out of a table's folder."""
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
"""What an address begins with. Delta allows them for clones."""
_LIES_OUTSIDE: Final = "lies outside the table"


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """The table `name` under `root`. Methods raise OSError and DeltaError of its storage, unless they say otherwise."""

    name: str
    root: TableRoot

    @property
    def uri(self) -> str:
        return f"{self.root.uri}/{self.name}"

    def storage(self) -> fs.FileSystem:
        return self.root.storage(self.name)

    def open(self, version: int | None = None) -> DeltaTable:
        """The table at a version, by default the newest. Raises TableNotFoundError where it was never created."""
        if self.root.is_local and not Path(self.uri, LOG).exists():
            raise TableNotFoundError(self.name)
        return DeltaTable(self.uri, version=version, storage_options=self.root.options)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """What the storage raises, as acktrail's own errors."""
        try:
            yield
        except STORAGE_ERRORS as error:
            raise self.failure(error) from None

    def failure(self, error: BaseException) -> AcktrailError:
        """The error to raise for `error` of this table's storage: where it is damage, with the damaged file."""
        found = storage_failure(error, self.root.shown, self.name)
        if not isinstance(found, DamagedTables):
            return found
        damage = self._damage(named_file(str(error)))
        return found if damage is None else damaged_table(self.root.shown, self.name, damage)

    def has(self, file: str) -> bool:
        return bool(self.storage().get_file_info(file).type == fs.FileType.File)

    def outside(self, paths: Iterable[str]) -> list[str]:
        """Those of the log's names of data files that lead out of the table: by the name, or by a link in a folder of
        this machine."""
        names = {path: unquote(path) if "%" in path else path for path in paths}
        found = [path for path, name in names.items() if _OUTSIDE.search(name) or _ADDRESS.match(path)]
        return found if found or not self.root.is_local else list(_linked_away(self.uri, names))

    def ensure_inside(self, paths: Iterable[str]) -> None:
        """Raise DamagedTables: a data file lies outside the table. Who can write the log must not choose what is read
        with another account's rights."""
        if found := self.outside(paths):
            damage = Damage(file=found[0], cause=_LIES_OUTSIDE)
            error = damaged_table(self.root.shown, self.name, damage, more=len(found) - 1)
            error.hint = "see who else can write to the tables, and restore this one from a copy"
            raise error

    def damage(self) -> list[Damage]:
        """Everything that is wrong with the table's log; where that can be read, with its list of data files."""
        storage = self.storage()
        found = list(log_damage(storage))
        try:
            sizes = {} if found else self._sizes()
            found += [Damage(file=path, cause=_LIES_OUTSIDE) for path in self.outside(sizes)]
            return found or list(data_damage(storage, sizes))
        except TableNotFoundError:
            return self.lost_log()

    def lost_log(self) -> list[Damage]:
        """The log as damage, of a table that has none: where data files are there, it had one."""
        has_data = any(file.path.endswith(".parquet") for file in files_of(self.storage()))
        return [Damage(file=LOG, cause="is missing")] if has_data else []

    def unreadable(self, known: Iterable[Damage]) -> list[Damage]:
        """Data files with a row that cannot be read, beside those that are `known`; every file is read to its end, one
        that fails twice. None where the log is damaged. Raises RetryableError: the second time it could be read."""
        files = {each.file for each in known}
        if any(each.is_of_log or each.cause == _LIES_OUTSIDE for each in known):
            return []
        try:
            sizes = self._sizes()
        except TableNotFoundError:
            return []
        found = list(broken_data(self.storage(), sorted(sizes.keys() - files)))
        if len(list(broken_data(self.storage(), [each.file for each in found]))) < len(found):
            raise read_at_times(self.root.shown, self.name)
        return found

    def bring_to_disk(self, version: int) -> None:
        """Sync the files that commit `version` added, its log, and their folders; nothing on object storage. delta-rs
        renames its files into place and never calls fsync: a power cut could take the newest commit, or leave an empty
        file. Its records would be exported again, but not those that Kafka pruned meanwhile."""
        if not self.root.is_local:
            return
        table = Path(self.uri)
        log = table / LOG
        commit = log / f"{version:020d}.json"
        added = [table / path for path in _added(commit)]
        checkpoint = log / f"{version:020d}.checkpoint.parquet"
        for file in (*added, commit, *((checkpoint, log / "_last_checkpoint") if checkpoint.exists() else ())):
            _sync(file)
        for folder in sorted({*(file.parent for file in added), log, table, table.parent}):
            _sync(folder)

    def stub_commit(self, file: str, text: str) -> None:
        """Put `text` in the place of a commit's log file that is missing or cannot be read; that one is kept beside
        it."""
        self._set_aside(self.storage(), file)
        self.put_file(file, text.encode())
        if self.root.is_local:
            self.bring_to_disk(int(Path(file).stem))

    def put_file(self, file: str, content: bytes | pa.Buffer) -> None:
        """Write a file whose name no other one has, or whose content may be replaced; where that fails nothing is left
        of it."""
        if self.root.is_local:
            path = Path(self.uri, file)
            try:
                path.write_bytes(content)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
            return
        # Not through Arrow's stream: it hands over buffers, and the storage takes only bytes.
        stream = DeltaFileSystemHandler(self.uri, self.root.options or {}).open_output_stream(file)
        stream.write(bytes(content))
        stream.close()  # type: ignore[attr-defined]  # of the handler, which has no types

    def leave_out(self, files: Iterable[str]) -> None:
        """Make a version of the table without data files that are missing or cannot be read; these are kept beside the
        others under a longer name. Raises DamagedTables: one lies outside the table. acktrail never writes such a
        name, so that a person decides which commits still count."""
        storage, gone = self.storage(), [*files]
        self.ensure_inside(gone)
        for file in gone:
            self._set_aside(storage, file)
        table = self.open()
        table.repair(dry_run=False)
        self.bring_to_disk(table.version())

    def discard(self) -> None:
        """Remove the table with all its files."""
        storage = self.storage()
        for info in files_of(storage):
            storage.delete_file(info.path)

    @staticmethod
    def _set_aside(storage: fs.FileSystem, file: str) -> None:
        if storage.get_file_info(file).type == fs.FileType.File:
            storage.move(file, f"{file}.damaged")

    def _sizes(self) -> dict[str, int]:
        return file_sizes(pa.table(self.open().get_add_actions(flatten=True)))

    def _damage(self, named: str | None) -> Damage | None:
        """The first damage found, that of the file `named` before others."""
        try:
            found = self.damage()
            own = [each for each in found if named is not None and each.file.endswith(named)]
            if own or found:
                return (own or found)[0]
            paths = [path for path in self._sizes() if named is None or path.endswith(named)]
            return next(broken_data(self.storage(), paths), None)
        except STORAGE_ERRORS:
            return None


def file_sizes(actions: pa.Table) -> dict[str, int]:
    """The size of each data file, as the log says."""
    return dict(zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True))


def _added(commit: Path) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError):  # another writer's checkpoint took its place
        for line in commit.read_bytes().splitlines():  # not of text: names may hold what ends a line there (U+0085)
            action = parse_json(line).get("add")
            if action is not None:
                yield unquote(action["path"])


def _linked_away(folder: str, names: Mapping[str, str]) -> Iterator[str]:
    """The paths whose names lead out of `folder` by a link."""
    own = os.path.realpath(folder)
    by_folder: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for path, name in names.items():
        by_folder[os.path.dirname(name)].append((os.path.basename(name), path))
    for inner, files in by_folder.items():
        real = os.path.realpath(os.path.join(own, inner))
        is_away = os.path.commonpath([own, real]) != own
        links = set() if is_away or not os.path.isdir(real) else {e.name for e in os.scandir(real) if e.is_symlink()}
        for name, path in files:
            if is_away or (name in links and os.path.commonpath([own, os.path.realpath(f"{real}/{name}")]) != own):
                yield path


def _sync(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def damaged_table(root: str, table: str, damage: Damage, *, more: int = 0) -> DamagedTables:
    """The error to raise for a file of a table that is missing or cannot be read; `more`: the number of other files."""
    others = f" ({more} more)" if more else ""
    return DamagedTables(
        f"tables at {root}: table {table}: {damage.file} {damage.cause}{others}",
        hint=advice(table),
        table=table,
        file=damage.file,
        data={"root": root},
    )


def read_at_times(root: str, table: str) -> RetryableError:
    """The error where a file of a table could be read and could not be read: that is no damage."""
    return RetryableError(
        f"tables at {root}: table {table}: a file could be read once and then not", hint="run again later"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One file of a table, relative to it, and what is wrong with it."""

    file: str
    cause: str

    @property
    def is_of_log(self) -> bool:
        return self.file.startswith(LOG)


def named_file(text: str) -> str | None:
    """The file that the storage's message names."""
    found = _NAMED.search(text)
    return None if found is None else found.group()


def log_damage(storage: fs.FileSystem) -> Iterator[Damage]:
    """What keeps the newest version of the table in `storage` from being read: checkpoint and commits after it."""
    sizes = {info.base_name: info.size for info in files_of(storage, LOG, recursive=False)}
    commits = sorted(int(found[1]) for found in map(_COMMIT.match, sizes) if found)
    checkpoints = sorted((int(found[1]), found[0]) for found in map(_CHECKPOINT.match, sizes) if found)
    yield from _hinted(storage, sizes, [version for version, _ in checkpoints])
    base = checkpoints[-1][0] if checkpoints else -1
    for path in (f"{LOG}/{name}" for version, name in checkpoints if version == base):
        try:
            with storage.open_input_file(path) as file:
                pq.read_metadata(file)
        except (pa.ArrowInvalid, OSError):
            yield Damage(file=path, cause="is not a Parquet file")
    after = [version for version in commits if version > base]
    for version in range(base + 1, (after or [base])[-1] + 1):
        yield from _commit_damage(storage, version, sizes)


def data_damage(storage: fs.FileSystem, sizes: Mapping[str, int]) -> Iterator[Damage]:
    """Data files that are not there, or have another size than the log says (`sizes` by path)."""
    found = {info.path.removeprefix("/"): info.size for info in files_of(storage)}
    for path, size in sorted(sizes.items()):
        if path not in found:
            yield Damage(file=path, cause="is missing")
        elif found[path] != size:
            yield Damage(file=path, cause=f"has {found[path]} bytes, the log says {size}")


def broken_data(storage: fs.FileSystem, paths: Iterable[str]) -> Iterator[Damage]:
    """Data files with a row that cannot be read; every file is read to its end. Raises what is no damage: no rights, no
    answer."""
    for path in paths:
        try:
            with storage.open_input_file(path) as file:
                opened = pq.ParquetFile(file)
                for group in range(opened.num_row_groups):
                    opened.read_row_group(group)
        except (pa.ArrowInvalid, OSError) as error:
            if not isinstance(storage_failure(error, "", path), DamagedTables):
                raise
            yield Damage(file=path, cause=f"cannot be read ({type(error).__name__})")


def _hinted(storage: fs.FileSystem, sizes: Mapping[str, Any], checkpoints: list[int]) -> Iterator[Damage]:
    """The checkpoint that the log's own hint names, where it is missing."""
    if "_last_checkpoint" not in sizes:
        return
    try:
        version = int(parse_json(_text(storage, f"{LOG}/_last_checkpoint"))["version"])
    except (ValueError, KeyError, TypeError):
        return  # readers ignore a broken hint
    if version not in checkpoints:
        yield Damage(file=f"{LOG}/{version:020d}.checkpoint.parquet", cause="is missing")


def _commit_damage(storage: fs.FileSystem, version: int, sizes: Mapping[str, Any]) -> Iterator[Damage]:
    name = f"{version:020d}.json"
    file = f"{LOG}/{name}"
    if not sizes.get(name):
        yield Damage(file=file, cause="is empty" if name in sizes else "is missing")
        return
    try:
        for line in _text(storage, file).encode().splitlines():  # not of text, which U+0085 in a name would end
            parse_json(line)
    except ValueError:
        yield Damage(file=file, cause="is not JSON")


def _text(storage: fs.FileSystem, path: str) -> str:
    with storage.open_input_file(path) as file:
        return bytes(file.read()).decode("utf-8", errors="replace")
