"""Files that a reader finds whole, or as they were before."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from acktrail.errors import ConfigurationError


def write_whole(content: str | bytes, file: Path, *, makes_folders: bool = True) -> Path:
    """Write `content` (text as UTF-8) to `file`, all of it or nothing. Raises ConfigurationError: it cannot be
    written, or (`makes_folders` False) its folder is not there."""
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
            draft.chmod(0o644)
            draft.replace(file)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise ConfigurationError(f"{file} cannot be written: {why}", hint="name a folder you may write to") from error
    return file
