"""Which folders detached brokers were started in, so that they are found without naming the folder again.

A note for each folder lies in the user's cache. It says nothing of whether a broker runs there: the folder does.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from acktrail.config import cache_folder

__all__ = ["forget_folder", "note_folder", "noted_folders"]

_NOTES: Final = "broker-folders"


def note_folder(folder: Path) -> None:
    """Remember a folder; a cache that cannot be written is no reason not to start a broker."""
    note = _note_of(folder)
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(str(folder.absolute()), encoding="utf-8", errors="surrogateescape")
    except OSError:
        return


def forget_folder(folder: Path) -> None:
    """Remember it no more."""
    try:
        _note_of(folder).unlink(missing_ok=True)
    except OSError:
        return


def noted_folders() -> list[Path]:
    """The folders, in the order of their names."""
    found = []
    for note in (cache_folder() / _NOTES).glob("*"):
        try:
            found.append(Path(note.read_text(encoding="utf-8", errors="surrogateescape")))
        except OSError:
            continue
    return sorted(found)


def _note_of(folder: Path) -> Path:
    name = hashlib.sha256(str(folder.absolute()).encode(errors="surrogateescape")).hexdigest()[:32]
    return cache_folder() / _NOTES / name
