"""Share sessions: which topic partitions a member fetches, so that its requests need only say what changed.

(Kafka: ``ShareSession``, ``ShareSessionCache``, ``ShareSessionContext``, ``SharePartitionManager.newContext``.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from acktrail.model.share_partition import GroupId
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.leader.acknowledge import InvalidRecordState
from acktrail_simulation.messages.share_messages import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    AskedPartition,
    FetchedPartition,
    ShareFetch,
    TopicIdPartition,
    next_session_epoch,
)


def in_turn(wanted: tuple[TopicIdPartition, ...], session_epoch: int) -> tuple[TopicIdPartition, ...]:
    """`wanted` from the one whose turn it is (``PartitionRotateStrategy``)."""
    turn = session_epoch % len(wanted) if wanted and session_epoch > 0 else 0
    return wanted[turn:] + wanted[:turn]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKey:
    """A member of a group."""

    group_id: GroupId
    member_id: str


@dataclass(slots=True, kw_only=True)
class SessionPartition:
    """One topic partition of a session. `topic`: its name when it was added; None: it had none, and never gets one.
    `must_answer`: it is in the next response in any case.
    """

    topic: str | None
    must_answer: bool


@dataclass(slots=True, kw_only=True)
class ShareSession:
    """A member's session. `epoch` is the one that its next request must carry. `partitions` are in the order in which
    they are fetched.
    """

    key: SessionKey
    connection_id: str
    epoch: int
    partitions: dict[TopicIdPartition, SessionPartition] = field(default_factory=dict)
    is_new: bool = True
    """Its first request is under way; the answer to that one mentions everything."""

    def worth_sending(self, found: Iterable[FetchedPartition]) -> tuple[FetchedPartition, ...]:
        """The partitions of `found` that belong into the response: with records, with errors, or newly requested.

        A topic partition that brought records goes to the end, so that the others have their turn.
        """
        if self.is_new:
            return tuple(found)
        return tuple(partition for partition in found if self._is_worth_telling(partition))

    def _is_worth_telling(self, found: FetchedPartition) -> bool:
        cached = self.partitions[found.at]
        failed = found.error is not ErrorCode.NONE
        worth = bool(found.records) or cached.must_answer or failed
        cached.must_answer = failed
        if worth and found.records:
            self.partitions[found.at] = self.partitions.pop(found.at)
        return worth


class ShareSessions:
    """The sessions that a broker keeps, at most `most_sessions` (``group.share.max.share.sessions``)."""

    def __init__(self, name_of: Callable[[TopicIdPartition], str | None], *, most_sessions: int = 2_000) -> None:
        self.name_of = name_of
        self.most_sessions = most_sessions
        self.sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[str, SessionKey] = {}
        self._gone: set[str] = set()

    def for_fetch(self, key: SessionKey, request: ShareFetch, connection_id: str) -> ShareSession | None:
        """The session that a ShareFetch works with, its epoch already the next one; None: the request closes it.

        Raises:
            Refused: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED; INVALID_REQUEST
                for acknowledgements in a first request.
        """
        if request.session_epoch == FINAL_EPOCH:
            self._known(key)
            return None
        if request.session_epoch == INITIAL_EPOCH:
            if request.has_acknowledgements:
                raise InvalidRecordState(ErrorCode.INVALID_REQUEST)
            return self._open(key, request.partitions, connection_id)
        session = self._next(key, request.session_epoch)
        for partition in request.partitions:
            session.partitions.setdefault(partition.at, self._added(partition, must_answer=True))
        for at in request.forgotten:
            session.partitions.pop(at, None)
        session.is_new = False
        return session

    def for_acknowledge(self, key: SessionKey, session_epoch: int) -> None:
        """Take notice of a ShareAcknowledge. It cannot open a session.

        Raises:
            Refused: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        if session_epoch == INITIAL_EPOCH:
            raise InvalidRecordState(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        if session_epoch == FINAL_EPOCH:
            self._known(key)
            return
        self._next(key, session_epoch)

    def close(self, key: SessionKey) -> tuple[TopicIdPartition, ...]:
        """End a session; its topic partitions. Its connection no longer stands for it.

        Raises:
            Refused: SHARE_SESSION_NOT_FOUND.
        """
        session = self._known(key)
        self._remove(session)
        return tuple(session.partitions)

    def disconnected(self, connection_id: str) -> tuple[SessionKey, bool] | None:
        """Whose last session a lost connection carried, and whether that one is still open; None: it carried none."""
        key = self._by_connection.pop(connection_id, None)
        if key is None:
            return None
        is_open = connection_id not in self._gone and key in self.sessions
        self._gone.discard(connection_id)
        return key, is_open

    def _open(self, key: SessionKey, partitions: Iterable[AskedPartition], connection_id: str) -> ShareSession:
        """A session afresh. What the old one held stays locked until that ends by itself."""
        if key in self.sessions:
            self._remove(self.sessions[key])
        if len(self.sessions) >= self.most_sessions:
            raise InvalidRecordState(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = ShareSession(key=key, connection_id=connection_id, epoch=next_session_epoch(INITIAL_EPOCH))
        session.partitions = {found.at: self._added(found, must_answer=False) for found in partitions}
        self.sessions[key] = session
        self._by_connection[connection_id] = key
        self._gone.discard(connection_id)
        return session

    def _added(self, partition: AskedPartition, *, must_answer: bool) -> SessionPartition:
        return SessionPartition(topic=self.name_of(partition.at), must_answer=must_answer)

    def _remove(self, session: ShareSession) -> None:
        del self.sessions[session.key]
        if session.connection_id in self._by_connection:
            self._gone.add(session.connection_id)

    def _known(self, key: SessionKey) -> ShareSession:
        session = self.sessions.get(key)
        if session is None:
            raise InvalidRecordState(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def _next(self, key: SessionKey, session_epoch: int) -> ShareSession:
        session = self._known(key)
        if session.epoch != session_epoch:
            raise InvalidRecordState(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = next_session_epoch(session.epoch)
        return session
