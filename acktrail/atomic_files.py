"""Files that a reader finds whole, or as they were before; and files of ours that are read again."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from acktrail.errors import ConfigurationError, MalformedFile


def write_whole(content: str | bytes, file: Path, *, makes_folders: bool = True, mode: int | None = None) -> Path:
    """Write `content` (text as UTF-8) to `file`, all of it or nothing, with the permissions `mode`
    (None: those that the umask leaves). Raises ConfigurationError: it cannot be written, or (`makes_folders` False) its
    folder is not there."""
    data = content.encode() if isinstance(content, str) else content
    folder = file.absolute().parent
    try:
        if makes_folders:
            folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".acktrail-") as beside:
            draft = Path(beside, file.name)
            with draft.open("wb") as opened:
                opened.write(data)
                opened.flush()
                os.fsync(opened.fileno())
            if mode is not None:
                draft.chmod(mode)
            draft.replace(file)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise ConfigurationError(f"{file} cannot be written: {why}", hint="name a folder you may write to") from error
    return file


def sha256_of(file: Path) -> str:
    """SHA-256 of the file's bytes, in hex."""
    with file.open("rb") as raw:
        return hashlib.file_digest(raw, "sha256").hexdigest()


def read_text(file: Path, *, hint: str) -> str:
    """The text of `file`. Raises MalformedFile: it cannot be read, or is no text; `hint` says what to do then."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        why = f"cannot be read ({type(error).__name__})"
        raise MalformedFile(why, file=str(file), hint=f"check the path, or {hint}") from error
    except UnicodeDecodeError as error:
        raise MalformedFile("is not text", file=str(file), hint=hint) from error
