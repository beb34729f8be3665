"""``acktrail doctor`` looks at the cluster: its release, and the rights that this principal has or lacks.

Listings leave out what this principal may not DESCRIBE. So groups and topics that exported state records name are
asked for by name as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.client.error_codes import GROUP_ID_NOT_FOUND, NONE
from acktrail.cli.doctor_checks.checks import DoctorCheck, tried
from acktrail.config import KafkaConfig
from acktrail.errors import ConfigurationError
from acktrail.tables.known_names import KnownNames

_TIMEOUT_S: Final = 5.0
_NOTHING_KNOWN: Final = "nothing exported yet: what Kafka leaves out of its listings is not known"


def cluster_checks(admin: ShareGroupAdmin, kafka: KafkaConfig, known: KnownNames | None) -> Iterator[DoctorCheck]:
    """The cluster, its release, each right. `known` None: nothing that was exported can be read."""
    yield DoctorCheck(what="cluster", status="ok", detail=f"{admin.cluster_id}, {len(admin.brokers())} broker(s)")
    yield _release(admin)
    listed = [group.group_id for group in admin.list_groups()]
    named = sorted({*listed, *(known.groups if known else ())})
    yield _groups(admin, named, _NOTHING_KNOWN if known is None else "")
    yield _topics(admin, known)
    yield _configs(admin, listed)
    yield _state_topic(kafka)


def _release(admin: ShareGroupAdmin) -> DoctorCheck:
    capabilities = admin.capabilities()
    if not capabilities.describes_share_groups:
        hint = "share groups need Kafka 4.1 with share.version=1, or 4.2 and later"
        return DoctorCheck(what="release", status="missing", detail="does not describe share groups", hint=hint)
    if not capabilities.reports_lag:
        hint = "Kafka reports lag from 4.2 on (KIP-1226); until then it stays unknown"
        return DoctorCheck(what="release", status="note", detail=f"Kafka {capabilities.release}, no lag", hint=hint)
    return DoctorCheck(what="release", status="ok", detail=f"Kafka {capabilities.release}")


def _groups(admin: ShareGroupAdmin, names: Sequence[str], note: str) -> DoctorCheck:
    """DESCRIBE on groups: every one that is listed, or named by an exported record."""

    def ask() -> str:
        described = [g for g in admin.describe_groups(names) if g.error_code != GROUP_ID_NOT_FOUND]
        refused = {g.group_id: g.error for g in described if g.error_code != NONE}
        there = [g.group_id for g in described if g.group_id not in refused]
        refused |= {g.group_id: g.error for g in admin.describe_group_offsets(there) if g.error_code != NONE}
        if refused:
            raise _refused(refused, "grant DESCRIBE on the group and on its topics; until then it is not_authorized")
        return f"{len(described)} share group(s) described"

    return tried("DESCRIBE on groups", ask, note)


def _topics(admin: ShareGroupAdmin, known: KnownNames | None) -> DoctorCheck:
    """DESCRIBE on the topics that exported records name."""
    what = "DESCRIBE on topics"
    if known is None:
        return DoctorCheck(what=what, status="note", detail=_NOTHING_KNOWN)

    def ask() -> str:
        visible = {topic.topic_id for topic in admin.topics()}
        hidden = sorted(admin.hidden_topics(known.topic_ids - visible))
        if hidden:
            first = known.topics.get(hidden[0]) or f"the one with id {hidden[0]}"
            raise ConfigurationError(
                f"{len(hidden)} topic(s) that state records name may not be described, first: {first}",
                hint="grant DESCRIBE on all topics of the groups; Kafka's answers leave them out without an error",
            )
        return f"{len(visible & known.topic_ids)} topic(s) that state records name are visible"

    return tried(what, ask)


def _configs(admin: ShareGroupAdmin, names: Sequence[str]) -> DoctorCheck:
    def ask() -> str:
        refused = {each.group_id: each.error for each in admin.group_configs(names) if each.error_code != NONE}
        if refused:
            raise _refused(refused, "grant DESCRIBE_CONFIGS on the groups; until then their configuration is unknown")
        return f"of {len(names)} group(s)"

    return tried("DESCRIBE_CONFIGS on groups", ask)


def _refused(errors: dict[str, str | None], hint: str) -> ConfigurationError:
    group_id, error = min(errors.items())
    return ConfigurationError(f"{len(errors)} group(s) refused, first {group_id!r}: {error}", hint=hint)


def _state_topic(kafka: KafkaConfig) -> DoctorCheck:
    """READ on the state topic: one record is read, or the end is seen."""
    from acktrail.broker.state.state_source import StateSource, StateSourceStatus

    def read() -> str:
        source = StateSource(kafka, run_id="doctor", bounded=True)
        try:
            tasks = source.tasks()
            if source.status is StateSourceStatus.STATE_TOPIC_ABSENT:
                return "not there yet: no share consumer ever came to this cluster"
            for task in tasks:
                task.start(None)
            for task in tasks:
                if task.is_finished or task.poll(_TIMEOUT_S) is not None:
                    break
            return f"{len(tasks)} partitions, readable"
        finally:
            source.close()

    return tried("READ on __share_group_state", read)
