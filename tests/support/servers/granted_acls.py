"""ACLs of one user, granted and revoked for a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from servers.workload import Workload, until

from acktrail.config import KafkaConfig
from acktrail.kafka.acl_probes import granted
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.model.acls import Acl

__all__ = ["grant", "missing", "without"]


def grant(workload: Workload, user: str, acls: Sequence[Acl]) -> None:
    for acl in acls:
        workload.allow(user, acl.operation, acl.kind.upper(), acl.name)


@contextmanager
def without(workload: Workload, user: str, config: KafkaConfig, acl: Acl, others: Sequence[Acl]) -> Iterator[None]:
    """A time in which `acl` is revoked, and the broker knows it."""
    workload.revoke(user, acl.operation, acl.kind.upper(), acl.name)
    with ShareGroupAdmin(config) as admin:
        until(lambda: missing(admin, others) == {acl}, what=f"that {acl} alone is missing")
        yield
        grant(workload, user, [acl])
        until(lambda: not missing(admin, others), what=f"{acl} again")


def missing(admin: ShareGroupAdmin, acls: Sequence[Acl]) -> set[Acl]:
    return {acl for acl, is_there in granted(admin, acls).items() if not is_there}
