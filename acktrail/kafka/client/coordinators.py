"""Sends requests to the coordinators of groups, also when a coordinator moves.

A query is retried after every error that a new try can cure, a timeout included. A change is sent again only after the
coordinator answered that it did nothing. After a timeout a change is never sent again: it may have arrived.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kafka.protocol.metadata import FindCoordinatorRequest

from acktrail.backoff import Backoff
from acktrail.errors import AcktrailError, RetryableError
from acktrail.kafka.client.broker_client import BrokerClient, NoResponse
from acktrail.kafka.client.error_codes import (
    ASK_AGAIN,
    COORDINATOR_NOT_AVAILABLE,
    MOVED_COORDINATOR,
    NONE,
    REQUEST_TIMED_OUT,
    SAFE_TO_SEND_AGAIN,
)

MOST_AT_ONCE: Final = 100
"""Groups in one request: a busy broker usually answers them in time."""
_IN_FLIGHT: Final = 2
"""Requests in flight to one broker, which answers one after the other: each has its own timeout to wait."""
_DIVISOR: Final = 10
"""A request that timed out is repeated in parts, each with this fraction of its groups."""
_MOST_TIMEOUTS_IN_A_ROW: Final = 3
"""Timeouts of one coordinator without an answer in between: requests of a hundred groups, of ten, and of one."""
_MOST_TIMEOUTS: Final = 10
"""Timeouts in one query. Each takes a whole request timeout."""
_LOCATED_AT_ONCE: Final = 500
_RETRY_TIMEOUTS: Final = 2
"""A query is retried for this many request timeouts after the last answer, as in Kafka's clients
(``default.api.timeout.ms``). After a timeout, ``_RequestSizing`` decides instead."""

_RequestFor = Callable[[Sequence[str]], Any]
_Read = Callable[[Any], Any]
_Unanswered = tuple[Sequence[str], NoResponse]
"""The groups of a request, and why it has no response."""


class CoordinatorResponse(NamedTuple):
    """The response of the coordinator `node_id` about one group. `body` is what the query's `read` returned; None if
    the coordinator did not answer."""

    node_id: int | None
    error_code: int
    message: str | None = None
    body: Any = None


class SendResult(NamedTuple):
    """The outcome of a change that is sent once.

    With a `reply`, `error_code` and `message` are those of the whole request. Without one:

    * `error_code`: the coordinator could not be located, so the change was not sent.
    * `unsent`: the connection failed before the change was sent.
    * `lost`: the change was sent and no response came. This is the reason; the outcome is unknown.
    """

    error_code: int = NONE
    message: str | None = None
    reply: Any = None
    lost: str | None = None
    unsent: AcktrailError | None = None

    @property
    def may_send_again(self) -> bool:
        """Whether nothing was changed and a retry may help."""
        return self.error_code in SAFE_TO_SEND_AGAIN or isinstance(self.unsent, RetryableError)


class _RequestSizing:
    """How many groups one request to a coordinator has: `at_once`; after each timeout a tenth of that, down to one.

    A coordinator that never timed out gets two requests at once; after a timeout, one, because requests in the same
    connection time out together. Groups of a timed-out request are asked last, so that one stuck group is found after
    the others have answered. Example: 100 groups, one of them stuck, are asked together, then in tens, then one by one.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._timeouts = 0
        self._in_a_row: Counter[int] = Counter()
        self._reduced: dict[int, int] = {}
        self._suspects: set[str] = set()

    def rounds(self, node: int, group_ids: Iterable[str]) -> list[list[Sequence[str]]]:
        """Divide `group_ids` into rounds of requests to `node`: each round is a list of requests that are sent at once,
        each request a list of groups."""
        requests = parts(sorted(group_ids, key=self._suspects.__contains__), self._reduced.get(node, self._at_once))
        in_flight = 1 if node in self._reduced else _IN_FLIGHT
        return [list(requests[at : at + in_flight]) for at in range(0, len(requests), in_flight)]

    def note_response(self, node: int) -> None:
        """Remember that `node` answers."""
        self._in_a_row.pop(node, None)

    def note_timeout(self, node: int, timed_out: Sequence[Sequence[str]]) -> Sequence[str]:
        """Remember that requests to `node` timed out; `timed_out` has the groups of each. Return the stuck group: the
        only group of the only request, not asked for the first time. Empty if there is none."""
        self._timeouts += 1
        self._in_a_row[node] += 1
        first = timed_out[0]
        stuck = first if node in self._reduced and len(first) == 1 and first[0] in self._suspects else ()
        self._reduced[node] = max(1, max(map(len, timed_out)) // _DIVISOR)
        self._suspects.update(*timed_out)
        return stuck

    def is_given_up(self, node: int) -> bool:
        """Whether to stop asking `node`: requests of every size timed out, or the query had too many timeouts, even
        with answers in between."""
        return self._in_a_row[node] >= _MOST_TIMEOUTS_IN_A_ROW or self._timeouts >= _MOST_TIMEOUTS


def parts(group_ids: Sequence[str], most: int) -> list[Sequence[str]]:
    """Cut into pieces of `most` groups."""
    return [group_ids[at : at + most] for at in range(0, len(group_ids), most)]


@dataclass(frozen=True, slots=True)
class _Query:
    """A query in progress: its arguments, when to retry, and the responses so far."""

    request_for: _RequestFor
    read: _Read
    tolerates_timeouts: bool
    backoff: Backoff
    sizing: _RequestSizing
    responses: dict[str, CoordinatorResponse] = field(default_factory=dict)

    def is_open(self, group_id: str) -> bool:
        """Whether the group has no response yet, or one that a retry may change."""
        found = self.responses.get(group_id)
        return found is None or found.error_code in ASK_AGAIN


class Coordinators:
    """Finds the coordinators of groups, and sends requests to them.

    While a coordinator is being elected, created or loaded (codes 14, 15, 16; on a fresh cluster until
    ``__consumer_offsets`` exists), a query is retried for twice `client.request_timeout_s`.

    A query that timed out is sent again, because a coordinator does not answer for about half a minute while it looks
    for the state of a topic that is being deleted (five tries of its persister, ``PersisterStateManager``), and answers
    the next request at once. The groups are then asked in smaller requests, each with the whole timeout: a busy broker
    answers those in time, and a single group that delays its request is found.
    """

    def __init__(self, client: BrokerClient) -> None:
        self._client = client
        self._known: dict[str, int] = {}

    def query(
        self,
        group_ids: Iterable[str],
        request_for: _RequestFor,
        *,
        read: _Read = lambda body: body,
        tolerates_timeouts: bool = False,
        at_once: int = MOST_AT_ONCE,
    ) -> dict[str, CoordinatorResponse]:
        """Return one response for each group.

        request_for: makes one request for groups that share a coordinator. The rows in `groups` of its response have
        `group_id`, `error_code` and, except in OffsetFetch, `error_message`.
        read: returns the `body` to keep from such a row.
        at_once: the most groups in one request. A broker has at most two requests in flight.
        tolerates_timeouts: groups without an answer get the error code REQUEST_TIMED_OUT (7).

        Raises Unreachable; and RetryableError when a coordinator did not answer in time, unless `tolerates_timeouts`.
        """
        backoff = Backoff(_RETRY_TIMEOUTS * self._client.request_timeout_s)
        query = _Query(request_for, read, tolerates_timeouts, backoff, _RequestSizing(at_once))
        pending = list(dict.fromkeys(group_ids))
        while pending:
            try:
                self._ask_all(pending, query)
            except RetryableError as error:
                if not tolerates_timeouts:
                    raise
                timed_out = CoordinatorResponse(None, REQUEST_TIMED_OUT, error.message)
                query.responses.update(dict.fromkeys(filter(query.is_open, pending), timed_out))
            pending = [group_id for group_id in pending if query.is_open(group_id)]
            for group_id in pending:
                if query.responses[group_id].error_code in MOVED_COORDINATOR:
                    self._known.pop(group_id, None)
            if pending and not backoff.wait():
                break
        return query.responses

    def send_once(self, group_id: str, request: Any, top_error: Callable[[Any], tuple[int, str | None]]) -> SendResult:
        """Send a group's change to its coordinator. `top_error` returns error code and message of a whole response."""
        backoff = Backoff(self._client.request_timeout_s)
        while True:
            result = self._send(group_id, request, top_error)
            if not result.may_send_again:
                return result
            self._known.pop(group_id, None)
            if not backoff.wait():
                return result

    def _send(self, group_id: str, request: Any, top_error: Callable[[Any], tuple[int, str | None]]) -> SendResult:
        try:
            missing = self._locate([group_id])
            if group_id in missing:
                return SendResult(missing[group_id].error_code, missing[group_id].message)
            reply = self._client.send_once(request, self._known[group_id])
        except AcktrailError as error:
            return SendResult(unsent=error)
        if isinstance(reply, NoResponse):
            del self._known[group_id]
        return self.sent(reply, top_error)

    def sent(self, reply: Any, top_error: Callable[[Any], tuple[int, str | None]]) -> SendResult:
        """Return the outcome of a change that was sent. `reply` is its response, or `NoResponse`."""
        if not isinstance(reply, NoResponse):
            return SendResult(*top_error(reply), reply)
        reason = self._client.explain(reply)
        return SendResult(lost=reason.message) if reply.may_have_arrived else SendResult(unsent=reason)

    def _ask_all(self, group_ids: Sequence[str], query: _Query) -> None:
        """Record a response for each group. After a coordinator did not answer, its other groups are not asked: they
        get the error COORDINATOR_NOT_AVAILABLE, so that it is located again."""
        query.responses.update(self._locate(group_ids))
        by_node: dict[int, list[str]] = defaultdict(list)
        for group_id in group_ids:
            if group_id in self._known:
                by_node[self._known[group_id]].append(group_id)
        left = {node: query.sizing.rounds(node, groups) for node, groups in by_node.items()}
        while left:
            sent = [(node, part) for node, rounds in left.items() for part in rounds[0]]
            left = {node: rounds[1:] for node, rounds in left.items() if rounds[1:]}
            replies = self._client.send_all([(node, query.request_for(part)) for node, part in sent])
            results = [(node, part, reply) for (node, part), reply in zip(sent, replies, strict=True)]
            answered = [(node, reply) for node, _, reply in results if not isinstance(reply, NoResponse)]
            self._record_responses(answered, query)
            missing: dict[int, list[_Unanswered]] = defaultdict(list)
            for node, part, reply in results:
                if isinstance(reply, NoResponse):
                    rest = [group_id for later in left.pop(node, ()) for request in later for group_id in request]
                    error = CoordinatorResponse(node, COORDINATOR_NOT_AVAILABLE)
                    query.responses.update(dict.fromkeys((*part, *rest), error))
                    missing[node].append((part, reply))
            for node, found in missing.items():
                self._handle_no_response(node, found, query)

    def _record_responses(self, answered: Sequence[tuple[int, Any]], query: _Query) -> None:
        """Record the responses of nodes. Each renews the time for retries, as many groups may take longer than that."""
        for node, reply in answered:
            query.sizing.note_response(node)
            for row in reply.groups:
                body = query.read(row)
                query.responses[row.group_id] = CoordinatorResponse(node, row.error_code, _message(row), body)
                if row.error_code not in ASK_AGAIN:
                    query.backoff.renew()

    def _handle_no_response(self, node: int, missing: Sequence[_Unanswered], query: _Query) -> None:
        """Decide whether to ask `node` again. Raises when the coordinator timed out too often, or could not be reached
        for too long."""
        timed_out = [(part, reply) for part, reply in missing if not reply.may_try_again]
        if not timed_out:
            if query.backoff.left_s <= 0:
                raise self._client.explain(missing[0][1])
            return
        error = self._client.explain(timed_out[0][1])
        stuck = query.sizing.note_timeout(node, [part for part, _ in timed_out])
        if query.sizing.is_given_up(node) or (stuck and not query.tolerates_timeouts):
            raise error
        if stuck:
            query.responses.update(dict.fromkeys(stuck, CoordinatorResponse(node, REQUEST_TIMED_OUT, error.message)))
        query.backoff.renew()

    def _locate(self, group_ids: Sequence[str]) -> dict[str, CoordinatorResponse]:
        """Find the coordinators of those `group_ids` whose coordinator is not known. Return an error for each that was
        not found."""
        failed: dict[str, CoordinatorResponse] = {}
        unknown = [group_id for group_id in group_ids if group_id not in self._known]
        for part in parts(unknown, _LOCATED_AT_ONCE):
            failed |= dict.fromkeys(part, CoordinatorResponse(None, COORDINATOR_NOT_AVAILABLE))
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=part, min_version=4)
            for row in self._client.send(request, timeout_retries=1).coordinators:
                if row.error_code == NONE:
                    self._known[row.key] = self._client.learn_coordinator(row, row.key)
                    failed.pop(row.key, None)
                else:
                    failed[row.key] = CoordinatorResponse(None, row.error_code, row.error_message)
        return failed


def _message(row: Any) -> str | None:
    """Return the broker's message beside an error; OffsetFetch has none."""
    return getattr(row, "error_message", None)
