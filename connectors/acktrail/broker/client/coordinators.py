"""Requests that go to each group's coordinator, and follow it when it moves.

A question is asked again after anything that a new try can cure. A change is sent again only after the coordinator said
that it did nothing; after silence it is never sent again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafka.protocol.metadata import FindCoordinatorRequest

from acktrail.broker.client.backoff import Backoff
from acktrail.broker.client.broker_client import BrokerClient, NoResponse
from acktrail.broker.client.change_outcomes import SAFE_TO_SEND_AGAIN
from acktrail.broker.client.error_codes import COORDINATOR_LOADING, MOVED_COORDINATOR, NONE, REQUEST_TIMED_OUT
from acktrail.errors import RetryableError

__all__ = ["CoordinatorResponse", "Coordinators", "SendResult"]

_ASK_AGAIN: Final = MOVED_COORDINATOR | {COORDINATOR_LOADING}
_GROUPS_AT_ONCE: Final = 500
_TIMEOUTS: Final = 2
"""How many times the request timeout it keeps trying: as in Kafka's clients (``default.api.timeout.ms``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorResponse:
    """What the coordinator `node_id` said about a group; `body` is None when it could not be asked."""

    node_id: int | None
    error_code: int
    message: str | None
    body: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """What became of a change that was to be sent once.

    `reply` is the answer, with `error_code` and `message` of the whole request. Without a reply: an error code says why
    it was not sent; `lost` says why nobody can tell whether it arrived.
    """

    error_code: int
    message: str | None
    reply: Any
    lost: str | None = None


class Coordinators:
    """Finds the coordinators of groups, and asks them.

    While a coordinator is being elected, created or loaded (codes 14, 15, 16; on a fresh cluster until
    ``__consumer_offsets`` exists) it asks again until twice `client.request_timeout_s` have passed.
    It is for requests that read: one that got no answer in time is sent once more. A coordinator keeps silent for
    about half a minute when it looks for the state of a topic that is just being deleted (five tries of its persister,
    ``PersisterStateManager``), and answers at once when asked again.
    """

    def __init__(self, client: BrokerClient) -> None:
        self._client = client
        self._known: dict[str, int] = {}

    def query(
        self,
        group_ids: Iterable[str],
        request_for: Callable[[Sequence[str]], Any],
        *,
        tolerates_silence: bool = False,
    ) -> dict[str, CoordinatorResponse]:
        """One answer for each group. `request_for` makes the request for groups that share a coordinator; its answer
        has `groups` with `group_id`, `error_code` and `error_message`.

        `tolerates_silence`: a group whose coordinator does not answer in time has the error REQUEST_TIMED_OUT.

        Raises:
            Unreachable, RetryableError: a coordinator did not answer in time.
        """
        answers: dict[str, CoordinatorResponse] = {}
        pending = list(dict.fromkeys(group_ids))
        backoff = Backoff(_TIMEOUTS * self._client.request_timeout_s)
        while pending:
            try:
                answers |= self._round(pending, request_for, backoff)
            except RetryableError as error:
                if not tolerates_silence:
                    raise
                answers |= {group_id: _silent(error) for group_id in pending}
                break
            pending = [group_id for group_id in pending if answers[group_id].error_code in _ASK_AGAIN]
            if pending and not backoff.wait():
                break
        return answers

    def send_once(
        self, group_id: str, make_request: Callable[[], Any], whole_error: Callable[[Any], tuple[int, str | None]]
    ) -> SendResult:
        """Send a change to the group's coordinator. `whole_error` reads the error on the whole request in an answer.

        Raises:
            Unreachable, RetryableError: it could not be sent: nothing was changed.
            ConfigurationError: the broker does not serve it, or refused the login: nothing was changed.
        """
        backoff = Backoff(self._client.request_timeout_s)
        while True:
            told = self._try_once(group_id, make_request, whole_error, backoff)
            if told is not None and (told.error_code not in SAFE_TO_SEND_AGAIN or not backoff.wait()):
                return told
            self._known.pop(group_id, None)

    def _try_once(
        self,
        group_id: str,
        make_request: Callable[[], Any],
        whole_error: Callable[[Any], tuple[int, str | None]],
        backoff: Backoff,
    ) -> SendResult | None:
        """One try; None: it was not sent and there is time for another."""
        missing = self._locate([] if group_id in self._known else [group_id]).get(group_id)
        if missing is not None:
            return SendResult(error_code=missing.error_code, message=missing.message, reply=None)
        reply = self._client.send_once(make_request(), self._known[group_id])
        if not isinstance(reply, NoResponse):
            code, message = whole_error(reply)
            return SendResult(error_code=code, message=message, reply=reply)
        if reply.may_have_arrived:
            self._known.pop(group_id, None)
            return SendResult(error_code=NONE, message=None, reply=None, lost=self._client.explain(reply).message)
        if not backoff.wait():
            raise self._client.explain(reply)
        return None

    def _round(
        self, group_ids: Sequence[str], request_for: Callable[[Sequence[str]], Any], backoff: Backoff
    ) -> dict[str, CoordinatorResponse]:
        answers = self._locate([group_id for group_id in group_ids if group_id not in self._known])
        by_node: dict[int, list[str]] = defaultdict(list)
        for group_id in group_ids:
            if group_id in self._known:
                by_node[self._known[group_id]].append(group_id)
        parts = [(node, part) for node, groups in by_node.items() for part in _parts(groups)]
        replies = self._client.send_all([(node, request_for(part)) for node, part in parts])
        for (node, part), reply in zip(parts, replies, strict=True):
            answers |= self._read(node, part, reply, backoff)
        return answers

    def _locate(self, group_ids: Sequence[str]) -> dict[str, CoordinatorResponse]:
        """Learn the coordinators of `group_ids`; the answers are for those that could not be found."""
        failed: dict[str, CoordinatorResponse] = {}
        for part in _parts(group_ids):
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=part, min_version=4)
            for found in self._client.send(request).coordinators:
                if found.error_code == NONE:
                    self._known[found.key] = self._client.learn_coordinator(found, found.key)
                else:
                    failed[found.key] = CoordinatorResponse(
                        node_id=None, error_code=found.error_code, message=found.error_message, body=None
                    )
        return failed

    def _read(self, node: int, part: Sequence[str], reply: Any, backoff: Backoff) -> dict[str, CoordinatorResponse]:
        if isinstance(reply, NoResponse):
            return self._lost(node, part, reply, backoff)
        answers = {
            group.group_id: CoordinatorResponse(
                node_id=node, error_code=group.error_code, message=group.error_message, body=group
            )
            for group in reply.groups
        }
        for group_id, answer in answers.items():
            if answer.error_code in MOVED_COORDINATOR:
                self._known.pop(group_id, None)
        return answers

    def _lost(
        self, node: int, part: Sequence[str], lost: NoResponse, backoff: Backoff
    ) -> dict[str, CoordinatorResponse]:
        """The coordinator went away or kept silent: look for it again, as long as there is time."""
        if backoff.left_s <= 0:
            raise self._client.explain(lost)
        for group_id in part:
            self._known.pop(group_id, None)
        code = next(iter(sorted(MOVED_COORDINATOR)))
        return {
            group_id: CoordinatorResponse(node_id=node, error_code=code, message=None, body=None) for group_id in part
        }


def _silent(error: RetryableError) -> CoordinatorResponse:
    return CoordinatorResponse(node_id=None, error_code=REQUEST_TIMED_OUT, message=error.message, body=None)


def _parts(group_ids: Sequence[str]) -> list[Sequence[str]]:
    return [group_ids[at : at + _GROUPS_AT_ONCE] for at in range(0, len(group_ids), _GROUPS_AT_ONCE)]
