"""What the environment says about partition expansions; it is read by `acktrail.config`.

=======================  ========================================================================================
variable                 meaning
=======================  ========================================================================================
ACKTRAIL_KEY_MAPPINGS    how producers choose partitions, by topic: ``orders=murmur2,legacy-*=crc32``, or a file with
                         one ``glob=mapping`` a line (``murmur2``, ``crc32``, ``none``); the first that fits counts, a
                         topic without one has ``none``
ACKTRAIL_ORDERED_GROUPS  the groups that rely on the order of records of one key: ``billing,ship-*`` (default: none)
ACKTRAIL_SETTLE          how long producers may use an old partition count after an expansion: ``15m`` (default), up to
                         ``24h``; at least their metadata's largest age, how long they try to deliver, and the
                         timeouts of two requests together
=======================  ========================================================================================
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from acktrail.config import duration, setting
from acktrail.errors import ConfigurationError
from acktrail_expansion.law.key_mapping import KeyMapping

_MAPPINGS: Final = "ACKTRAIL_KEY_MAPPINGS"
_EXAMPLE: Final = "orders=murmur2,legacy-*=crc32, or a file with one of them a line"


@dataclass(frozen=True, slots=True)
class KeyMappings:
    """Key mappings by a glob of topic names, in the order in which they are tried; the first that fits counts."""

    by_glob: tuple[tuple[str, KeyMapping], ...] = ()

    def of(self, topic: str) -> KeyMapping:
        """The mapping of `topic`; ``KeyMapping.NONE`` where none is given."""
        return next((mapping for glob, mapping in self.by_glob if fnmatchcase(topic, glob)), KeyMapping.NONE)


@dataclass(frozen=True, slots=True)
class OrderedGroups:
    """Globs of the groups that rely on the order of records of one key."""

    globs: tuple[str, ...] = ()

    def __contains__(self, group_id: object) -> bool:
        return isinstance(group_id, str) and any(fnmatchcase(group_id, glob) for glob in self.globs)


def settle_time() -> dt.timedelta:
    """How long producers may use an old partition count after every broker lists the new one. Raises
    ConfigurationError when the variable holds no duration, or more than a day."""
    return duration("ACKTRAIL_SETTLE", "15m", longest=dt.timedelta(hours=24))


def ordered_groups() -> OrderedGroups:
    """The groups that rely on the order of records of one key; none unless the environment names them."""
    return OrderedGroups(tuple(glob.strip() for glob in setting("ACKTRAIL_ORDERED_GROUPS").split(",") if glob.strip()))


def key_mappings() -> KeyMappings:
    """How producers choose partitions, by topic. Raises ConfigurationError: an entry is no ``glob=mapping``, names no
    mapping that is known, or the file that the variable names cannot be read."""
    text = setting(_MAPPINGS)
    entries = [(f"{_MAPPINGS}: {entry.strip()!r}", entry) for entry in text.split(",") if entry.strip()]
    if text and "=" not in text:
        entries = _mapping_lines(Path(text))
    return KeyMappings(tuple(_key_mapping(where, entry) for where, entry in entries))


def _mapping_lines(file: Path) -> list[tuple[str, str]]:
    """The lines of a file of key mappings that are neither empty nor a comment, each with its place."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        text = f"{_MAPPINGS}: {str(file)!r} is no mapping, and no file that can be read ({type(error).__name__})"
        raise ConfigurationError(text, hint=_EXAMPLE) from None
    numbered = ((number, line.strip()) for number, line in enumerate(lines, start=1))
    return [(f"{file}, line {number}: {line!r}", line) for number, line in numbered if line and line[0] != "#"]


def _key_mapping(where: str, entry: str) -> tuple[str, KeyMapping]:
    glob, _, name = (part.strip() for part in entry.partition("="))
    if not glob or name not in tuple(KeyMapping):
        names = ", ".join(KeyMapping)
        raise ConfigurationError(f"{where} is no topic=mapping", hint=f"a topic, or a glob, = one of {names}")
    return glob, KeyMapping(name)
