"""How transactions ended, asked of their coordinators, for transactional ids that are used for one transaction only.

The first process that ends an open transaction decides how it ended: the coordinator takes the first EndTxn, and
refuses a later one with INVALID_TXN_STATE. So the answer after `Transactions.end_open` is final, also while the writer
still lives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from kafka.protocol.admin.transactions import DescribeTransactionsRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer.transaction import EndTxnRequest

from acktrail.backoff import Backoff
from acktrail.errors import AcktrailError, NotAuthorized, RetryableError
from acktrail.kafka.client.broker_client import BrokerClient, NoResponse
from acktrail.kafka.client.error_codes import ASK_AGAIN, MOVED_COORDINATOR, NONE, error_for

_TRANSACTION: Final = 1
"""Kafka: ``CoordinatorType.TRANSACTION``."""
_AT_ONCE: Final = 200
_NEWEST_END: Final = 4
"""Version 5 would bump the epoch, and abort after a commit without a word (KIP-890)."""
_INVALID_TXN_STATE: Final = 48
_INVALID_PRODUCER_ID: Final = 49
_CONCURRENT: Final = 51
_NOT_AUTHORIZED: Final = 53
_NOT_FOUND: Final = 105
_NO_PRODUCER: Final = (0, 0)


class TransactionEnding(StrEnum):
    """How the only transaction of an id ended. NONE: it was never begun. OPEN: it has not ended."""

    NONE = "none"
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    ENDING = "ending"
    """It is decided how, and the markers are still being written."""


_ENDINGS: Final = {
    "Empty": TransactionEnding.NONE,
    "Ongoing": TransactionEnding.OPEN,
    "PrepareCommit": TransactionEnding.ENDING,
    "PrepareAbort": TransactionEnding.ENDING,
    "PrepareEpochFence": TransactionEnding.ENDING,
    "CompleteCommit": TransactionEnding.COMMITTED,
    "CompleteAbort": TransactionEnding.ABORTED,
    "Dead": TransactionEnding.NONE,
}


class Transaction(NamedTuple):
    """A transaction as its coordinator describes it."""

    ending: TransactionEnding
    producer_id: int = -1
    producer_epoch: int = -1


class Transactions:
    """Asks for transactions and ends them; WRITE on their ids is needed. Raises NotAuthorized, Unreachable,
    RetryableError (a coordinator does not answer in time)."""

    def __init__(self, client: BrokerClient) -> None:
        self._client = client

    def describe(self, ids: Iterable[str]) -> dict[str, Transaction]:
        """Return the transaction of each id. Its coordinator forgets one some time after it ended
        (``transactional.id.expiration.ms``, by default a week): that is as if it was never begun."""
        found: dict[str, Transaction] = {}
        backoff, pending = Backoff(2 * self._client.request_timeout_s), [*dict.fromkeys(ids)]
        while pending:
            for begin in range(0, len(pending), _AT_ONCE):
                found |= self._described(pending[begin : begin + _AT_ONCE])
            pending = [each for each in pending if each not in found]
            if pending and not backoff.wait():
                raise RetryableError(f"the coordinator of the transactional id {pending[0]} does not answer")
        return found

    def end_open(self, ids: Iterable[str]) -> dict[str, Transaction]:
        """Abort those that are open; return how each ended, also one that was committed meanwhile."""
        wanted, backoff = [*dict.fromkeys(ids)], Backoff(2 * self._client.request_timeout_s)
        while True:
            found = self.describe(wanted)
            left = [
                each for each, one in found.items() if one.ending in (TransactionEnding.OPEN, TransactionEnding.ENDING)
            ]
            if not left:
                return found
            for each in left:
                if found[each].ending is TransactionEnding.OPEN:
                    self._abort(each, found[each])
            if not backoff.wait():
                raise RetryableError(f"the transaction of {left[0]} does not end", hint="try again")

    def check_right(self, transactional_id: str) -> None:
        """Raise NotAuthorized unless this principal may write with an id. Nothing is changed: no producer has it."""
        backoff = Backoff(2 * self._client.request_timeout_s)  # the first question makes the topic of transactions
        while True:
            nodes = self._coordinators([transactional_id])
            code = self._end(transactional_id, nodes[transactional_id], *_NO_PRODUCER) if nodes else NONE
            if nodes and code in (_INVALID_PRODUCER_ID, _INVALID_TXN_STATE):
                return
            if nodes and code not in ASK_AGAIN | {_CONCURRENT, None}:
                raise _error(code or NONE, transactional_id)
            if not backoff.wait():
                raise RetryableError(f"the coordinator of the transactional id {transactional_id} does not answer")

    def _described(self, ids: Sequence[str]) -> Mapping[str, Transaction]:
        by_node: dict[int, list[str]] = defaultdict(list)
        for each, node in self._coordinators(ids).items():
            by_node[node].append(each)
        asked = [(node, DescribeTransactionsRequest(transactional_ids=own)) for node, own in by_node.items()]
        replies = [reply for reply in self._client.send_all(asked) if not isinstance(reply, NoResponse)]
        rows = (row for reply in replies for row in reply.transaction_states)
        return dict(_transactions(rows))

    def _coordinators(self, ids: Sequence[str]) -> dict[str, int]:
        """The coordinators that are known now."""
        request = FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=list(ids), min_version=4)
        found = {}
        for row in self._client.send(request, timeout_retries=1).coordinators:
            if row.error_code == NONE:
                found[row.key] = self._client.learn_coordinator(row, row.key)
            elif row.error_code not in ASK_AGAIN:
                raise _error(row.error_code, row.key)
        return found

    def _abort(self, transactional_id: str, one: Transaction) -> None:
        for node in self._coordinators([transactional_id]).values():
            code = self._end(transactional_id, node, one.producer_id, one.producer_epoch)
            if code == _NOT_AUTHORIZED:
                raise _error(code, transactional_id)

    def _end(self, transactional_id: str, node: int, producer_id: int, epoch: int) -> int | None:
        """Ask for an abort; return the error code, None without an answer."""
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=False,
            max_version=_NEWEST_END,
        )
        reply = self._client.send_once(request, node)
        return None if isinstance(reply, NoResponse) else int(reply.error_code)


def _transactions(rows: Iterable[Any]) -> Iterator[tuple[str, Transaction]]:
    for row in rows:
        if row.error_code == _NOT_FOUND:
            yield row.transactional_id, Transaction(TransactionEnding.NONE)
        elif row.error_code == NONE:
            ending = _ENDINGS.get(row.transaction_state, TransactionEnding.ENDING)
            yield row.transactional_id, Transaction(ending, row.producer_id, row.producer_epoch)
        elif row.error_code not in MOVED_COORDINATOR | ASK_AGAIN:
            raise _error(row.error_code, row.transactional_id)


def _error(code: int, transactional_id: str) -> AcktrailError:
    if code == _NOT_AUTHORIZED:
        return NotAuthorized("WRITE", f"transactional id {transactional_id}")
    return error_for(code, None, operation="WRITE", kind="transactional id", name=transactional_id)
