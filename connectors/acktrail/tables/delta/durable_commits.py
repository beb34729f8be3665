"""A commit in a folder of this machine, brought to the disk.

delta-rs renames its files into place and never calls fsync: after a power cut the newest commit can be gone, or an
empty file. Positions are in the commit, so that a lost one is exported again; but what Kafka pruned meanwhile, and
what others derived from it, is not.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

__all__ = ["bring_to_disk"]


def bring_to_disk(table: Path, version: int) -> None:
    """Sync the files that commit `version` of the table in folder `table` added, its log, and their folders.

    Raises:
        OSError: a file cannot be synced: the commit is there, but a power cut may lose it.
    """
    log = table / "_delta_log"
    commit = log / f"{version:020d}.json"
    added = [table / path for path in _added(commit)]
    checkpoint = log / f"{version:020d}.checkpoint.parquet"
    for file in (*added, commit, *((checkpoint, log / "_last_checkpoint") if checkpoint.exists() else ())):
        _sync(file)
    for folder in sorted({*(file.parent for file in added), log, table, table.parent}):
        _sync(folder)


def _added(commit: Path) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError):  # another writer's checkpoint took its place
        for line in commit.read_bytes().splitlines():  # not of text: names may hold what ends a line there (U+0085)
            action = json.loads(line).get("add")
            if action is not None:
                yield unquote(action["path"])


def _sync(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
