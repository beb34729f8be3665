"""Whether this principal has the ACLs that it needs. Nothing is changed to find that out."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.error_codes import GROUP_AUTHORIZATION_FAILED, NONE, TOPIC_AUTHORIZATION_FAILED
from acktrail.model.acls import ALL, Acl


def granted(admin: ShareGroupAdmin, acls: Iterable[Acl]) -> dict[Acl, bool | None]:
    """Whether this principal has each of them; None: not known, since nothing of this name is there.

    The right on all groups or topics shows in the answer about a name that nothing has: a refusal, or that it is not
    there. READ on all of them is compared with every group or topic that is there as well."""
    return {acl: _PROBES[acl.operation, acl.kind](admin, acl.name) for acl in acls}


def missing_rights(admin: ShareGroupAdmin, acls: Iterable[Acl]) -> str:
    """A sentence about those of `acls` that this principal lacks, for a connector's status; empty: none is known to be
    missing."""
    missing = [str(acl) for acl, is_there in granted(admin, acls).items() if is_there is False]
    return f"not authorized: missing {', '.join(missing)}; what only they show is left out" if missing else ""


def _describes_group(admin: ShareGroupAdmin, name: str) -> bool | None:
    (found,) = admin.describe_groups([_name(name)])
    return found.error_code != GROUP_AUTHORIZATION_FAILED


def _describes_configs(admin: ShareGroupAdmin, name: str) -> bool | None:
    (found,) = admin.group_configs([_name(name)])
    return None if found.error_code not in (NONE, GROUP_AUTHORIZATION_FAILED) else found.error_code == NONE


def _describes_topic(admin: ShareGroupAdmin, name: str) -> bool | None:
    (found,) = admin.topics([_name(name)])
    return found.error_code != TOPIC_AUTHORIZATION_FAILED


def _reads_group(admin: ShareGroupAdmin, name: str) -> bool | None:
    if name == ALL and not _describes_group(admin, ALL):
        return False
    names = [group.group_id for group in admin.list_groups()] if name == ALL else [name]
    return _all_have("READ", admin.rights(names).groups)


def _has_on_topic(operation: str, admin: ShareGroupAdmin, name: str) -> bool | None:
    if name == ALL and not _describes_topic(admin, ALL):
        return False
    names = [topic.name for topic in admin.topics() if not topic.is_internal] if name == ALL else [name]
    return _all_have(operation, admin.rights((), names).topics)


def _all_have(operation: str, rights: Mapping[str, frozenset[str] | None]) -> bool | None:
    """Whether none of them lacks `operation`; None where nothing is known of any."""
    known = [operations for operations in rights.values() if operations is not None]
    return all(operation in operations for operations in known) if known else None


def _not_known(_: ShareGroupAdmin, __: str) -> None:
    """Only a transaction shows whether its id may be used."""


def _name(name: str) -> str:
    return f"acktrail-doctor-{secrets.token_hex(8)}" if name == ALL else name


_PROBES: Final[Mapping[tuple[str, str], Callable[[ShareGroupAdmin, str], bool | None]]] = {
    ("DESCRIBE", "group"): _describes_group,
    ("DESCRIBE_CONFIGS", "group"): _describes_configs,
    ("READ", "group"): _reads_group,
    ("DESCRIBE", "topic"): _describes_topic,
    ("READ", "topic"): partial(_has_on_topic, "READ"),
    ("WRITE", "topic"): partial(_has_on_topic, "WRITE"),
    ("DESCRIBE_CONFIGS", "topic"): partial(_has_on_topic, "DESCRIBE_CONFIGS"),
    ("ALTER", "topic"): partial(_has_on_topic, "ALTER"),
    ("WRITE", "transactional-id"): _not_known,
}
