"""What ``acktrail doctor`` looks at: Java, the cluster and its rights, the tables; with ``--acls`` the fewest ACLs that
are needed, as commands.

Listings leave out what this principal may not DESCRIBE. So groups and topics that exported state records name are
asked for by name as well.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acktrail.config import KafkaConfig, TablesConfig, java_home
from acktrail.errors import AcktrailError, ConfigurationError, NoTables
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.client_settings import ClientSettings
from acktrail.kafka.client.error_codes import GROUP_ID_NOT_FOUND, NONE
from acktrail.kafka.dead_letter_topics import dead_letter_topics, dropped_by_group
from acktrail.kafka.granted_acls import granted
from acktrail.kafka.log_reader import StateTopic, records_at
from acktrail.model.acls import ALL, Acl, command, needed
from acktrail.tables.cluster_check import ensure_same_cluster
from acktrail.tables.commit_order import runs_ahead
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_root import EMPTY_FOLDER, NO_FOLDER
from acktrail.tables.records.known_names import KnownNames, known_names
from acktrail.tables.records.record_files import RECORDS
from acktrail.times import utc_text
from acktrail.view.audit_integrity import checked_audit

_NOTHING_KNOWN: Final = "nothing exported yet: what Kafka leaves out of its listings is not known"
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


def _tried(what: str, attempt: Callable[[], str | None], note: str = "") -> DoctorCheck:
    """``ok`` with what `attempt` gives, if anything, and `note`; ``missing`` with the error that it raises."""
    try:
        found = attempt()
    except AcktrailError as error:
        return missing(what, error)
    return DoctorCheck(what=what, status="ok", detail=f"{found} ({note})" if found and note else found or note)


def java_check() -> DoctorCheck:
    """Whether there is a Java."""
    from acktrail.java import find_java

    return _tried("Java", lambda: str(find_java(java_home())), "for PySpark and the embedded broker")


def cluster_checks(admin: ShareGroupAdmin, target: TablesConfig | None) -> Iterator[DoctorCheck]:
    """The cluster, its release, each right. What was exported to `target` names groups and topics to ask for."""
    known = None if target is None else _known(target)
    yield DoctorCheck(what="cluster", status="ok", detail=f"{admin.cluster_id}, {len(admin.broker_ids())} broker(s)")
    yield _release(admin)
    listed = [group.group_id for group in admin.list_groups()]
    named = sorted({*listed, *(known.groups if known else ())})
    yield _tried("DESCRIBE on groups", lambda: _groups(admin, named), _NOTHING_KNOWN if known is None else "")
    what = "DESCRIBE on topics"
    if known is None:
        yield DoctorCheck(what=what, status="note", detail=_NOTHING_KNOWN)
    else:
        yield _tried(what, lambda: _topics(admin, known))
    yield _tried("DESCRIBE_CONFIGS on groups", lambda: _configs(admin, listed))
    yield _tried("dead-letter topics", lambda: _dead_letters(admin))
    yield _tried("READ on __share_group_state", lambda: _state_topic(admin))


def _known(target: TablesConfig) -> KnownNames | None:
    """Names in the tables; None where they cannot be read, which is a check itself, or without an export."""
    try:
        tables = Tables(target)
        return known_names(tables) if tables.exists(RECORDS) else None
    except AcktrailError:
        return None


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


def _absent_tables(tables: Tables) -> DoctorCheck | None:
    """The check where there are no tables: an export may make them in a new folder, and nowhere else."""
    try:
        why = tables.why_absent()
    except AcktrailError as error:
        return missing("tables", error)
    if why is None:
        return None
    if why in (NO_FOLDER, EMPTY_FOLDER):
        return DoctorCheck(what="tables", status="ok", detail=f"{tables.root}: {why}; an export makes the tables")
    hint = "correct --tables or ACKTRAIL_TABLES"
    return DoctorCheck(what="tables", status="missing", detail=f"{tables.root}: {why}", hint=hint)


def table_checks(config: TablesConfig, cluster_id: str | None) -> Iterator[DoctorCheck]:
    """Each table that cannot be read; then their cluster, runs from the future, and whether they can be written."""
    tables = Tables(config)
    absent = _absent_tables(tables)
    if absent is not None:
        yield absent
        yield _tried("tables, writing", tables.probe_write, f"{tables.root} can be written")
        return
    there, damaged = [], []
    for name in TABLES:
        try:
            if tables.exists(name):
                there.append(name)
        except AcktrailError as error:
            damaged.append(missing(f"table {name}", error))
    yield from damaged
    if not damaged:
        found = f"{len(there)} tables" if RECORDS in there else "nothing exported yet"
        yield DoctorCheck(what="tables", status="ok", detail=f"{tables.root}: {found}")
    if cluster_id is not None and there:
        yield _tried("tables' cluster", lambda: ensure_same_cluster(tables, cluster_id, there), f"cluster {cluster_id}")
    if ahead := runs_ahead(tables, dt.datetime.now(dt.UTC)) if not damaged else None:
        text = ", ".join(f"run {run_id} at {utc_text(at)}" for run_id, at in ahead.items())
        hint = "compare the clock of this machine, and of those that export, with the right time"
        yield DoctorCheck(what="clocks", status="missing", detail=f"in the future: {text}", hint=hint)
    yield _tried("tables, writing", tables.probe_write, f"{tables.root} can be written")


def audit_checks(config: TablesConfig, anchor: Path | None) -> Iterator[DoctorCheck]:
    """Whether the audit of changes is consistent, and what it was compared with; nothing where there is no audit, and
    no anchor says that there was one."""
    is_kept = anchor is not None and anchor.exists()
    try:
        found = checked_audit(config, anchor=anchor, moves_on=False)
    except NoTables as error:
        if is_kept:
            yield missing("audit", error)
        return
    except AcktrailError as error:
        yield missing("audit", error)
        return
    if is_kept:
        yield DoctorCheck(what="audit", status="ok", detail=found.words)
    elif found.rows:
        where = "FILE" if anchor is None else str(anchor)
        hint = f"keep one where those who can write the tables cannot: acktrail change audit --anchor {where}"
        yield DoctorCheck(what="audit", status="note", detail=found.words, hint=hint)
