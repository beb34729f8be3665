"""The root of the tables: where it is, what delta-rs gets to reach it, its files, whether it can be written."""

from __future__ import annotations

import re
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.fs as fs
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler

from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError
from acktrail.tables.delta.storage_errors import client_options, missing_credentials, storage_failure

_TIMEOUTS: Final = {"connect_timeout": "5s", "retry_timeout": "30s", "max_retries": "5"}
"""For object storage, unless the options have others."""
STORAGE_ERRORS: Final = (DeltaError, OSError, pa.ArrowInvalid)
"""What the storage raises."""
NO_FOLDER: Final = "there is no such folder"
EMPTY_FOLDER: Final = "nothing is there"
LOG: Final = "_delta_log"
"""The folder of a table with its log."""
_UNUSABLE: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f]")
"""What delta-rs reads as an escape, takes for a slash, or refuses, in the path of a folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRoot:
    """`uri` is only for the storage; `shown` is the same without user and password, for messages. `given` are the
    options of an object storage, None for a folder of this machine."""

    uri: str
    shown: str
    given: dict[str, str] | None

    @property
    def is_local(self) -> bool:
        return self.given is None

    @property
    def options(self) -> dict[str, str] | None:
        """For delta-rs. Raises ConfigurationError where nothing gives credentials for this storage."""
        return None if self.given is None else _client_options(self.uri, self.shown, frozenset(self.given.items()))

    def storage(self, name: str | None = None) -> fs.FileSystem:
        """The files of a table, or of all. A folder is read without Python: Arrow's threads must not call back while
        the interpreter ends, or the process aborts after its work is done."""
        uri = self.uri if name is None else f"{self.uri}/{name}"
        options = self.options
        if options is None:
            return fs.SubTreeFileSystem(uri, fs.LocalFileSystem())
        return fs.PyFileSystem(DeltaStorageHandler(uri, options))

    @contextmanager
    def translated(self) -> Iterator[None]:
        """What the storage raises, as acktrail's own errors."""
        try:
            yield
        except STORAGE_ERRORS as error:
            raise storage_failure(error, self.shown) from None

    def why_no_tables(self) -> str | None:
        """Why nothing under the root is a table; None: something is. Raises OSError and DeltaError of its storage."""
        folder = Path(self.uri)
        if self.is_local and not folder.is_dir():
            return "this is not a folder" if folder.exists() else NO_FOLDER
        storage = self.storage()
        found = storage.get_file_info(fs.FileSelector("", allow_not_found=True))
        logs = (files_of(storage, f"{info.base_name}/{LOG}", recursive=False) for info in found)
        if any(next(log, None) is not None for log in logs):
            return None
        if any(info.base_name == LOG for info in found):
            return f"that is one table; the root is the folder above, {self.shown.rpartition('/')[0]}"
        return f"none of the {len(found)} files and folders there is a table" if found else EMPTY_FOLDER


@cache
def _client_options(uri: str, shown: str, given: frozenset[tuple[str, str]]) -> dict[str, str]:
    """What delta-rs gets, once something was found to give credentials."""
    missing = missing_credentials(uri, shown, dict(given))
    if missing is not None:
        raise missing
    return client_options(uri, dict(given))


def table_root(config: TablesConfig) -> TableRoot:
    """The root that `config` names: a folder, a ``file:`` URI or an object-storage URI. Raises ConfigurationError: the
    name of the folder has characters that delta-rs takes for others, so that its second commit would fail."""
    parts = urlsplit(config.uri)
    if parts.scheme not in {"", "file"} and "://" in config.uri:
        host = parts.netloc.rpartition("@")[2]
        shown = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        return TableRoot(uri=config.uri.rstrip("/"), shown=shown, given={**_TIMEOUTS, **config.options})
    folder = str(Path(parts.path if parts.scheme == "file" else config.uri).absolute())
    if unusable := _UNUSABLE.search(folder):
        shown = f"the root of the tables cannot have {unusable.group()!r} in its path: {folder!r}"
        raise ConfigurationError(shown, hint="use a folder name without it")
    return TableRoot(uri=folder, shown=folder, given=None)


def ensure_writable(root: TableRoot) -> None:
    """Write an empty file where tables lie or would be made, and remove it again: under the root, or the nearest folder
    above it; in a folder of this machine beside the log of every table too."""
    if root.is_local:
        folder = Path(root.uri)
        logs = sorted(folder.glob(f"*/{LOG}"))
        there = next(each for each in (folder, *folder.parents) if each.exists())
        for each in (there, *logs, *(log.parent for log in logs)):
            with tempfile.NamedTemporaryFile(prefix="_acktrail_probe_", dir=each):
                pass
        return
    storage, name = root.storage(), f"_acktrail_probe_{uuid.uuid4().hex}"
    with storage.open_output_stream(name):
        pass
    storage.delete_file(name)


def files_of(storage: fs.FileSystem, folder: str = "", *, recursive: bool = True) -> Iterator[fs.FileInfo]:
    """Every file in a folder of `storage`, if it is there."""
    infos = storage.get_file_info(fs.FileSelector(folder, recursive=recursive, allow_not_found=True))
    return (info for info in infos if info.type == fs.FileType.File)
