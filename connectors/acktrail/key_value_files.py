"""Files of ``key=value`` lines, as Kafka's tools take them with ``--command-config``."""

from __future__ import annotations

from pathlib import Path

from acktrail.errors import ConfigurationError


def read_properties(file: Path) -> dict[str, str]:
    """``key=value`` lines; blank lines and lines that start with ``#`` are skipped. Raises ConfigurationError when the
    file cannot be read or a line has no ``=``. The line's text is not shown."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {file}: {type(error).__name__}", hint="check the path") from error
    pairs: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, separator, value = text.partition("=")
        if not separator:
            raise ConfigurationError(f"{file}, line {number}: not key=value", hint="one key=value a line")
        pairs[key.strip()] = value.strip()
    return pairs


def home_path(text: str) -> Path:
    """A path as people write it: ``~/`` is the user's home."""
    return Path.home() / text[2:] if text.startswith("~/") else Path(text)
