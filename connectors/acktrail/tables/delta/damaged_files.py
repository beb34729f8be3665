"""What is wrong with a table's files: its log, its checkpoint, its data.

delta-rs's ``repair`` was tried: it finds data files that are missing, and neither those of another size nor damage of
the log. What it finds it takes out of the table at once (``TablePlace.leave_out``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq

_LOG: Final = "_delta_log"
_COMMIT: Final = re.compile(r"^(\d{20})\.json$")
_CHECKPOINT: Final = re.compile(r"^(\d{20})\.checkpoint\..*parquet$")
_NAMED: Final = re.compile(r"(?:chunk=\d+/)?[\w.-]{1,120}\.parquet|\d{20}\.json")
"""Files whose names the writer of tables makes: they hold nothing secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One file of a table, relative to it, and what is wrong with it."""

    file: str
    cause: str

    @property
    def is_of_log(self) -> bool:
        return self.file.startswith(_LOG)


def named_file(text: str) -> str | None:
    """The file that the storage's message names."""
    found = _NAMED.search(text)
    return None if found is None else found.group()


def files_of(storage: fs.FileSystem, folder: str = "", *, recursive: bool = True) -> Iterator[fs.FileInfo]:
    """Every file in a folder of `storage`, if it is there."""
    infos = storage.get_file_info(fs.FileSelector(folder, recursive=recursive, allow_not_found=True))
    return (info for info in infos if info.type == fs.FileType.File)


def log_damage(storage: fs.FileSystem) -> Iterator[Damage]:
    """What keeps the newest version of the table in `storage` from being read: checkpoint and commits after it."""
    sizes = {info.base_name: info.size for info in files_of(storage, _LOG, recursive=False)}
    commits = sorted(int(found[1]) for found in map(_COMMIT.match, sizes) if found)
    checkpoints = sorted((int(found[1]), found[0]) for found in map(_CHECKPOINT.match, sizes) if found)
    yield from _hinted(storage, sizes, [version for version, _ in checkpoints])
    base = checkpoints[-1][0] if checkpoints else -1
    for path in (f"{_LOG}/{name}" for version, name in checkpoints if version == base):
        try:
            with storage.open_input_file(path) as file:
                pq.read_metadata(file)
        except (pa.ArrowInvalid, OSError):
            yield Damage(file=path, cause="is no Parquet file")
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
    """Data files with a row that cannot be read; every file is read to its end."""
    for path in paths:
        try:
            with storage.open_input_file(path) as file:
                opened = pq.ParquetFile(file)
                for group in range(opened.num_row_groups):
                    opened.read_row_group(group)
        except (pa.ArrowInvalid, OSError) as error:
            yield Damage(file=path, cause=f"cannot be read ({type(error).__name__})")


def _hinted(storage: fs.FileSystem, sizes: Mapping[str, Any], checkpoints: list[int]) -> Iterator[Damage]:
    """The checkpoint that the log's own hint names, where it is missing."""
    if "_last_checkpoint" not in sizes:
        return
    try:
        version = json.loads(_text(storage, f"{_LOG}/_last_checkpoint"))["version"]
    except (ValueError, KeyError, TypeError):
        return  # readers ignore a broken hint
    if version not in checkpoints:
        yield Damage(file=f"{_LOG}/{version:020d}.checkpoint.parquet", cause="is missing")


def _commit_damage(storage: fs.FileSystem, version: int, sizes: Mapping[str, Any]) -> Iterator[Damage]:
    name = f"{version:020d}.json"
    file = f"{_LOG}/{name}"
    if not sizes.get(name):
        yield Damage(file=file, cause="is empty" if name in sizes else "is missing")
        return
    try:
        for line in _text(storage, file).encode().splitlines():  # not of text, which U+0085 in a name would end
            json.loads(line)
    except ValueError:
        yield Damage(file=file, cause="is no JSON")


def _text(storage: fs.FileSystem, path: str) -> str:
    with storage.open_input_file(path) as file:
        return bytes(file.read()).decode("utf-8", errors="replace")
