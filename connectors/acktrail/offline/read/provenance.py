"""Where a log segment comes from, by the files beside it.

A broker keeps the topic's id in ``partition.metadata`` in the segment's folder, and the cluster's id in
``meta.properties`` in the folder above. Both are there when a whole log directory was copied.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from acktrail.model.share_partition import topic_id_bytes
from acktrail.offline.read.log_segment import SEGMENT_SUFFIX
from acktrail.offline.read.open_file import bare_suffix

_LARGEST: Final = 64 * 1024


def topic_id_beside(file: Path) -> str | None:
    """The id of the topic that a segment is of; None: not in its folder."""
    if bare_suffix(file) != SEGMENT_SUFFIX:
        return None
    topic_id = _value(file.absolute().parent / "partition.metadata", "topic_id", ":")
    try:
        return topic_id if topic_id and topic_id_bytes(topic_id) else None  # type: ignore[arg-type]  # any text: it is checked
    except ValueError:
        return None


def cluster_id_beside(file: Path) -> str | None:
    """The id of the cluster whose broker wrote a segment; None: not in the folder above."""
    if bare_suffix(file) != SEGMENT_SUFFIX:
        return None
    return _value(file.absolute().parent.parent / "meta.properties", "cluster.id", "=")


def shown_name(file: Path) -> str:
    """The file's name; that of a segment, which says little, with its folder's."""
    return f"{file.absolute().parent.name}/{file.name}" if bare_suffix(file) == SEGMENT_SUFFIX else file.name


def sha256_of(file: Path) -> str:
    """SHA-256 of the file's bytes, in hex."""
    with file.open("rb") as raw:
        return hashlib.file_digest(raw, "sha256").hexdigest()


def _value(file: Path, name: str, separator: str) -> str | None:
    """The value of `name` in a small file of ``name<separator>value`` lines."""
    try:
        with file.open(encoding="utf-8", errors="replace") as text:
            lines = text.read(_LARGEST).splitlines()
    except OSError:
        return None
    for line in lines:
        key, is_pair, value = line.partition(separator)
        if is_pair and key.strip() == name:
            return value.strip() or None
    return None
