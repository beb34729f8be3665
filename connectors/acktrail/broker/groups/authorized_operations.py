"""What a principal may do, as the cluster says it beside its descriptions (KIP-430)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from acktrail.broker.client.broker_client import BrokerClient
from acktrail.broker.client.coordinators import Coordinators
from acktrail.broker.client.error_codes import GROUP_AUTHORIZATION_FAILED, NONE, TOPIC_AUTHORIZATION_FAILED
from acktrail.broker.descriptions import Rights
from acktrail.broker.groups.messages import ShareGroupDescribeRequest

__all__ = ["read_rights"]

_OPERATIONS: Final = {
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
}
_NOT_SAID: Final = -(1 << 31)
_NO_RIGHTS: Final[frozenset[str]] = frozenset()


def read_rights(
    client: BrokerClient, coordinators: Coordinators, group_ids: Iterable[str], topics: Iterable[str]
) -> Rights:
    """The rights on these groups and topics. Nothing is tried: the answers to DESCRIBE carry them.

    Raises:
        Unreachable, RetryableError: a broker did not answer.
    """
    answers = coordinators.query(tuple(dict.fromkeys(group_ids)), _request)
    groups = {
        group_id: _NO_RIGHTS
        if answer.error_code == GROUP_AUTHORIZATION_FAILED
        else _named(answer.body.authorized_operations if answer.error_code == NONE else _NOT_SAID)
        for group_id, answer in answers.items()
    }
    names = tuple(dict.fromkeys(topics))
    rows = client.metadata(names, with_rights=True).topics if names else ()
    return Rights(groups=groups, topics={row.name: _topic_rights(row) for row in rows})


def _request(group_ids: Sequence[str]) -> Any:
    return ShareGroupDescribeRequest(group_ids=list(group_ids), include_authorized_operations=True, min_version=1)


def _topic_rights(row: Any) -> frozenset[str] | None:
    if row.error_code == TOPIC_AUTHORIZATION_FAILED:
        return _NO_RIGHTS
    if row.error_code != NONE:
        return None
    return _named(row.authorized_operations)


def _named(operations: Any) -> frozenset[str] | None:
    """Operations by name, from the bits of an integer or the numbers that kafka-python makes of them."""
    if operations is None or operations == _NOT_SAID:
        return None
    bits = {number for number in range(32) if operations >> number & 1} if isinstance(operations, int) else operations
    return frozenset(_OPERATIONS[bit] for bit in bits if bit in _OPERATIONS)
