"""What the environment says about partition expansions; it is read by `acktrail.config`.

=======================  ========================================================================================
variable                 meaning
=======================  ========================================================================================
ACKTRAIL_KEY_MAPPINGS    how producers choose partitions, by topic: ``orders=murmur2,legacy-*=crc32`` (``murmur2``:
                         Kafka's Java clients, ``crc32``: librdkafka's default, ``none``: not known); the first that
                         fits counts, a topic without one has ``none``
ACKTRAIL_ORDERED_GROUPS  the groups that rely on the order of records of one key: ``billing,ship-*`` (default: none)
ACKTRAIL_SETTLE          how long producers may use an old partition count after an expansion: ``15m`` (default), up to
                         ``24h``; at least their metadata's largest age, how long they try to deliver, and the
                         timeouts of two requests together
=======================  ========================================================================================

And the fewest ACLs with which looks and an expansion work. An expansion sends CreatePartitions (ALTER on the topic),
and asks where groups are and where they begin. A look asks for partitions, ends of logs and leader epochs (DESCRIBE on
the topic), and for the positions of groups.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from acktrail.config import duration, setting
from acktrail.errors import ConfigurationError
from acktrail.model.acls import WantedAcls, each, seen
from acktrail_expansion.ordering.order import KeyMapping

_MAPPINGS: Final = "ACKTRAIL_KEY_MAPPINGS"
LOOK: Final = "ledger"
EXPANSION: Final = "expansion"
WANTED: Final[dict[str, WantedAcls]] = {
    LOOK: lambda groups, topics: [*each("DESCRIBE", "group", groups), *each("DESCRIBE", "topic", topics)],
    EXPANSION: lambda groups, topics: [*seen(groups), *each("ALTER", "topic", topics)],
}


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


def key_mappings() -> Callable[[str], KeyMapping]:
    """How producers choose partitions, by topic; ``KeyMapping.NONE`` where that is not given. Raises
    ConfigurationError: an entry is no ``glob=mapping``, or names no mapping that is known."""
    by_glob = [_key_mapping(entry) for entry in setting(_MAPPINGS).split(",") if entry.strip()]
    return lambda topic: next((mapping for glob, mapping in by_glob if fnmatchcase(topic, glob)), KeyMapping.NONE)


def _key_mapping(entry: str) -> tuple[str, KeyMapping]:
    glob, _, name = (part.strip() for part in entry.partition("="))
    if not glob or name not in tuple(KeyMapping):
        hint = f"a topic, or a glob, = one of {', '.join(KeyMapping)}"
        raise ConfigurationError(f"{_MAPPINGS}: {entry.strip()!r} is not topic=mapping", hint=hint)
    return glob, KeyMapping(name)
