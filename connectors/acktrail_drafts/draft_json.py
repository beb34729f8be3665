"""Records and states of the drafted generations, and findings, as JSON, with the names of the shipped ones where the
meaning is equal.

Fields that a generation does not have are -1 for an epoch and null for the delivery complete count; the topic id of a
control record is null, since it names only its group and is stored on the topic partition itself.
"""

from __future__ import annotations

from typing import Any, Final

from acktrail.format.wire.dialects.batch_arrays import absent_if_none, batches_form
from acktrail.format.wire.dialects.dialect import JsonForm
from acktrail.format.wire.state_key import key_form
from acktrail.model.records import Tombstone
from acktrail.model.rules.catalogue import RULE_BY_ID
from acktrail.model.share_partition import SharePartition
from acktrail_drafts.draft_records import (
    Checkpoint,
    ControlCheckpoint,
    ControlDelta,
    Delta,
    DeltaTombstone,
    DraftSnapshot,
    DraftUpdate,
)
from acktrail_drafts.violations import SKIPPED_BY_RULES, Violation

_KINDS: Final[dict[type, str]] = {
    ControlCheckpoint: "checkpoint",
    ControlDelta: "delta",
    Checkpoint: "checkpoint",
    Delta: "delta",
    DeltaTombstone: "delta_tombstone",
    DraftSnapshot: "snapshot",
    DraftUpdate: "update",
    Tombstone: "tombstone",
}
_NUMBERS: Final = ("delta_index", "checkpoint_epoch", "snapshot_epoch", "state_epoch", "start_offset", "end_offset")


def draft_content(record: Any, partition: int) -> JsonForm:
    """The content of a drafted record, which lies on `partition` of its log."""
    form = {"type": _KINDS[type(record)], **_subject(record, partition)}
    form |= {name: absent_if_none(getattr(record, name)) for name in _NUMBERS if hasattr(record, name)}
    if getattr(record, "back_offset", None) is not None:
        form["back_offset"] = record.back_offset
    return {**form, "batches": batches_form(record.batches)} if hasattr(record, "batches") else form


def draft_state_json(state: Any, partition: int | None = None) -> JsonForm:
    """A state, in the form of ``state_json``; `snapshot_epoch` is the checkpoint epoch of generations i to iii.

    `partition`: that of the log, for a state of generations i and ii.
    """
    window = state.window
    is_last = isinstance(state, DraftSnapshot | DraftUpdate)
    return {
        **_subject(state, partition),
        "state_epoch": absent_if_none(state.state_epoch) if is_last else -1,
        "snapshot_epoch": state.snapshot_epoch if is_last else state.checkpoint_epoch,
        "leader_epoch": -1,
        "start_offset": absent_if_none(window.start_offset),
        "delivery_complete_count": None,
        "batches": batches_form(window.batches),
    }


def finding_json(finding: Violation) -> JsonForm:
    """One rule that one record broke. `changes_state`: only policy ``broker`` applies the record."""
    subject = finding.subject
    of_group: JsonForm = {"group": subject, "topic_id": None, "partition": finding.partition}
    return {
        "rule": finding.rule.value,
        "severity": RULE_BY_ID[finding.rule].severity.value,
        "changes_state": finding.rule in SKIPPED_BY_RULES,
        **(key_form(subject) if isinstance(subject, SharePartition) else of_group),
        "state_partition": finding.partition,
        "offset": finding.offset,
        "detail": finding.detail,
    }


def _subject(record: Any, partition: int | None) -> JsonForm:
    if isinstance(record, ControlCheckpoint | ControlDelta):
        return {"group": record.group_id, "topic_id": None, "partition": partition}
    return key_form(record.key)
