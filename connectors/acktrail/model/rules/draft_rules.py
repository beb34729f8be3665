"""Rules that only the drafts of the record formats have; offline replays report them (`acktrail replay --findings`)."""

from __future__ import annotations

from typing import Final

from acktrail.model.rules.quality_rule import QualityRule, QualitySeverity

_FILE: Final = ("files of state records",)
_KIP: Final = ("KIP-932, its drafts",)
_LOOK: Final = (
    "Look at the record at the reported address with `acktrail decode`; the file is incomplete or was changed."
)

DRAFT_RULES: Final = (
    QualityRule(
        id="batch_within_window",
        severity=QualitySeverity.CRITICAL,
        title="Batches lie between start and end offset",
        meaning="A checkpoint or snapshot has a batch below its start offset, or at or above its end offset.",
        why="A broker refuses such a state on load.",
        advice=_LOOK,
        sources=_KIP,
        tables=_FILE,
        since="drafts i to iv, offline files",
    ),
    QualityRule(
        id="checkpoint_has_start",
        severity=QualitySeverity.ERROR,
        title="A checkpoint has a start offset",
        meaning="A checkpoint leaves its start offset open, which only a delta may.",
        why="Deliveries cannot be placed; the batches are readable.",
        advice=_LOOK,
        sources=_KIP,
        tables=_FILE,
        since="draft iii",
    ),
    QualityRule(
        id="checkpoint_epoch_step",
        severity=QualitySeverity.ERROR,
        title="Checkpoint epochs grow by one",
        meaning="A checkpoint's epoch is not the one after that of the checkpoint before.",
        why="A checkpoint is missing; this one is whole, so the state from here on is right.",
        advice=_LOOK,
        sources=_KIP,
        tables=_FILE,
        since="drafts i to iii",
    ),
    QualityRule(
        id="delta_epoch_matches",
        severity=QualitySeverity.ERROR,
        title="A delta names the epoch of its checkpoint",
        meaning="A delta has another epoch than the checkpoint before it, and is skipped.",
        why="Its deliveries are missing in the state.",
        advice=_LOOK,
        sources=_KIP,
        tables=_FILE,
        since="drafts i to iii",
    ),
    QualityRule(
        id="delta_has_checkpoint",
        severity=QualitySeverity.WARNING,
        title="A delta has a checkpoint before it",
        meaning="A delta comes before any checkpoint of its group or share partition, and is skipped.",
        why="Legal where the log was cleaned or the file begins in the middle.",
        advice="Add the files with the records before it.",
        sources=_KIP,
        tables=_FILE,
        since="drafts i to iii",
    ),
    QualityRule(
        id="delta_index_step",
        severity=QualitySeverity.ERROR,
        title="Delta indices grow by one, or begin again at 0",
        meaning="A delta's index is neither the one after that of the delta before, nor 0.",
        why="A delta is missing.",
        advice=_LOOK,
        sources=_KIP,
        tables=_FILE,
        since="draft iii",
    ),
    QualityRule(
        id="delta_index_not_reused",
        severity=QualitySeverity.ERROR,
        title="A delta index is used once between two checkpoints",
        meaning="Two deltas of one epoch have the same key: compaction removes the first of them.",
        why="Its deliveries are lost after the next compaction.",
        advice=_LOOK,
        sources=_KIP,
        tables=_FILE,
        since="draft iii",
    ),
    QualityRule(
        id="chain_unbroken",
        severity=QualitySeverity.CRITICAL,
        title="Back offsets lead to the checkpoint",
        meaning="The chain of deltas breaks: an offset is missing, belongs to another group, or leads forwards.",
        why="The state cannot be recovered by the chain; a scan of the whole log replaces it.",
        advice=_LOOK,
        sources=_KIP,
        tables=_FILE,
        since="draft ii",
    ),
    QualityRule(
        id="no_missing_at_or_above_checkpoint",
        severity=QualitySeverity.CRITICAL,
        title="Nothing is missing from a group's newest checkpoint on",
        meaning="A cleaner removed control records that the group's state still depends on.",
        why="The state is wrong without a sign of it.",
        advice=_LOOK,
        sources=_KIP,
        tables=_FILE,
        since="draft i",
    ),
    QualityRule(
        id="deletion_order",
        severity=QualitySeverity.WARNING,
        title="A deletion removes the checkpoint first",
        meaning="The tombstone of a delta comes before that of its checkpoint.",
        why="The state is deleted all the same; a load in between would have seen half of it.",
        advice=_LOOK,
        sources=_KIP,
        tables=_FILE,
        since="draft iii",
    ),
    QualityRule(
        id="deletion_complete",
        severity=QualitySeverity.WARNING,
        title="A deletion removes every delta",
        meaning="A checkpoint was deleted and deltas of it are left.",
        why="They count for nothing, but stay in the topic permanently.",
        advice="Add the files with the records after it; else the deletion was interrupted.",
        sources=_KIP,
        tables=_FILE,
        since="draft iii",
    ),
)
