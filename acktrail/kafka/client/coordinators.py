"""Requests to each group's coordinator, which follow it when it moves. A query is repeated after anything that a new
try can cure. A change is sent again only after the coordinator answered that it did nothing; after silence it is never
sent again.
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
"""Groups of a request: a busy broker mostly answers it in time."""
_IN_FLIGHT: Final = 2
"""Requests that one broker has at a time: it answers one after the other, and each waits no longer than its timeout."""
_SMALLER: Final = 10
"""A request without a response is divided by this."""
_IN_A_ROW: Final = 3
"""Silences of one coordinator without an answer between them: about a hundred groups, ten, and one."""
_SILENCES: Final = 10
"""Silences in one query: each takes as long as a request may."""
_LOCATED_AT_ONCE: Final = 500
_TIMEOUTS: Final = 2
"""A query is repeated for this many request timeouts after the last answer, as in Kafka's clients
(``default.api.timeout.ms``); after silence as long as ``_Pace`` says."""

_RequestFor = Callable[[Sequence[str]], Any]
_Read = Callable[[Any], Any]


class CoordinatorResponse(NamedTuple):
    """The response of the coordinator `node_id` about one group; `body` is what was read of it, None when it could not
    be asked."""

    node_id: int | None
    error_code: int
    message: str | None = None
    body: Any = None


class SendResult(NamedTuple):
    """What became of a change that was to be sent once. `reply` is the response, with `error_code` and `message` of the
    whole request. Without a reply: an error code is the reason why it was not sent, `unsent` why it could not be;
    `lost` is the reason why it is not known whether it arrived.
    """

    error_code: int = NONE
    message: str | None = None
    reply: Any = None
    lost: str | None = None
    unsent: AcktrailError | None = None

    @property
    def may_send_again(self) -> bool:
        """Whether nothing was done, and a new try may help."""
        return self.error_code in SAFE_TO_SEND_AGAIN or isinstance(self.unsent, RetryableError)


class _Pace:
    """How many groups each coordinator is asked about at a time: `at_once`, and after every silence a tenth of that,
    down to one.

    A coordinator that was never silent has two requests at a time, another one one: requests that wait beside a silent
    one in the connection end with it. Groups that met with silence come last, so that the one that is silent alone is
    found when the others have their answers. Of 100 groups, one of them stuck: all of them are asked, then tens, then
    each alone.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._silences = 0
        self._in_a_row: Counter[int] = Counter()
        self._most: dict[int, int] = {}
        self._suspects: set[str] = set()

    def turns(self, node: int, group_ids: Iterable[str]) -> list[list[Sequence[str]]]:
        """The groups of each request to `node`, by turns."""
        whole = parts(sorted(group_ids, key=self._suspects.__contains__), self._most.get(node, self._at_once))
        beside = 1 if node in self._most else _IN_FLIGHT
        return [list(whole[at : at + beside]) for at in range(0, len(whole), beside)]

    def keep_answer(self, node: int) -> None:
        """Remember that `node` answers."""
        self._in_a_row.pop(node, None)

    def keep_silence(self, node: int, silent: Sequence[Sequence[str]]) -> Sequence[str]:
        """Remember that `node` did not answer in time about the groups of these requests. Gives the one that was asked
        alone, with nothing beside it, and not for the first time."""
        self._silences += 1
        self._in_a_row[node] += 1
        alone = silent[0] if node in self._most and len(silent[0]) == 1 and silent[0][0] in self._suspects else ()
        self._most[node] = max(1, max(map(len, silent)) // _SMALLER)
        self._suspects.update(*silent)
        return alone

    def is_silent(self, node: int) -> bool:
        """Whether `node` is to be asked no more: it answered no request of the smallest size either, or there were too
        many silences in this query, however much was answered between them."""
        return self._in_a_row[node] >= _IN_A_ROW or self._silences >= _SILENCES


def parts(group_ids: Sequence[str], most: int) -> list[Sequence[str]]:
    """Cut into pieces of `most` groups."""
    return [group_ids[at : at + most] for at in range(0, len(group_ids), most)]


@dataclass(frozen=True, slots=True)
class _Question:
    """A query while it is asked: what is sent, what is kept of an answer, and the responses so far."""

    request_for: _RequestFor
    read: _Read
    tolerates_silence: bool
    patience: Backoff
    pace: _Pace
    responses: dict[str, CoordinatorResponse] = field(default_factory=dict)

    def is_open(self, group_id: str) -> bool:
        """Whether it is to be asked again."""
        found = self.responses.get(group_id)
        return found is None or found.error_code in ASK_AGAIN


class Coordinators:
    """Finds the coordinators of groups, and sends requests to them.

    While a coordinator is being elected, created or loaded (codes 14, 15, 16; on a fresh cluster until
    ``__consumer_offsets`` exists) a query is repeated until twice `client.request_timeout_s` have passed. A query
    without a response in time is sent once more: a coordinator is silent for about half a minute when it looks for the
    state of a topic that is just being deleted (five tries of its persister, ``PersisterStateManager``), and answers at
    once when asked again. Its groups are then asked in smaller parts, each with all of the request's timeout: a busy
    broker answers those in time, and one group that holds up its request is found among the others.
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
        tolerates_silence: bool = False,
        at_once: int = MOST_AT_ONCE,
    ) -> dict[str, CoordinatorResponse]:
        """One response for each group. `request_for` makes the request for groups that share a coordinator, `at_once`
        of them at the most; its response has `groups` with `group_id`, `error_code` and, mostly, `error_message`.
        `read` gives what is kept of each.

        However many groups there are, a broker has few requests at a time, and memory few responses.

        Raises Unreachable or RetryableError when a coordinator did not answer in time; with `tolerates_silence` the
        groups without an answer have the error REQUEST_TIMED_OUT instead.
        """
        patience = Backoff(_TIMEOUTS * self._client.request_timeout_s)
        question = _Question(request_for, read, tolerates_silence, patience, _Pace(at_once))
        responses = question.responses
        pending = list(dict.fromkeys(group_ids))
        while pending:
            try:
                self._round(pending, question)
            except RetryableError as error:
                if not tolerates_silence:
                    raise
                silent = CoordinatorResponse(None, REQUEST_TIMED_OUT, error.message)
                responses |= dict.fromkeys(filter(question.is_open, pending), silent)
            pending = [group_id for group_id in pending if question.is_open(group_id)]
            for group_id in pending:
                if responses[group_id].error_code in MOVED_COORDINATOR:
                    self._known.pop(group_id, None)
            if pending and not patience.wait():
                break
        return responses

    def send_once(self, group_id: str, request: Any, top_error: Callable[[Any], tuple[int, str | None]]) -> SendResult:
        """Send a group's change to its coordinator. `top_error` reads the error on the whole request in a response."""
        patience = Backoff(self._client.request_timeout_s)
        while True:
            result = self._send(group_id, request, top_error)
            if not result.may_send_again:
                return result
            self._known.pop(group_id, None)
            if not patience.wait():
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
        """What became of a change that was sent, by its response or what stands in place of one."""
        if not isinstance(reply, NoResponse):
            return SendResult(*top_error(reply), reply)
        reason = self._client.explain(reply)
        return SendResult(lost=reason.message) if reply.may_have_arrived else SendResult(unsent=reason)

    def _round(self, group_ids: Sequence[str], question: _Question) -> None:
        """A response for each group; a coordinator that went away or was silent is one that moved, and is not asked
        about its other groups."""
        question.responses.update(self._locate(group_ids))
        by_node: dict[int, list[str]] = defaultdict(list)
        for group_id in group_ids:
            if group_id in self._known:
                by_node[self._known[group_id]].append(group_id)
        left = {node: question.pace.turns(node, groups) for node, groups in by_node.items()}
        while left:
            sent = [(node, part) for node, turns in left.items() for part in turns[0]]
            left = {node: turns[1:] for node, turns in left.items() if turns[1:]}
            replies = self._client.send_all([(node, question.request_for(part)) for node, part in sent])
            results = [(node, part, reply) for (node, part), reply in zip(sent, replies, strict=True)]
            self._keep([(node, reply) for node, _, reply in results if not isinstance(reply, NoResponse)], question)
            missing: dict[int, list[tuple[Sequence[str], NoResponse]]] = defaultdict(list)
            for node, part, reply in results:
                if isinstance(reply, NoResponse):
                    rest = [group_id for turn in left.pop(node, ()) for later in turn for group_id in later]
                    error = CoordinatorResponse(node, COORDINATOR_NOT_AVAILABLE)
                    question.responses.update(dict.fromkeys((*part, *rest), error))
                    missing[node].append((part, reply))
            for node, found in missing.items():
                self._weigh(node, found, question)

    def _keep(self, answered: Sequence[tuple[int, Any]], question: _Question) -> None:
        """Keep what was answered. Time counts from here: many groups may take longer than a try."""
        for node, reply in answered:
            question.pace.keep_answer(node)
            for row in reply.groups:
                found = CoordinatorResponse(node, row.error_code, _message(row), question.read(row))
                question.responses[row.group_id] = found
                if row.error_code not in ASK_AGAIN:
                    question.patience.renew()

    def _weigh(self, node: int, missing: Sequence[tuple[Sequence[str], NoResponse]], question: _Question) -> None:
        """What requests without a response mean for their groups. Raises when they were some too many."""
        silent = [(part, reply) for part, reply in missing if not reply.may_try_again]
        if not silent:
            if question.patience.left_s <= 0:
                raise self._client.explain(missing[0][1])
            return
        reply = silent[0][1]
        alone = question.pace.keep_silence(node, [part for part, _ in silent])
        if question.pace.is_silent(node) or (alone and not question.tolerates_silence):
            raise self._client.explain(reply)
        if alone:
            reason = self._client.explain(reply).message
            question.responses.update(dict.fromkeys(alone, CoordinatorResponse(node, REQUEST_TIMED_OUT, reason)))
        question.patience.renew()

    def _locate(self, group_ids: Sequence[str]) -> dict[str, CoordinatorResponse]:
        """Learn the coordinators of `group_ids` that are not known yet; the responses are for those not found."""
        failed: dict[str, CoordinatorResponse] = {}
        unknown = [group_id for group_id in group_ids if group_id not in self._known]
        for part in parts(unknown, _LOCATED_AT_ONCE):
            failed |= dict.fromkeys(part, CoordinatorResponse(None, COORDINATOR_NOT_AVAILABLE))
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=part, min_version=4)
            for row in self._client.send(request, silences=1).coordinators:
                if row.error_code == NONE:
                    self._known[row.key] = self._client.learn_coordinator(row, row.key)
                    failed.pop(row.key, None)
                else:
                    failed[row.key] = CoordinatorResponse(None, row.error_code, row.error_message)
        return failed


def _message(row: Any) -> str | None:
    """The broker's words beside an error; OffsetFetch has none."""
    return getattr(row, "error_message", None)
