"""Which ACLs the principal of a client has, found out by questions that change nothing."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.error_codes import GROUP_AUTHORIZATION_FAILED, NONE, TOPIC_AUTHORIZATION_FAILED
from acktrail.model.acls import ALL, Acl


def granted(admin: ShareGroupAdmin, acls: Iterable[Acl]) -> dict[Acl, bool | None]:
    """Whether this principal has each of them; None: not known, since nothing of this name is there.

    The right on all groups or topics shows in the answer about a name that nothing has: a refusal, or that it is not
    there. READ on all of them is compared with every group or topic that is there as well."""
    return {acl: _is_granted(admin, acl) for acl in acls}


def missing_rights(admin: ShareGroupAdmin, acls: Iterable[Acl]) -> str:
    """A sentence about those of `acls` that this principal lacks, for a connector's status; empty: none is known to be
    missing."""
    missing = [str(acl) for acl, is_there in granted(admin, acls).items() if is_there is False]
    return f"not authorized: missing {', '.join(missing)}; what only they show is left out" if missing else ""


def _is_granted(admin: ShareGroupAdmin, acl: Acl) -> bool | None:
    if acl.kind == "transactional-id":
        return None  # only a transaction shows whether its id may be used
    is_group, is_all = acl.kind == "group", acl.name == ALL
    if acl.operation == "DESCRIBE" or (acl.operation == "DESCRIBE_CONFIGS" and is_group):
        return _is_shown(admin, acl, f"acktrail-doctor-{secrets.token_hex(8)}" if is_all else acl.name)
    if is_all and not _is_granted(admin, Acl("DESCRIBE", acl.kind, ALL)):
        return False
    if is_group:
        names = [group.group_id for group in admin.list_groups()] if is_all else [acl.name]
        rights = admin.rights(names).groups
    else:
        names = [topic.name for topic in admin.topics() if not topic.is_internal] if is_all else [acl.name]
        rights = admin.rights((), names).topics
    known = [operations for operations in rights.values() if operations is not None]
    return all(acl.operation in operations for operations in known) if known else None


def _is_shown(admin: ShareGroupAdmin, acl: Acl, name: str) -> bool | None:
    """Whether a question about `name` is answered, also by that it is not there."""
    if acl.kind == "topic":
        return admin.topics([name])[0].error_code != TOPIC_AUTHORIZATION_FAILED
    if acl.operation == "DESCRIBE":
        return admin.describe_groups([name])[0].error_code != GROUP_AUTHORIZATION_FAILED
    code = admin.group_configs([name])[0].error_code
    return code == NONE if code in (NONE, GROUP_AUTHORIZATION_FAILED) else None
