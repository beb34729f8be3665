"""What ``acktrail doctor`` says about ACLs: the fewest that are needed, as commands, and which are missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from acktrail.cli.doctor_checks import DoctorCheck
from acktrail.config import KafkaConfig
from acktrail.kafka.acl_probes import granted
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.client_settings import ClientSettings
from acktrail.kafka.client.error_codes import NONE
from acktrail.model.acls import ALL, Acl, command, needed

_PLACEHOLDER: Final = "User:PRINCIPAL"
_STATUS: Final = {True: "ok", False: "missing", None: "note"}
_UNKNOWN: Final = "not known: there is nothing of this name, or nothing that may be seen"


def acl_checks(
    admin: ShareGroupAdmin,
    kafka: KafkaConfig,
    purposes: Iterable[str],
    groups: Sequence[str] = (),
    topics: Sequence[str] = (),
) -> Iterator[DoctorCheck]:
    """For each ACL whether it is there, and the command that grants it. Without `topics` those that `groups` have
    state of, where they may be seen."""
    settings = ClientSettings.from_config(kafka)
    principal = settings.principal()
    named = tuple(topics) or _topics_of(admin, groups)
    is_secured = settings.security_protocol != "PLAINTEXT"
    for purpose in purposes:
        for acl, is_there in granted(admin, needed(purpose, groups, named)).items():
            yield DoctorCheck(
                what=f"ACL for {purpose}: {acl}",
                status=_STATUS[is_there],
                detail=_UNKNOWN if is_there is None else f"as {principal or 'the principal of this client'}",
                hint=_hint(acl, principal, groups),
                command=command(acl, principal or _PLACEHOLDER, kafka.bootstrap_servers, is_secured=is_secured),
            )


def _hint(acl: Acl, principal: str | None, groups: Sequence[str]) -> str:
    if principal is None:
        return f"put the broker's name for this client in place of {_PLACEHOLDER}"
    is_wide = groups and acl.kind == "topic" and acl.name == ALL
    return "the groups' topics are not known, or may not be seen: name them with --topic" if is_wide else ""


def _topics_of(admin: ShareGroupAdmin, groups: Sequence[str]) -> tuple[str, ...]:
    answers = admin.describe_group_offsets(groups) if groups else ()
    return tuple(sorted({row.topic for answer in answers if answer.error_code == NONE for row in answer.offsets}))
