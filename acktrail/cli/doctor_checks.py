"""What ``acktrail doctor`` checks without tables: Java, the cluster and its rights; with ``--acls`` the fewest ACLs
that are needed, as commands. The extra `kafka` is enough. Tables are checked by `acktrail.cli.table_checks`.

Listings leave out what this principal may not DESCRIBE. So groups and topics that exported state records name are
asked for by name as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from acktrail.config import KafkaConfig, TablesConfig, java_home
from acktrail.errors import AcktrailError, ConfigurationError
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.client_settings import ClientSettings
from acktrail.kafka.client.error_codes import GROUP_ID_NOT_FOUND, NONE
from acktrail.kafka.dead_letter_topics import dead_letter_topics, dropped_by_group
from acktrail.kafka.granted_acls import granted
from acktrail.kafka.log_reader import StateTopic, records_at
from acktrail.model.acls import ALL, Acl, command, needed
from acktrail.secrets import without_user_info

if TYPE_CHECKING:
    from acktrail.tables.records.known_names import KnownNames

_NOTHING_KNOWN: Final = "without exported records it is not known what Kafka leaves out of its listings"
_PLACEHOLDER: Final = "User:PRINCIPAL"
_STATUS: Final = {True: "ok", False: "missing", None: "note"}
_NOT_KNOWN: Final = "not known: there is nothing of this name, or nothing that may be seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCheck:
    """`status` is ok, note (works, but know this) or missing (`hint` says what to do, `command` grants an ACL)."""

    what: str
    status: str
    detail: str
    hint: str = ""
    command: str = ""


def missing(what: str, error: AcktrailError) -> DoctorCheck:
    """What `error` says is missing."""
    return DoctorCheck(what=what, status="missing", detail=error.message, hint=error.hint)


def tried(what: str, attempt: Callable[[], str | None], note: str = "") -> DoctorCheck:
    """``ok`` with what `attempt` gives, if anything, and `note`; ``missing`` with the error that it raises."""
    try:
        found = attempt()
    except AcktrailError as error:
        return missing(what, error)
    return DoctorCheck(what=what, status="ok", detail=f"{found} ({note})" if found and note else found or note)


def not_installed(package: str, target: TablesConfig | None) -> DoctorCheck:
    """The check in place of those of tables, whose `package` is not installed: missing where tables are named."""
    from acktrail.package_data import install_hint

    what = "none are named" if target is None else f"{without_user_info(target.uri)} is not checked"
    return DoctorCheck(
        what="tables",
        status="note" if target is None else "missing",
        detail=f"{what}: the package {package} of the extra tables is not installed",
        hint=install_hint("tables"),
    )


def java_check() -> DoctorCheck:
    """Whether there is a Java."""
    from acktrail.java import find_java

    return tried("Java", lambda: str(find_java(java_home())), "for PySpark and the embedded broker")


def cluster_checks(admin: ShareGroupAdmin, known: KnownNames | None) -> Iterator[DoctorCheck]:
    """The cluster, its release, each right. `known`: groups and topics to ask for besides; None: nothing was exported,
    or tables cannot be read."""
    yield DoctorCheck(what="cluster", status="ok", detail=f"{admin.cluster_id}, {len(admin.broker_ids())} broker(s)")
    yield _release(admin)
    listed = [group.group_id for group in admin.list_groups()]
    named = sorted({*listed, *(known.groups if known else ())})
    yield tried("DESCRIBE on groups", lambda: _groups(admin, named), _NOTHING_KNOWN if known is None else "")
    what = "DESCRIBE on topics"
    if known is None:
        yield DoctorCheck(what=what, status="note", detail=_NOTHING_KNOWN)
    else:
        yield tried(what, lambda: _topics(admin, known))
    yield tried("DESCRIBE_CONFIGS on groups", lambda: _configs(admin, listed))
    yield tried("dead-letter topics", lambda: _dead_letters(admin))
    yield tried("READ on __share_group_state", lambda: _state_topic(admin))


def _release(admin: ShareGroupAdmin) -> DoctorCheck:
    capabilities = admin.capabilities()
    if not capabilities.describes_share_groups:
        hint = "share groups need the feature share.version, which Kafka 4.2 and later begin with"
        return DoctorCheck(what="release", status="missing", detail="does not describe share groups", hint=hint)
    if not capabilities.reports_lag:
        hint = "Kafka reports lag from 4.2 on (KIP-1226); until then it stays unknown"
        return DoctorCheck(what="release", status="note", detail=f"Kafka {capabilities.release}, no lag", hint=hint)
    return DoctorCheck(what="release", status="ok", detail=f"Kafka {capabilities.release}")


def _groups(admin: ShareGroupAdmin, names: Sequence[str]) -> str:
    """DESCRIBE on every group that is listed, or named by an exported record."""
    described = [g for g in admin.describe_groups(names) if g.error_code != GROUP_ID_NOT_FOUND]
    refused = {g.group_id: g.error for g in described if g.error_code != NONE}
    there = [g.group_id for g in described if g.group_id not in refused]
    refused |= {g.group_id: g.error for g in admin.describe_group_offsets(there) if g.error_code != NONE}
    _ensure_none(refused, "grant DESCRIBE on the group and on its topics; until then it is not_authorized")
    return f"{len(described)} share group(s) described"


def _topics(admin: ShareGroupAdmin, known: KnownNames) -> str:
    """DESCRIBE on the topics that exported records name."""
    visible = {topic.topic_id for topic in admin.topics()}
    hidden = sorted(admin.hidden_topics(known.topic_ids - visible))
    if hidden:
        first = known.topics.get(hidden[0]) or f"the one with id {hidden[0]}"
        raise ConfigurationError(
            f"{len(hidden)} topic(s) of the state records are hidden from this principal, first: {first}",
            hint="grant DESCRIBE on all topics of the groups; without it, Kafka's answers leave topics out without "
            "an error",
        )
    return f"{len(visible & known.topic_ids)} topic(s) of the state records are visible"


def _configs(admin: ShareGroupAdmin, names: Sequence[str]) -> str:
    refused = {each.group_id: each.error for each in admin.group_configs(names) if each.error_code != NONE}
    _ensure_none(refused, "grant DESCRIBE_CONFIGS on the groups; until then their configuration is unknown")
    return f"of {len(names)} group(s)"


def _dead_letters(admin: ShareGroupAdmin) -> str:
    """Whether brokers drop what groups give up (Kafka 4.4)."""
    named = dead_letter_topics(admin)
    dropped = dropped_by_group(admin, named)
    if dropped:
        group_id, why = next(iter(dropped.items()))
        raise ConfigurationError(
            f"{len(dropped)} group(s), first {group_id!r}: {why}",
            hint="use a topic with that prefix for the group, or change the prefix on every broker",
        )
    return f"{len(named)} group(s) name one" if named else "no group names one"


def _ensure_none(refused: dict[str, str | None], hint: str) -> None:
    if refused:
        group_id, error = min(refused.items())
        raise ConfigurationError(f"{len(refused)} group(s) refused, first {group_id!r}: {error}", hint=hint)


def _state_topic(admin: ShareGroupAdmin) -> str:
    """READ on the state topic: one record is read, where there is one."""
    topic = StateTopic(admin)
    if not topic.is_present:
        return "not there yet: no share consumer ever came to this cluster"
    logs = topic.log_offsets()
    held = [number for number, log in logs.items() if (log.log_start_offset or 0) < (log.high_watermark or 0)]
    if held:
        with suppress(ModuleNotFoundError):  # it came, compressed, and what unpacks is in the extra `tables`
            records_at(topic, {held[0]: logs[held[0]].log_start_offset or 0})
    return f"{topic.partition_count} partitions, readable"


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
    named = tuple(topics) or _topics_of_groups(admin, groups)
    is_secured = settings.security_protocol != "PLAINTEXT"
    for purpose in purposes:
        for acl, is_there in granted(admin, needed(purpose, groups, named)).items():
            yield DoctorCheck(
                what=f"ACL for {purpose}: {acl}",
                status=_STATUS[is_there],
                detail=_NOT_KNOWN if is_there is None else f"as {principal or 'the principal of this client'}",
                hint=_hint(acl, principal, groups),
                command=command(acl, principal or _PLACEHOLDER, kafka.bootstrap_servers, is_secured=is_secured),
            )


def _hint(acl: Acl, principal: str | None, groups: Sequence[str]) -> str:
    if principal is None:
        return f"put the broker's name for this client in place of {_PLACEHOLDER}"
    is_wide = groups and acl.kind == "topic" and acl.name == ALL
    return "the groups' topics are not known, or may not be seen: name them with --topic" if is_wide else ""


def _topics_of_groups(admin: ShareGroupAdmin, groups: Sequence[str]) -> tuple[str, ...]:
    answers = admin.describe_group_offsets(groups) if groups else ()
    return tuple(sorted({row.topic for answer in answers if answer.error_code == NONE for row in answer.offsets}))
