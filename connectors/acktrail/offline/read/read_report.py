"""What could not be read of a log segment, and which records were left out on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class SegmentDamageStatus(StrEnum):
    """Why the records of a piece of a log are not known: its checksum is wrong, or its content is not records; the file
    ends inside it (a crash, or a copy of a log that is being written); the end of their transaction is not there. In
    an object of a sink: nothing from there on is a record with its separator; offsets that no object names."""

    CORRUPT_BATCH = "corrupt_batch"
    TORN_TAIL = "torn_tail"
    UNDECIDED_TRANSACTION = "undecided_transaction"
    UNREADABLE_REST = "unreadable_rest"
    UNKNOWN_OFFSETS = "unknown_offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDamage:
    """A piece of a segment or object: `size_bytes` from byte `position` on (in the unpacked file). `first_offset` and
    `last_offset` are what its header says, None where there is none that can be read. Readable records before the
    damage within a batch are given; then `first_offset` is the one after them."""

    state_partition: int | None
    file: str
    position: int
    size_bytes: int
    first_offset: int | None
    last_offset: int | None
    status: SegmentDamageStatus
    reason: str


@dataclass(slots=True, kw_only=True)
class ReadReport:
    """How files are read, and what was left out on the way.

    `state_partition` is for segments whose folder does not name it. `control` selects the control records (drafts
    i and ii) instead of the others. `separator` stands behind each record of a sink's object. `on_damage` is called for
    each damage. Collected: the numbers of control records and of records of aborted transactions, the segments without
    a state partition (`nameless`), objects without keys for all values (`keyless`), and those without a later object
    that confirms their offsets (`unchecked`).
    """

    state_partition: int | None = None
    control: bool = False
    separator: bytes = b"\n"
    on_damage: Callable[[SegmentDamage], None] = lambda _: None
    control_records: int = 0
    aborted_records: int = 0
    nameless: list[str] = field(default_factory=list)
    keyless: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def add(self, other: ReadReport) -> None:
        """Add the counts and names of `other`."""
        self.control_records += other.control_records
        self.aborted_records += other.aborted_records
        self.nameless += other.nameless
        self.keyless += other.keyless
        self.unchecked += other.unchecked
