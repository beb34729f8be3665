"""What a cluster reports about share groups, topics and logs, as values: unknown is None, never -1. And checks of what
callers give, before anything is sent: a broker does not answer some requests, closes the connection on others, or takes
a value for another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from acktrail.errors import WrongType, WrongValue
from acktrail.format.wire.record_batch import BatchKind
from acktrail.model.offset_ranges import Span

# The newest first: a release is the first one that serves this request (api key) in this version.
_SIGNS: Final = (
    ("4.4 or later", 42, 3),  # DeleteGroups
    ("4.3", 35, 5),  # DescribeLogDirs
    ("4.2", 2, 11),  # ListOffsets
    ("4.1", 90, 0),  # DescribeShareGroupOffsets
    ("4.0", 77, 0),  # ShareGroupDescribe
)
LONGEST_TEXT: Final = 32_767
"""Bytes of UTF-8 in a string of Kafka's protocol (``Readable.readString`` takes an int16's worth, compact or not)."""
_LARGEST_PARTITION: Final = (1 << 31) - 1
_LARGEST_OFFSET: Final = (1 << 63) - 1
_ItemT = TypeVar("_ItemT")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TopicPartition:
    """A partition of a topic by name."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What the cluster serves. `release` is the Kafka release with exactly such requests, for people to read:
    ``4.3``, ``4.4 or later`` ... `begins_added_partitions`: a partition that is added to a topic begins at offset 0 in
    every group that knows the topic, under each ``share.auto.offset.reset``."""

    release: str
    describes_share_groups: bool
    reports_lag: bool
    resets_share_groups: bool
    begins_added_partitions: bool

    @classmethod
    def of(cls, api_versions: Mapping[int, tuple[int, int]]) -> Capabilities:
        """The capabilities of a cluster that serves these versions, lowest and highest by api key."""

        def serves(key: int, version: int) -> bool:
            low, high = api_versions.get(key, (0, -1))
            return low <= version <= high

        return cls(
            release=next((name for name, key, version in _SIGNS if serves(key, version)), "before 4.0"),
            describes_share_groups=serves(77, 1) and 90 in api_versions,
            reports_lag=serves(90, 1),
            # 4.1 answers 91 (AlterShareGroupOffsets) without an error and does nothing; its 90 has no lag.
            resets_share_groups=serves(91, 0) and serves(90, 1),
            begins_added_partitions=serves(42, 3),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """`error_code` is Kafka's (0: none), `error` its name with the broker's words (None: none)."""

    error_code: int
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group as ListGroups shows it; `coordinator_id` is the broker that listed it."""

    group_id: str
    group_type: str
    state: str
    coordinator_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAssignment:
    """One topic's partitions that a member may fetch from."""

    topic: str
    topic_id: str | None
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A share consumer in a group."""

    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    rack: str | None
    subscribed_topics: tuple[str, ...]
    assignment: tuple[MemberAssignment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription(_Answer):
    """A share group (request 77). With an error everything but `group_id` and `coordinator_id` is None or empty."""

    group_id: str
    coordinator_id: int | None
    state: str | None = None
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    assignor: str | None = None
    members: tuple[GroupMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ShareOffset:
    """One share partition as its group describes it (request 90). `topic_id` None: Kafka does not know the topic (any
    more). `start_offset` None: not initialized, or an error that the broker hides; then `leader_epoch` 0 says nothing
    and is None. `lag` None: not known; negative when the start offset was set beyond the log's end.
    """

    topic: str
    partition: int
    topic_id: str | None
    start_offset: int | None
    leader_epoch: int | None
    lag: int | None
    error_code: int
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffsets(_Answer):
    """All described share partitions of one group, by topic and partition, or why there are none."""

    group_id: str
    offsets: tuple[ShareOffset, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CommittedOffset:
    """What a consumer, streams or classic group committed for one partition (request 9)."""

    topic: str
    partition: int
    offset: int | None
    error_code: int
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffsets(_Answer):
    """All committed offsets of one group, by topic and partition, or why there are none."""

    group_id: str
    offsets: tuple[CommittedOffset, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription(_Answer):
    """A topic. `topic_id` None and `partition_count` 0 beside an error."""

    name: str
    topic_id: str | None
    partition_count: int
    is_internal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOffsets(_Answer):
    """The ends of one partition's log. `log_start_offset` is the first offset still there, `high_watermark` and
    `last_stable_offset` are one past the last record that read_uncommitted and read_committed consumers get.
    """

    topic: str
    partition: int
    log_start_offset: int | None
    high_watermark: int | None
    last_stable_offset: int | None
    leader_epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAtTime(_Answer):
    """The first record of one partition at or after a time. `offset` None: there is none (and no error). `timestamp_ms`
    is the record's own, as the broker has it.
    """

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What this principal may do with groups and topics, ACL operations by name. None: the cluster does not say, or the
    group or topic is not there."""

    groups: Mapping[str, frozenset[str] | None]
    topics: Mapping[str, frozenset[str] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfigs(_Answer):
    """A group's configuration in force, defaults included. `configs` is None when it could not be read; `own` are the
    names that are set on the group itself."""

    group_id: str
    configs: Mapping[str, str] | None
    own: frozenset[str] = frozenset()


def text_of(kind: str, value: object) -> str:
    """`value` as text that a request can hold. Raises WrongType unless it is a str; WrongValue when it is empty, no
    Unicode (a lone surrogate), or longer than LONGEST_TEXT."""
    if type(value) is not str:
        raise WrongType(f"{value!r:.100} is not a {kind}", hint="give a str")
    if not value:
        raise WrongValue(f"an empty {kind}", hint=f"name the {kind}")
    return check_size(kind, value)


def check_size(kind: str, value: str) -> str:
    """`value`, which may be empty, as text that a request can hold; see `text_of`."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise WrongValue(f"{value!a:.100} is not a {kind}", hint="it contains half of a surrogate pair") from None
    if size > LONGEST_TEXT:
        raise WrongValue(f"a {kind} of {size} bytes", hint=f"Kafka's protocol allows {LONGEST_TEXT} bytes")
    return value


def texts_of(kind: str, values: object) -> tuple[str, ...]:
    """Each of `values` once, in their order; raises as `text_of`, and WrongType for one str in place of many."""
    return tuple(dict.fromkeys(text_of(kind, value) for value in _many(f"{kind}s", values)))


def items_of(kind: type[_ItemT], values: object) -> tuple[_ItemT, ...]:
    """All of `values`. Raises WrongType unless they are a collection of `kind`."""
    found = tuple(_many(f"{kind.__name__} values", values))
    for value in found:
        if not isinstance(value, kind):
            raise WrongType(f"{value!r:.100} is not a {kind.__name__}")
    return found


def partitions_of(partitions: object) -> tuple[TopicPartition, ...]:
    """Partitions of topics that Kafka has room for; raises as `text_of` and `partition_of`."""
    found = items_of(TopicPartition, partitions)
    for each in found:
        partition_of(text_of("topic", each.topic), each.partition)
    return found


def indices_of(topics: object) -> dict[str, tuple[int, ...]]:
    """Partitions by topic. Raises WrongType unless it is a mapping; as `text_of` and `partition_of`."""
    if not isinstance(topics, Mapping):
        raise WrongType(f"{topics!r:.100} is not a mapping by topic")
    return {
        text_of("topic", topic): tuple(partition_of(topic, index) for index in _many(f"partitions of {topic}", indices))
        for topic, indices in topics.items()
    }


def partition_of(topic: str, partition: object) -> int:
    """Raises WrongType unless `partition` is an int, WrongValue unless Kafka has room for it (int32, from 0 on)."""
    hint = f"partitions count from 0 to {_LARGEST_PARTITION}"
    return _whole(partition, _LARGEST_PARTITION, f"{topic}: {partition!r} is not a partition", hint)


def offset_of(where: str, offset: object) -> int:
    """Raises as `partition_of`, for a start offset of `where`: an int64, from 0 on."""
    return _whole(offset, _LARGEST_OFFSET, f"{where}: no such start offset: {offset!r}", "whole numbers, from 0 on")


def time_of(timestamp_ms: object) -> int:
    """Raises as `partition_of`, for milliseconds since the epoch."""
    hint = "whole milliseconds since 1970-01-01T00:00:00Z"
    return _whole(timestamp_ms, _LARGEST_OFFSET, f"{timestamp_ms!r} is not a time", hint)


def _whole(number: object, largest: int, message: str, hint: str) -> int:
    """True and False are ints to Python, and no numbers to a caller."""
    if type(number) is not int:
        raise WrongType(message, hint=hint)
    if not 0 <= number <= largest:
        raise WrongValue(message, hint=hint)
    return number


def _many(kind: str, values: object) -> Iterable[Any]:
    """A str is a collection of letters to Python, and one name to a caller."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise WrongType(f"{values!r:.100} where {kind} are wanted", hint="give a list, even for one item")
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Offsets `first_offset` to `last_offset`, both inclusive; in `gaps` are those that compaction took away."""

    first_offset: int
    last_offset: int
    kind: BatchKind
    gaps: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LogStretch:
    """Offsets of a log from `first_offset` up to `end_offset` (exclusive)."""

    topic: str
    partition: int
    first_offset: int
    end_offset: int
