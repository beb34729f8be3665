"""Admin client for share groups: reads groups, topics and log offsets, and changes groups.

::

    with ShareGroupAdmin(KafkaConfig(bootstrap_servers="broker-1:9092")) as admin:
        admin.describe_group("billing").members
        admin.describe_offsets("billing", {"orders": [0, 1]})
        results = admin.alter_offsets("billing", [NewStartOffset(topic="orders", partition=0, start_offset=17)])
        raise_unless_done(results, operation="READ")

The calls that librdkafka lacks go through kafka-python's connections, with message schemas of our own
(`kafka.groups.messages`). Reads follow a coordinator or leader that moves, and are retried while it is elected or
loads. A read raises errors of `acktrail.errors`; where one row of many fails, the row has the error. Changes are sent
once: see `GroupWriter`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from kafka.protocol.admin.groups import ListGroupsRequest

from acktrail.backoff import Backoff
from acktrail.errors import AcktrailError, NotAShareGroup, UnknownName, WrongType, WrongValue
from acktrail.kafka import describe_configs
from acktrail.kafka.client.broker_client import BrokerClient, NoResponse
from acktrail.kafka.client.error_codes import (
    ASK_AGAIN,
    COORDINATOR_NOT_AVAILABLE,
    GROUP_AUTHORIZATION_FAILED,
    GROUP_ID_NOT_FOUND,
    LOOK_AGAIN,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    error_for,
    error_text,
)
from acktrail.kafka.descriptions import (
    Capabilities,
    CommittedOffsets,
    GroupConfigs,
    GroupDescription,
    GroupListing,
    GroupOffsets,
    LogOffsets,
    OffsetAtTime,
    Rights,
    ShareOffset,
    TopicDescription,
    TopicPartition,
    indices_of,
    partitions_of,
    text_of,
    texts_of,
    time_of,
)
from acktrail.kafka.groups import group_requests
from acktrail.kafka.groups.change_requests import GroupWriter
from acktrail.kafka.logs import HIGH_WATERMARK, LAST_STABLE, START, Query, first_error, query_leaders
from acktrail.model.share_partition import ZERO_TOPIC_ID, TopicId, topic_id_bytes, topic_id_text

_SHARE: Final = "share"
_GROUP_TYPES: Final = (_SHARE, "consumer", "classic", "streams")
_IDS_AT_ONCE: Final = 1_000
_GROUPS_AT_ONCE: Final = 500
_LOADING_S: Final = 2.0
"""Seconds to retry while a new topic has no leader (LEADER_NOT_AVAILABLE)."""


class ShareGroupAdmin(GroupWriter):
    """Reads share-group metadata and offsets from a cluster. Inherits the write calls from `GroupWriter`, and the
    constructor and `close`.

    Every read raises Unreachable or RetryableError when a broker did not answer, and ConfigurationError when the
    cluster does not serve share groups; before anything is sent, TypeError (WrongType) or ValueError (WrongValue) for
    arguments that no request can hold.
    """

    def capabilities(self) -> Capabilities:
        """Return the API versions the brokers serve, and whether they report lag."""
        return Capabilities.of(self._client.api_versions())

    def list_groups(self, types: Sequence[str] = (_SHARE,)) -> tuple[GroupListing, ...]:
        """Return the groups of `types` (empty: of every type) on all brokers, by id. A group that this principal may
        not DESCRIBE is left out."""
        wanted = texts_of("type of groups", types)
        unknown = [name for name in wanted if name not in _GROUP_TYPES]
        if unknown:
            raise WrongValue(f"{unknown[0]!r} is not a type of groups", hint=f"one of {', '.join(_GROUP_TYPES)}")
        backoff = Backoff(self._client.request_timeout_s)
        found: dict[str, GroupListing] = {}
        pending = self.broker_ids()
        while pending:
            requests = [(node, ListGroupsRequest(types_filter=list(wanted), min_version=5)) for node in pending]
            retry_brokers: list[int] = []
            for node, reply in zip(pending, self._client.send_all(requests), strict=True):
                if not self._is_listed(reply):
                    retry_brokers.append(node)
                    continue
                for group in reply.groups:
                    group_id, kind, state = group.group_id, group.group_type.lower(), group.group_state
                    found[group_id] = GroupListing(group_id=group_id, group_type=kind, state=state, coordinator_id=node)
            if retry_brokers and not backoff.wait():
                subject = {"kind": "the groups of broker", "name": str(retry_brokers[0])}
                raise error_for(COORDINATOR_NOT_AVAILABLE, None, operation="DESCRIBE", **subject)
            pending = retry_brokers
        return tuple(found[group_id] for group_id in sorted(found))

    def describe_groups(
        self, group_ids: Iterable[str], *, tolerates_timeouts: bool = False
    ) -> tuple[GroupDescription, ...]:
        """Return state, epochs and members of share groups, in the order of `group_ids`. A group that does not exist,
        or is not a share group, has the error code `GROUP_ID_NOT_FOUND` (69). `tolerates_timeouts`: a group whose
        coordinator does not answer has `REQUEST_TIMED_OUT` (7)."""
        ids = texts_of("group id", group_ids)
        answers = self._coordinators.query(ids, group_requests.describe_request, tolerates_timeouts=tolerates_timeouts)
        return tuple(group_requests.description(group_id, answers[group_id]) for group_id in ids)

    def describe_group(self, group_id: str) -> GroupDescription:
        """One share group that must be there. Raises UnknownName with the nearest names of share groups, NotAShareGroup
        when a group of another type has this id, NotAuthorized when DESCRIBE is missing on it or a topic it is
        assigned.
        """
        (found,) = self.describe_groups([group_id])
        if found.error_code != NONE:
            raise self.error_of(found)
        return found

    def error_of(self, answer: GroupDescription | GroupOffsets) -> AcktrailError:
        """The error behind an answer about one group that has an error code; see `describe_group`."""
        if not isinstance(answer, GroupDescription | GroupOffsets):
            raise WrongType(f"{answer!r:.100} is not an answer about one group")
        group_id = answer.group_id
        if answer.error_code != GROUP_ID_NOT_FOUND:
            words = (answer.error or "").partition(": ")[2] or None
            return error_for(answer.error_code, words, operation="DESCRIBE", kind="group", name=group_id)
        types = {listing.group_id: listing.group_type for listing in self.list_groups(types=())}
        if group_id in types and types[group_id] != _SHARE:
            return NotAShareGroup(group_id, types[group_id])
        known = [name for name, group_type in types.items() if group_type == _SHARE]
        return UnknownName("share group", group_id, known=known)

    def describe_group_offsets(
        self, group_ids: Iterable[str], *, tolerates_timeouts: bool = False
    ) -> tuple[GroupOffsets, ...]:
        """Every initialized share partition of each group, in the order asked for, with errors as values;
        `tolerates_timeouts` as of `describe_groups`. A group that is not there has no offsets and no error: only
        `describe_groups` shows that. A topic this principal may not DESCRIBE is left out without an error.
        """
        wanted = texts_of("group id", group_ids)
        answers = self._coordinators.query(
            wanted,
            group_requests.offsets_request,
            read=group_requests.share_offsets,
            tolerates_timeouts=tolerates_timeouts,
            at_once=group_requests.OFFSETS_AT_ONCE,
        )
        return tuple(group_requests.offsets(GroupOffsets, group_id, answers[group_id]) for group_id in wanted)

    def committed_offsets(
        self, group_ids: Iterable[str], *, tolerates_timeouts: bool = False
    ) -> tuple[CommittedOffsets, ...]:
        """All that consumer, streams and classic groups have committed, in the order asked for, with errors as values;
        `tolerates_timeouts` as of `describe_groups`. A group that is not there has no offsets and no error."""
        wanted = texts_of("group id", group_ids)
        answers = self._coordinators.query(
            wanted,
            group_requests.committed_request,
            read=group_requests.committed_offsets,
            tolerates_timeouts=tolerates_timeouts,
        )
        return tuple(group_requests.offsets(CommittedOffsets, group_id, answers[group_id]) for group_id in wanted)

    def describe_offsets(
        self, group_id: str, topics: Mapping[str, Sequence[int]] | None = None
    ) -> tuple[ShareOffset, ...]:
        """Start offset, lag and leader epoch of share partitions, by topic and partition.

        `topics` None: every initialized one; else these partitions by topic. They are looked up first: Kafka would
        take half a minute to say nothing about a partition that is not there. Raises UnknownName when a topic or
        partition in `topics` is not there, NotAuthorized when DESCRIBE is missing on the group or on one of `topics`.
        """
        text_of("group id", group_id)
        if topics is not None:
            topics = indices_of(topics)
            self._check_partitions(topics)
        request_for = partial(group_requests.offsets_request, topics=topics)
        answers = self._coordinators.query([group_id], request_for, read=group_requests.share_offsets)
        found = group_requests.offsets(GroupOffsets, group_id, answers[group_id])
        if found.error_code != NONE:
            raise self.error_of(found)
        return found.offsets

    def topics(self, names: Sequence[str] | None = None) -> tuple[TopicDescription, ...]:
        """These topics in the order asked for, with errors as values; None: all that this principal may DESCRIBE, by
        name. No topic is created by asking."""
        if names is not None:
            names = texts_of("topic", names)
            if not names:
                return ()
        backoff = Backoff(_LOADING_S)
        rows = self._client.metadata(names).topics
        while any(row.error_code in LOOK_AGAIN for row in rows) and backoff.wait():
            rows = self._client.metadata(names).topics
        found = {
            row.name: TopicDescription(
                name=row.name,
                topic_id=group_requests.known_topic_id(row.topic_id),
                partition_count=len(row.partitions) if row.error_code in LOOK_AGAIN | {NONE} else 0,
                is_internal=row.is_internal,
                error_code=row.error_code,
                error=error_text(row.error_code),
            )
            for row in rows
        }
        return tuple(found[name] for name in dict.fromkeys(names or sorted(found)))

    def known_topics(self, names: Sequence[str]) -> tuple[TopicDescription, ...]:
        """These topics in the order asked for. Raises UnknownName with the nearest names where one is not there,
        NotAuthorized where it may not be described."""
        found = self.topics(names)
        for topic in found:
            if topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownName("topic", topic.name, known=[other.name for other in self.topics()])
            if topic.error_code != NONE:
                raise error_for(topic.error_code, None, operation="DESCRIBE", kind="topic", name=topic.name)
        return found

    def hidden_topics(self, topic_ids: Iterable[str]) -> frozenset[str]:
        """The `topic_ids` of existing topics that this principal may not DESCRIBE. A broker shows them only when it is
        asked by id (``KafkaApis.handleTopicMetadataRequest``): error 29 for such a topic, 100 for one that is gone. A
        listing of all topics leaves both out.
        """
        wanted = sorted(set(texts_of("topic id", topic_ids)) - {ZERO_TOPIC_ID})
        try:
            asked = [UUID(bytes=topic_id_bytes(TopicId(topic_id))) for topic_id in wanted]
        except ValueError as error:
            raise WrongValue(str(error), hint="22 characters of URL-safe base64") from None
        hidden: set[str] = set()
        for begin in range(0, len(asked), _IDS_AT_ONCE):
            rows = self._client.metadata_by_id(asked[begin : begin + _IDS_AT_ONCE]).topics
            refused = (row.topic_id for row in rows if row.error_code == TOPIC_AUTHORIZATION_FAILED)
            hidden |= {topic_id_text(topic_id.bytes) for topic_id in refused}
        return frozenset(hidden)

    def list_offsets(self, partitions: Iterable[TopicPartition]) -> tuple[LogOffsets, ...]:
        """First offset, high watermark and last stable offset of each log, in the order asked for, with errors as
        values. All leaders are asked at once. Raises InputError for a partition that is no int, or that Kafka has no
        room for."""
        results = query_leaders(self._client, partitions_of(partitions), (HIGH_WATERMARK, LAST_STABLE, START))
        return tuple(
            LogOffsets(
                topic=partition.topic,
                partition=partition.partition,
                log_start_offset=_known(own[START].offset),
                high_watermark=_known(own[HIGH_WATERMARK].offset),
                last_stable_offset=_known(own[LAST_STABLE].offset),
                leader_epoch=_known(own[HIGH_WATERMARK].leader_epoch),
                error_code=first_error(own),
                error=error_text(first_error(own)),
            )
            for partition, own in results.items()
        )

    def offsets_at(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> tuple[OffsetAtTime, ...]:
        """The first record at or after `timestamp_ms` (since the epoch) in each log, records of open transactions
        included, in the order asked for, with errors as values; an offset of None: the log has no such record. Raises
        as `list_offsets`."""
        query = Query(time_of(timestamp_ms))
        results = query_leaders(self._client, partitions_of(partitions), (query,))
        return tuple(
            OffsetAtTime(
                topic=partition.topic,
                partition=partition.partition,
                offset=_known(own[query].offset),
                timestamp_ms=_known(own[query].timestamp),
                error_code=own[query].error_code,
                error=error_text(own[query].error_code),
            )
            for partition, own in results.items()
        )

    def group_configs(self, group_ids: Iterable[str]) -> tuple[GroupConfigs, ...]:
        """The configuration in force of each group, in the order asked for, with errors as values."""
        wanted = texts_of("group id", group_ids)
        found: dict[str, GroupConfigs] = {}
        for at in range(0, len(wanted), _GROUPS_AT_ONCE):
            request = describe_configs.configs_request(wanted[at : at + _GROUPS_AT_ONCE])
            reply = self._client.send(request, timeout_retries=1)
            found |= {result.resource_name: describe_configs.configs(result) for result in reply.results}
        return tuple(found[group_id] for group_id in wanted)

    def rights(self, group_ids: Iterable[str], topics: Iterable[str] = ()) -> Rights:
        """The ACL operations of this principal on groups and topics, from their descriptions (KIP-430); nothing is
        tried."""
        wanted, names = texts_of("group id", group_ids), texts_of("topic", topics)
        groups = self._coordinators.query(wanted, partial(group_requests.describe_request, with_rights=True))
        rows = self._client.metadata(names, with_rights=True).topics if names else ()
        operations = group_requests.operations
        return Rights(
            groups={name: operations(group, group.body, GROUP_AUTHORIZATION_FAILED) for name, group in groups.items()},
            topics={row.name: operations(row, row, TOPIC_AUTHORIZATION_FAILED) for row in rows},
        )

    def _is_listed(self, reply: Any) -> bool:
        """Return whether a broker listed its groups. False: send the request again."""
        if isinstance(reply, NoResponse):
            if reply.may_try_again:
                return False
            raise self._client.explain(reply)
        if reply.error_code not in ASK_AGAIN | {NONE}:
            raise error_for(reply.error_code, None, operation="DESCRIBE", kind="the cluster", name="")
        return bool(reply.error_code == NONE)

    def _check_partitions(self, topics: Mapping[str, Sequence[int]]) -> None:
        for topic in self.known_topics(tuple(topics)):
            outside = [index for index in topics[topic.name] if not 0 <= index < topic.partition_count]
            if outside:
                last = f"{topic.name}:{topic.partition_count - 1}"
                raise UnknownName("partition", f"{topic.name}:{outside[0]}", nearest=(last,))


def client_of(admin: ShareGroupAdmin) -> BrokerClient:
    """The connection of `admin`, for the modules of acktrail that send requests of their own."""
    return admin._client  # noqa: SLF001  # kept from callers of the admin client, not from acktrail


def _known(number: int) -> int | None:
    return None if number < 0 else number
